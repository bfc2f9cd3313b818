"""What code, requests and statements are given and what they give (section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.conformance import Runtime


def ran(runtime: Runtime, code: str, given: str = "{}", more: str = "") -> Any:
    """The result of python code."""
    body = "\n".join(f"              {line}" for line in code.splitlines())
    return runtime.flow(
        f"""
        - step: start
          tool:
            kind: python
            input: {given}
            {more}
            code: |
{body}
    """.replace("\n            \n", "\n")
    ).completed()["start"]


@pytest.mark.parametrize(
    ("code", "given", "value"),
    [
        ("result = n + 1", "{n: 1}", 2),
        ("result = input_data['n'] + args['n']", "{n: 1}", 2),
        ("result = input_data", "{input_data: mine, n: 1}", "mine"),
        ("result = [execution_id.isdigit(), json.dumps([1]), os.sep, datetime is not None, uuid is not None]", "{}", [True, "[1]", "/", True, True]),
        ("return n * 2", "{n: 2}", 4),
        ("  if n:\n    return 'indented'\n  return 0", "{n: 2}", "indented"),
        ("def main(n, m=5):\n    return n + m", "{n: 2}", 7),
        ("async def main(n):\n    return n", "{n: 2}", 2),
        ("def main():\n    return 1\nresult = 2", "{}", 2),
        ("def helper(x):\n    return x + offset\noffset = 10\nresult = [helper(x) for x in (1, 2)]", "{}", [11, 12]),
        ("n = n + 1\nresult = n", "{n: 1}", 2),
        ("result = result + 1", "{result: 1}", 2),
        ("pass", "{}", {}),
        ("result = None", "{}", {}),
        ("result = {1, 2}.__class__.__name__", "{}", "set"),
        ("result = {'when': datetime.datetime(2024, 1, 2)}", "{}", {"when": "2024-01-02T00:00:00"}),
    ],
)  # fmt: skip
def test_what_code_has_and_gives(runtime: Runtime, code: str, given: str, value: Any):
    assert ran(runtime, code, given) == value


def test_main_takes_its_arguments_from_input_then_context(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, tool: {kind: noop, result: {n: 3}}, set: {ctx.m: 4}, next: code}
        - step: code
          tool:
            kind: python
            input: {n: 1}
            code: |
              def main(n, m, start, execution_id):
                  return [n, m, start["n"], execution_id.isdigit()]
    """).completed()
    assert ended["code"] == [1, 4, 3, True]


def test_libs_are_imported_first(runtime: Runtime):
    libs = "libs: {m: math, root: {from: math, import: sqrt}}"
    assert ran(runtime, "result = [m.floor(1.5), root(9)]", "{}", libs) == [1, 3.0]


def test_context_has_everything_templates_see(runtime: Runtime):
    ended = runtime.flow(
        """
        - {step: start, tool: {kind: noop, result: {n: 1}}, set: {ctx.m: 2}, next: code}
        - step: code
          tool: {kind: python, code: "result = [context['start']['n'], context['ctx']['m'], context['workload']['k'], context['execution_id']]"}
        """,
        head="workload: {k: 3}",
    ).completed()
    assert ended["code"] == [1, 2, 3, str(ended.state.execution_id)]


def test_statements_are_their_own_transactions_and_the_first_failure_stops(
    runtime: Runtime, pg: str
):
    ended = runtime.flow(f"""
        - step: start
          tool:
            kind: postgres
            auth: {pg}
            command: |
              DROP TABLE IF EXISTS kept;
              CREATE TABLE kept (n int);
              INSERT INTO kept VALUES (1);
              INSERT INTO kept SELECT 1/0;
              INSERT INTO kept VALUES (3);
          next: {{arcs: [{{step: look, when: "{{{{ output.status == 'error' }}}}"}}]}}
        - {{step: look, tool: {{kind: postgres, auth: {pg}, query: "SELECT n FROM kept"}}}}
    """).completed()
    assert ended["look"]["rows"] == [{"n": 1}]


