from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.kinds import KNOWN_KINDS, OUTSIDE_KINDS, PLUGIN_HELP, has_side_effects
from noetl_ray.tools.noop import NoopTool
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.registry import ENTRY_POINT_GROUP, ToolRegistry, default_registry


class Shout:
    """Stands for a third party's tool."""

    kind: ClassVar[str] = "shout"
    side_effects: ClassVar[bool] = False
    meta_key: ClassVar[str] = "shout"
    text_keys: ClassVar[frozenset[str]] = frozenset()
    closed = 0

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(data=str(config["text"]).upper())

    async def close(self) -> None:
        type(self).closed += 1


class Stuck(NoopTool):
    kind: ClassVar[str] = "stuck"

    async def close(self) -> None:
        msg = "cannot"
        raise RuntimeError(msg)


@pytest.fixture
def point(monkeypatch):
    module = type(sys)("a_third_party")
    module.Shout = Shout
    monkeypatch.setitem(sys.modules, "a_third_party", module)

    def make(name: str, value: str = "a_third_party:Shout") -> EntryPoint:
        return EntryPoint(name=name, value=value, group=ENTRY_POINT_GROUP)

    return make


def test_an_unknown_kind_says_what_was_probably_meant():
    registry = ToolRegistry(plugins=[])
    registry.register(NoopTool())
    with pytest.raises(ToolError, match="did you mean 'noop'") as caught:
        registry.get("nop")
    assert caught.value.kind == "schema"


@pytest.mark.parametrize("kind", sorted(OUTSIDE_KINDS))
def test_a_kind_that_needs_an_account_says_how_to_add_it(kind):
    with pytest.raises(ToolError) as caught:
        ToolRegistry(plugins=[]).get(kind)
    assert caught.value.message == (
        f"the tool kind {kind!r} is not built in; to have it, install a package with an entry "
        "point of that name in the group 'noetl_ray.tools', whose object makes a tool of that kind"
    )
    assert caught.value.kind == "schema"
    assert PLUGIN_HELP.count(ENTRY_POINT_GROUP) == 1
    assert kind not in KNOWN_KINDS


def test_a_plugin_may_bring_a_kind_that_is_not_built_in(point):
    assert ToolRegistry(plugins=[point("gcs")]).kinds() == {"gcs"}


def test_a_kind_is_registered_once():
    registry = ToolRegistry(plugins=[])
    registry.register(NoopTool())
    with pytest.raises(ValueError, match="already"):
        registry.register(NoopTool())


@pytest.mark.asyncio
async def test_a_plugin_is_known_before_and_loaded_at_first_use(point, bench):
    registry = ToolRegistry(plugins=[point("shout")])
    assert registry.kinds() == {"shout"}
    assert registry.side_effects("shout") is False
    tool = registry.get("shout")
    assert tool is registry.get("shout")
    assert (await tool.run({"text": "a"}, bench.context())).data == "A"
    before = Shout.closed
    await registry.close()
    assert Shout.closed == before + 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("shout", "no_such_module:Tool", "cannot be loaded"),
        ("whisper", "a_third_party:Shout", "says it is 'shout'"),
    ],
)
def test_a_broken_plugin_fails_its_own_kind_only(point, name, value, said):
    registry = ToolRegistry(plugins=[point(name, value)])
    registry.register(NoopTool())
    with pytest.raises(ToolError, match=said):
        registry.get(name)
    assert registry.get("noop").kind == "noop"


def test_a_plugin_cannot_take_a_kind_that_is_there(point):
    registry = ToolRegistry(plugins=[point("noop")])
    own = NoopTool()
    registry.register(own)
    assert registry.get("noop") is own


@pytest.mark.asyncio
async def test_one_tool_that_cannot_close_keeps_no_other_open():
    registry = ToolRegistry(plugins=[])
    registry.register(Stuck())
    registry.register(Shout())
    before = Shout.closed
    await registry.close()
    assert Shout.closed == before + 1


@pytest.mark.asyncio
async def test_the_default_kinds_agree_with_the_static_facts():
    registry = default_registry(python_processes=1)
    assert registry.kinds() >= KNOWN_KINDS
    assert {k: registry.side_effects(k) for k in KNOWN_KINDS} == {
        k: has_side_effects(k) for k in KNOWN_KINDS
    }
    await registry.close()


def test_static_facts_load_no_driver():
    code = (
        "import sys, noetl_ray.tools.kinds, noetl_ray.tools.registry\n"
        "sys.exit(any(m in sys.modules for m in ('httpx', 'asyncpg', 'duckdb', 'nats')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
