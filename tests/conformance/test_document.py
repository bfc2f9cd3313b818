"""The document, the workload and what names mean (sections 1 and 2)."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import check_playbook, parse_playbook
from noetl_ray.errors import PlaybookError
from tests.support.conformance import Runtime, playbook


def test_all_three_dialects_may_meet_in_one_playbook(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            - draw:
                kind: python
                args: {n: 4}
                code: "result = {'n': n}"
                spec:
                  policy:
                    rules:
                      - when: "{{ outcome.status == 'ok' }}"
                        then: {do: continue, set_ctx: {drawn: "{{ outcome.result.n }}"}}
          next: [{step: middle, when: "{{ event.name == 'step.done' }}"}]
        - step: middle
          tool:
            - name: twice
              kind: python
              input: {n: "{{ ctx.drawn }}"}
              code: "result = {'n': n * 2}"
          set: {ctx.twice: "{{ output.data.n }}"}
          next: {arcs: [{step: last, when: "{{ event.name == 'call.done' }}"}]}
        - step: last
          tool:
            kind: python
            input: {n: "{{ ctx.twice }}"}
            set: {shown: "{{ output }}"}
            code: "return {'n': input_data['n'] + 1}"
    """).completed()
    assert ended["last"] == {"n": 9}


@pytest.mark.parametrize("kind", ["Playbook", "Agent"])
@pytest.mark.parametrize("version", ["noetl.io/v2", "noetl.io/v10"])
def test_both_versions_and_both_kinds_of_document_run(runtime: Runtime, version: str, kind: str):
    source = playbook("- {step: start, tool: {kind: noop, result: {n: 1}}}")
    source = source.replace("noetl.io/v2", version).replace("kind: Playbook", f"kind: {kind}")
    assert runtime.run(source).completed()["start"] == {"n": 1}


def test_unknown_keys_at_the_root_are_ignored(runtime: Runtime):
    head = "tracing: {enabled: true}\nspec: {dag: {}}\nexecutor: {profile: local, requires: []}"
    ended = runtime.flow("- {step: start, tool: {kind: noop, result: 1}}", head=head)
    assert ended.completed()["start"] == 1


def test_the_path_is_the_name_in_the_catalog_and_the_default_is_the_name():
    steps = "- {step: start}"
    assert parse_playbook(playbook(steps, path="/a/b")).path == "/a/b"
    source = playbook(steps).replace(", path: conformance/one", "")
    assert parse_playbook(source).path == "conformance"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("workflow:", "workflows:"), "'workflow' with at least one step is missing"),
        (("name: conformance, ", ""), "'metadata.name' is missing"),
        (("noetl.io/v2", "noetl.io/v7"), "'apiVersion' is 'noetl.io/v7'"),
        (("kind: Playbook", "kind: Recipe"), "'kind' is 'Recipe'"),
        (("kind: noop", "kind: pyhton"), "unknown tool kind 'pyhton'"),
    ],
)
def test_what_registration_refuses(change: tuple[str, str], message: str):
    source = playbook("- {step: start, tool: {kind: noop}}").replace(*change)
    with pytest.raises(PlaybookError) as refused:
        parse_playbook(source)
    assert message in str(refused.value)


def test_a_query_that_is_missing_registers_and_fails_at_run_time(runtime: Runtime, pg: str):
    ended = runtime.flow(f"- {{step: start, tool: {{kind: postgres, auth: {pg}}}}}").failed()
    assert ended.error["step"] == "start"


