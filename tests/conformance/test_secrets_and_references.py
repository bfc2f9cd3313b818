"""Credentials and keychain, and results that are kept elsewhere (sections 12 and 13)."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.conformance import Runtime

SECRET = "correct-horse-battery"
QUERY = "query: SELECT 1 AS n"


@pytest.mark.parametrize(
    "auth",
    [
        "auth: {pg}",
        'auth: "{{{{ workload.pg_auth }}}}"',
        "auth: {{type: postgres, credential: {pg}}}",
        "auth: {{type: postgres, key: {pg}}}",
        "auth: {{main: {{source: credential, key: {pg}, service: postgres}}}}",
        "credential: {pg}",
    ],
)
def test_every_way_to_name_a_credential(runtime: Runtime, pg: str, auth: str):
    steps = f"- {{step: start, tool: {{kind: postgres, {auth.format(pg=pg)}, {QUERY}}}}}"
    ended = runtime.flow(steps, payload={"pg_auth": pg}).completed()
    assert ended["start"]["rows"] == [{"n": 1}]


def test_a_credential_that_is_missing_fails_the_task_by_name(runtime: Runtime):
    ended = runtime.flow(
        "- {step: start, tool: {kind: postgres, auth: nobody, query: SELECT 1}}"
    ).failed()
    assert "nobody" in ended.error["message"]


KEYCHAIN = f"""
    keychain:
      - {{name: app, kind: static, map: {{user: ada, password: {SECRET}}}}}
      - {{name: token, kind: bearer, token: "{{{{ keychain.app.user }}}}-{SECRET}"}}
"""


def test_keychain_values_are_there_for_tasks_and_nowhere_else(runtime: Runtime):
    ended = runtime.flow(
        """
        - step: start
          tool:
            - name: use
              kind: python
              input: {user: "{{ keychain.app.user }}", word: "{{ keychain.app.password }}", later: "{{ keychain.token.token }}"}
              code: "result = [user, len(word), len(later), word]"
              spec: {policy: {rules: [{else: {do: continue, set: {ctx.word: "{{ keychain.app.password }}"}}}]}}
        """,
        head=KEYCHAIN,
    ).completed()
    assert ended["start"][:3] == ["ada", len(SECRET), len(f"ada-{SECRET}")]
    assert SECRET not in str(ended["start"])
    assert SECRET not in msgspec.json.encode(ended.events).decode()


def test_a_keychain_entry_that_fails_matters_only_to_a_task_that_needs_it(runtime: Runtime):
    head = "keychain: [{name: gone, kind: credential, credential: nobody}]"
    steps = "- {step: start, tool: {kind: noop, result: 1}}"
    assert runtime.flow(steps, head=head).completed()["start"] == 1
    needy = '- {step: start, tool: {kind: noop, result: "{{ keychain.gone.token }}"}}'
    assert "nobody" in str(runtime.flow(needy, head=head).failed().error)


LARGE = "result = {'rows': [{'i': i, 'text': 'x' * 100} for i in range(3000)], 'total': 3000}"


def test_a_large_result_offers_its_fields_and_its_reference(runtime: Runtime):
    ended = runtime.flow(f"""
        - {{step: small, tool: {{kind: noop, result: {{n: 1}}}}, next: large}}
        - step: large
          tool: {{kind: python, code: "{LARGE}"}}
          next: see
        - step: see
          tool:
            - name: names
              kind: noop
              result:
                - "{{{{ small._ref is defined }}}}"
                - "{{{{ large._ref is defined }}}}"
                - "{{{{ large._ref.kind }}}}"
                - "{{{{ large._size_bytes > 100000 }}}}"
                - "{{{{ large.total }}}}"
                - "{{{{ large.rows[2999].i }}}}"
            - {{name: again, kind: artifact, action: get, input: {{result_ref: "{{{{ large._ref }}}}"}}}}
            - {{name: count, kind: noop, result: ["{{{{ again.rows | length }}}}", "{{{{ again.data.total }}}}"]}}
            - {{name: whole, kind: python, input: {{large: "{{{{ large }}}}"}}, code: "result = [len(large['rows']), len(large['data']['rows'])]"}}
          next: {{arcs: [{{step: yes_, when: "{{{{ large._ref is defined and small._ref is not defined }}}}"}}]}}
        - {{step: yes_}}
    """).completed()
    found = ended["see"]
    assert found["names"] == [False, True, "result_ref", True, 3000, 2999]
    assert found["count"] == [3000, 3000]
    assert found["whole"] == [3000, 3000]
    assert ended.visits["yes_"] == 1


def test_a_reference_to_nothing_is_a_retryable_error_with_its_code(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          tool: {kind: artifact, action: get, uri: "noetl://default/default/results/1/start/00000001/0/1@1"}
          next: {arcs: [{step: after, when: "{{ output.error.code == 'REFERENCE_NOT_AVAILABLE' and output.error.retryable }}"}]}
        - {step: after}
    """).completed()
    assert ended.visits["after"] == 1


def test_storage_hints_are_accepted(runtime: Runtime):
    ended = runtime.flow("""
        - step: start
          output: {store: {kind: auto, ttl: 1h}, inline_max_bytes: 65536}
          tool: {kind: noop, result: {n: 1}, output: {store: {kind: kv}, output_select: [n]}, spec: {result: {scope: execution}}}
    """).completed()
    assert ended["start"] == {"n": 1}