def test_the_result_is_that_of_the_last_statement_with_each_under_its_number(
    runtime: Runtime, pg: str
):
    ended = runtime.flow(f"""
        - step: start
          tool:
            kind: postgres
            auth: {pg}
            commands:
              - "DROP TABLE IF EXISTS many; CREATE TABLE many (n int, doc jsonb, at date, price numeric)"
              - "INSERT INTO many VALUES (1, '{{\\"a\\": [1]}}', '2024-01-02', 1.5), (2, null, null, null) RETURNING n"
              - "UPDATE many SET n = n + 1"
              - "SELECT * FROM many ORDER BY n"
          next: after
        - step: after
          tool: {{kind: noop, result: ["{{{{ start.command_2.rows | length }}}}", "{{{{ start.rows[0].doc.a[0] }}}}"]}}
    """).completed()
    found = ended["start"]
    assert found["status"] == "success"
    assert found["columns"] == ["n", "doc", "at", "price"]
    assert found["rows"] == [
        {"n": 2, "doc": {"a": [1]}, "at": "2024-01-02", "price": 1.5},
        {"n": 3, "doc": None, "at": None, "price": None},
    ]
    assert (found["row_count"], found["statement_count"]) == (2, 5)
    assert found["command_2"]["rows"] == [{"n": 1}, {"n": 2}]
    assert found["command_3"]["affected_rows"] == 2
    assert ended["after"] == [2, 1]


@pytest.mark.parametrize("key", ["auth", "credential"])
@pytest.mark.parametrize("sql", ["query", "command", "queries", "commands", "cmd", "cmds"])
def test_every_name_of_a_query(runtime: Runtime, pg: str, sql: str, key: str):
    steps = f"- {{step: start, tool: {{kind: postgres, {key}: {pg}, {sql}: SELECT 1 AS n}}}}"
    assert runtime.flow(steps).completed()["start"]["rows"] == [{"n": 1}]


@pytest.mark.parametrize("body", ["json", "payload", "body", "data"])
@pytest.mark.parametrize("url", ["url", "endpoint"])
def test_every_name_of_a_body_and_an_address(runtime: Runtime, api_url: str, body: str, url: str):
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: http, method: POST, {url}: "{api_url}/api/v1/effects", {body}: {{key: "{body}-{url}"}}}}
    """).completed()
    found = ended["start"]
    assert found["data"]["key"] == f"{body}-{url}"
    assert found["data"] == found["body"]
    assert {"status_code", "headers", "url", "elapsed", "data", "body"} <= set(found)


def test_plain_data_is_the_query_of_a_get_and_may_be_split(runtime: Runtime, api_url: str):
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: http, url: "{api_url}/api/v1/users", data: {{limit: 2}}}}
          next: split
        - step: split
          tool: {{kind: http, url: "{api_url}/api/v1/users", data: {{query: {{limit: 3}}}}}}
    """).completed()
    assert len(ended["start"]["data"]["users"]) == 2
    assert len(ended["split"]["data"]["users"]) == 3


def test_a_failing_request_without_a_policy_fails_the_step(runtime: Runtime, api_url: str):
    ended = runtime.flow(f"""
        - step: start
          tool: {{kind: http, url: "{api_url}/api/v1/errors", params: {{error_type: "500"}}}}
    """).failed()
    assert (ended.error["kind"], ended.error["status_code"]) == ("server_error", 500)


def test_noop_gives_its_result_or_says_that_it_ran(runtime: Runtime):
    ended = runtime.flow("""
        - {step: start, tool: {kind: noop}, next: given}
        - {step: given, tool: {kind: noop, result: {a: "{{ start.step }}"}}}
    """).completed()
    assert ended["start"]["status"] in ("ok", "noop")
    assert ended["given"] == {"a": "start"}


def test_duckdb_gives_rows_like_postgres(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: duckdb, commands: "CREATE TABLE t AS SELECT range AS n FROM range(3); SELECT sum(n)::int AS total FROM t"}
          next: after
        - {step: after, tool: {kind: noop, result: ["{{ start.rows[0].total }}", "{{ start.command_1.rows[0].total }}"]}}
    """).completed()
    assert ended["after"] == [3, 3]


def test_shell_gives_what_was_printed(runtime: Runtime):
    ended = runtime.flow(
        "- {step: start, tool: {kind: shell, cmds: [echo one, echo two]}}"
    ).completed()
    assert {key: ended["start"][key] for key in ("stdout", "exit_code", "text")} == {
        "stdout": "one\ntwo\n",
        "exit_code": 0,
        "text": "one\ntwo",
    }


@pytest.mark.parametrize("kind", ["gcs", "snowflake", "container", "secrets", "ducklake", "mcp"])
def test_kinds_that_need_an_account_are_named_in_the_refusal(runtime: Runtime, kind: str):
    with pytest.raises(Exception, match=f"'{kind}'"):
        runtime.flow(f"- {{step: start, tool: {{kind: {kind}}}}}")
