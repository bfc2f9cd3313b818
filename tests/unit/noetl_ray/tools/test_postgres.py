"""What the postgres kind refuses before it needs a server; the rest is in tests/contract."""

from __future__ import annotations

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.postgres import PostgresTool, _leaves_traces, _statements


@pytest.mark.asyncio
@pytest.mark.parametrize("config", [{"auth": "pg"}, {"auth": "pg", "query": " -- none\n ; "}])
async def test_missing_sql_is_an_error_at_run_time(bench, config):
    tool = PostgresTool()
    with pytest.raises(ToolError, match="needs SQL"):
        await tool.run(config, bench.context())
    await tool.close()


@pytest.mark.asyncio
async def test_missing_auth_says_how_to_give_it(bench):
    tool = PostgresTool()
    with pytest.raises(ToolError, match="noetl-ray credential add") as caught:
        await tool.run({"query": "select 1"}, bench.context())
    assert caught.value.kind == "auth"
    await tool.close()


@pytest.mark.parametrize(
    "config",
    [
        {"query": "a; b"},
        {"command": "a;b;"},
        {"commands": ["a", "b"]},
        {"cmds": ["a;", "b;"]},
        {"script": "a; b"},
        {"script": {"source": {"type": "inline", "code": "a; b"}}},
        {"query": "", "command": "a; b"},
    ],
)
def test_every_way_to_give_sql(config):
    assert _statements(config) == ["a", "b"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select 1", False),
        ("update t set a = 1", False),
        ("set search_path to x", False),
        ("create table t (a int)", False),
        ("set role x", True),
        ("set local role x", True),
        ("set session authorization x", True),
        ("/* x */ create temp table t (a int)", True),
        ("create or replace temporary view v as select 1", True),
        ("select 1 into temp t", True),
        ("prepare p as select 1", True),
        ("do $$ begin end $$", True),
    ],
)
def test_sessions_with_traces_are_not_shared(statement, expected):
    assert _leaves_traces(statement) is expected