def test_execution_id_is_a_decimal_number_as_text(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool:
            kind: python
            input: {id: "{{ execution_id }}", job: "{{ job }}", mixed: "x{{ execution_id }}"}
            code: "result = {'kind': type(id).__name__, 'id': id, 'job': job, 'mixed': mixed}"
    """).completed()
    identity = str(ended.state.execution_id)
    assert 0 < int(identity) < 2**63
    assert ended["start"] == {
        "kind": "str",
        "id": identity,
        "job": {"uuid": identity, "execution_id": identity, "id": identity},
        "mixed": f"x{identity}",
    }


def test_execution_id_fits_bigint_unquoted_and_text_quoted(runtime: Runtime, pg: str):
    ended = runtime.flow(f"""
        - step: start
          tool:
            kind: postgres
            auth: {pg}
            query: "SELECT {{{{ execution_id }}}}::bigint AS n, '{{{{ execution_id }}}}'::text AS t"
    """).completed()
    identity = ended.state.execution_id
    assert ended["start"]["rows"] == [{"n": identity, "t": str(identity)}]


WORKBOOK = """
    workbook:
      - name: greet
        tool: {kind: python, input: {name: null, word: Hello}, code: "result = f'{word} {name}'"}
        assert: {expects: [nothing]}
      - name: nobody_asks
        tool: {kind: python, code: "raise ValueError('never')"}
"""


def test_a_workbook_item_runs_with_its_input_overlaid_and_gives_its_own_result(runtime: Runtime):
    steps = "- {step: start, tool: {kind: workbook, name: greet, input: {name: Ada}}}"
    assert runtime.flow(steps, head=WORKBOOK).completed()["start"] == "Hello Ada"


def test_workload_is_merged_deeply_and_anything_else_is_replaced(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool: {kind: noop, result: {deep: "{{ workload.deep }}", list: "{{ workload.list }}"}}
        """,
        head="workload: {deep: {a: 1, b: {c: 2, d: 3}}, list: [1, 2, 3]}",
        payload={"deep": {"b": {"c": 20}, "e": 5}, "list": [9]},
    ).completed()
    assert ended["start"] == {"deep": {"a": 1, "b": {"c": 20, "d": 3}, "e": 5}, "list": [9]}


def test_a_ctx_mapping_in_the_payload_is_merged_into_the_variables(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool: {kind: noop, result: ["{{ ctx.mark }}", "{{ mark }}", "{{ ctx.page }}", "{{ ctx.deep }}"]}
        """,
        head="workload: {page: 1, mark: old, deep: {a: 1, b: 2}}",
        payload={"ctx": {"mark": "new", "deep": {"b": 3}}},
    ).completed()
    assert ended["start"] == ["new", "new", 1, {"a": 1, "b": 3}]


def test_workload_stays_as_submitted_while_ctx_changes(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          set: {ctx.page: "{{ workload.page + 1 }}"}
          next: after
        - step: after
          tool: {kind: noop, result: ["{{ workload.page }}", "{{ ctx.page }}", "{{ page }}"]}
          set: {ctx.page: "{{ workload.page }}"}
          next: again
        - step: again
          tool: {kind: noop, result: "{{ ctx.page }}"}
        """,
        head="workload: {page: 1}",
    ).completed()
    assert ended["after"] == [1, 2, 2]
    assert ended["again"] == 1


def test_workload_templates_are_rendered_when_they_are_read(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool:
            kind: noop
            result:
              - "{{ workload.table }}"
              - "{{ table }}"
              - "{{ ctx.table }}"
              - "{{ workload.site }}"
              - "{{ workload.deep.job }}"
        """,
        head="""
        workload:
          table: "export_{{ execution_id }}"
          site: "{{ env.CONFORMANCE_SITE | default('none') }}-{{ env.NO_SUCH | default('y') }}"
          deep: {job: "{{ job.uuid }}"}
        """,
    ).completed()
    identity = str(ended.state.execution_id)
    table = f"export_{identity}"
    assert ended["start"] == [table, table, table, "north-y", identity]


CHAIN = 'workload: {a: "{{ workload.b }}", b: "{{ workload.c }}", c: "{{ workload.d }}", d: end}'


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "b", "a"], ["b", "a", "c"]])
def test_lazy_rendering_goes_two_deep_whatever_is_read_first(runtime: Runtime, order: list[str]):
    asked = ", ".join(f'{key}: "{{{{ workload.{key} }}}}"' for key in order)
    ended = runtime.flow(
        f"- {{step: start, tool: {{kind: noop, result: {{{asked}}}}}}}", head=CHAIN
    ).completed()
    assert ended["start"] == {"a": "{{ workload.d }}", "b": "end", "c": "end"}


def test_data_from_tools_is_never_rendered_again(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool: {kind: python, code: "result = {'text': '{' + '{ workload.secret }' + '}'}"}
          set: {ctx.text: "{{ output.data.text }}"}
          next: after
        - step: after
          tool:
            kind: python
            input: {a: "{{ start.text }}", b: "{{ ctx.text }}", c: "{{ text }}"}
            code: "result = [a, b, c]"
        """,
        head="workload: {secret: shown}",
    ).completed()
    assert ended["after"] == ["{{ workload.secret }}"] * 3


