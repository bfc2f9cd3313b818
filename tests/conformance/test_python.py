"""The python kind inside whole executions: where its names come from (section 7)."""

from __future__ import annotations

import base64

from tests.support.conformance import Runtime


def test_main_takes_its_arguments_from_the_input_then_from_every_name_templates_see(
    runtime: Runtime,
):
    ended = runtime.flow(
        """
        - step: start
          tool: {kind: noop, result: {rows: [1, 2]}}
          set: {ctx.factor: 10}
          next: use
        - step: use
          tool:
            - {name: first, kind: noop, result: {label: yes}}
            - name: second
              kind: python
              input: {a: 1}
              code: |
                async def main(a, base, factor, start, first, missing="none"):
                    return [a, base, factor, start["rows"], first["label"], missing]
        """,
        payload={"base": 5, "a": "from the workload"},
    ).completed()
    assert ended["use"]["second"] == [1, 5, 10, [1, 2], True, "none"]


def test_code_in_base64_and_scripts_may_ask_for_the_context(runtime: Runtime):
    code = base64.b64encode(b"result = [context['base'], context['ctx']['n']]").decode()
    ended = runtime.flow(
        f"""
        - {{step: start, set: {{ctx.n: 2}}, next: coded}}
        - {{step: coded, tool: {{kind: python, code_b64: "{code}"}}, next: script}}
        - step: script
          tool:
            kind: python
            script: {{source: {{type: inline, code: "def main(base, n): return base + n"}}}}
        """,
        payload={"base": 5},
    ).completed()
    assert ended["coded"] == [5, 2]
    assert ended["script"] == 7


def test_in_loops_main_takes_the_iterator_and_the_counters(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          loop: {in: "{{ ['a', 'b'] }}", iterator: letter}
          tool:
            kind: python
            code: |
              def main(letter, loop_index, _total, base):
                  return [letter, loop_index, _total, base]
        """,
        payload={"base": 1},
    ).completed()
    assert ended["start"]["results"] == [["a", 0, 2, 1], ["b", 1, 2, 1]]


def test_without_ray_a_task_that_asks_for_resources_fails_and_says_so(runtime: Runtime):
    failed = runtime.flow("""
        - step: start
          tool: {kind: python, code: result = 1, spec: {resources: {num_gpus: 1}}}
    """).failed()
    assert "the task asks for CPU 1, GPU 1 of a Ray cluster" in str(failed.error)