def test_names_of_the_runtime_cannot_be_hidden_by_the_workload(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool:
            kind: noop
            result:
              - "{{ execution_id }}"
              - "{{ job.uuid }}"
              - "{{ workload.execution_id }}"
              - "{{ catalog_id == 'mine' }}"
        """,
        head="workload: {execution_id: mine, job: mine, catalog_id: mine}",
    ).completed()
    identity = str(ended.state.execution_id)
    assert ended["start"] == [identity, identity, "mine", False]


def test_names_are_looked_up_in_the_order_of_the_language(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: fetch
          tool: {kind: noop, result: {from: step}}
          set: {ctx.only: variable, fetch: variable}
          next: use
        - step: use
          loop: {in: [7], iterator: only}
          tool:
            - name: fetch
              kind: noop
              result: ["{{ fetch.from }}", "{{ ctx.fetch }}", "{{ only }}", "{{ ctx.only }}"]
            - name: mine
              kind: noop
              input: {fetch: input, only: given}
              result: ["{{ fetch }}", "{{ only }}", "{{ results.fetch[0] }}", "{{ steps.fetch.from }}"]
            - name: last
              kind: noop
              result: ["{{ fetch[0] }}", "{{ bare }}"]
        """,
        head="workload: {fetch: workload, bare: workload}",
    ).completed()
    found = ended["use"]["results"][0]
    assert found["fetch"] == ["step", "variable", 7, "variable"]
    assert found["mine"] == ["input", "given", "step", "step"]
    assert found["last"] == ["step", "workload"]


def test_env_reads_only_what_is_allowed(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: noop, result: ["{{ env.CONFORMANCE_SITE }}", "{{ env.PATH }}"]}
          next: {arcs: [{step: yes, when: "{{ env.CONFORMANCE_SITE == 'north' }}"}]}
        - {step: yes, tool: {kind: noop, result: 1}}
    """).completed()
    assert ended["start"] == ["north", ""]
    assert ended["yes"] == 1


def test_entry_is_what_the_executor_says_else_start_else_the_first(runtime: Runtime):
    steps = """
        - {step: first, tool: {kind: noop, result: 1}}
        - {step: start, tool: {kind: noop, result: 2}}
        - {step: third, tool: {kind: noop, result: 3}}
    """
    chosen = runtime.flow(steps, head="executor: {spec: {entry_step: third, final_step: first}}")
    assert chosen.completed().values == {"third": 3}
    assert runtime.flow(steps).completed().values == {"start": 2}
    renamed = steps.replace("step: start", "step: second")
    assert runtime.flow(renamed).completed().values == {"first": 1}


@pytest.mark.parametrize("key", ["case", "sink", "retry", "pagination"])
@pytest.mark.parametrize("place", ["step", "task"])
def test_blocks_of_older_versions_are_refused_with_what_to_use(key: str, place: str):
    block = f"{key}: {{on: x}}"
    tool = f"tool: {{kind: noop, {block}}}" if place == "task" else f"tool: {{kind: noop}}, {block}"
    found = [
        p for p in check_playbook(playbook(f"- {{step: start, {tool}}}")) if p.severity == "error"
    ]
    assert [p.message for p in found] == [f"'{key}' is not part of this language"]
    assert found[0].hint.startswith(("use ", "add "))
    assert found[0].line == 6
