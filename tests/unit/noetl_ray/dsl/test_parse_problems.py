"""Every rule of the validator with its exact words."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import check_playbook

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"


def found(text: str) -> list[str]:
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(text)
    ]


def in_step(body: str) -> list[str]:
    """Findings of a step whose keys are given; they start in line 6, column 5."""
    return found(f"{HEAD}workflow:\n  - step: start\n    {body}\n")


def in_tool(tool: str) -> list[str]:
    """Findings of a tool in flow style; it starts in line 6, column 11."""
    return in_step(f"tool: {tool}")


def in_rules(rules: str) -> list[str]:
    """Findings of rules in flow style, each on a line of its own from line 8."""
    return in_step(f"tool:\n      kind: noop\n      spec: {{policy: {{rules: {rules}}}}}")


def test_a_sound_playbook_has_no_findings() -> None:
    assert (
        in_step("tool: {kind: python, code: 'x = {{ y }}', timeout_seconds: 3}\n    next: end")
        == []
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["error 1:1 : the playbook is empty"]),
        ("# only a note\n", ["error 1:1 : the playbook is empty"]),
        (
            "- a",
            [
                "error 1:1 : a playbook must be a mapping with apiVersion, kind, "
                "metadata and workflow"
            ],
        ),
        (
            "a: b: c",
            [
                "error 1:5 : the YAML is broken: mapping values are not allowed in this context "
                "(quote text that holds ': ')"
            ],
        ),
        (
            "x: 1",
            [
                "error 1:1 apiVersion: 'apiVersion' is missing (write apiVersion: noetl.io/v2)",
                "error 1:1 kind: 'kind' is missing (write kind: Playbook)",
                "error 1:1 metadata: 'metadata' with a 'name' is missing",
                "error 1:1 workflow: 'workflow' with at least one step is missing",
            ],
        ),
        (
            "apiVersion: noetl.io/v1\nkind: playbok\nmetadata: {}\nworkflow: []",
            [
                "error 1:13 apiVersion: 'apiVersion' is 'noetl.io/v1' (did you mean "
                "'noetl.io/v10'?)",
                "error 2:7 kind: 'kind' is 'playbok' (did you mean 'Playbook'?)",
                "error 3:1 metadata.name: 'metadata.name' is missing",
                "error 4:11 workflow: 'workflow' needs at least one step",
            ],
        ),
        (
            "apiVersion: [1]\nkind: Zzz\nmetadata: [1]\nworkflow: {a: 1}\nworkload: 3",
            [
                "error 1:13 apiVersion: 'apiVersion' must be text (write apiVersion: noetl.io/v2)",
                "error 2:7 kind: 'kind' is 'Zzz' (write kind: Playbook)",
                "error 3:11 metadata: 'metadata' must be a mapping",
                "error 4:11 workflow: 'workflow' must be a list",
                "error 5:11 workload: 'workload' must be a mapping",
            ],
        ),
        (
            HEAD
            + "keychain: [{name: x}]\nworkbook: [{name: y}]\nvars: {a: 1}\nworkflow: [{step: a}]",
            [
                "error 4:12 keychain[0]: the keychain entry has no 'kind' "
                "(kinds are static, bearer, oauth2, credential, credential_ref, env)",
                "warning 6:1 vars: 'vars' at the root is ignored (use workload)",
            ],
        ),
        (HEAD + "keychain: []\nworkbook: null\nworkflow: [{step: a}]", []),
        (
            HEAD + "worklaod: {a: 1}\nworkflow: [{step: a}]",
            ["warning 4:1 worklaod: a playbook has no key 'worklaod' (did you mean 'workload'?)"],
        ),
        (
            HEAD + "executor: {spec: {entry_step: strat}}\nworkflow: [{step: start}]",
            [
                "error 4:31 executor.spec.entry_step: the entry step 'strat' does not exist "
                "(did you mean 'start'?)"
            ],
        ),
        (
            HEAD + "workload: {a: '{{ x | nope'}\nworkflow: [{step: start}]",
            [
                "warning 4:15 workload.a: the template is broken: "
                "unexpected end of template, expected 'end of print statement'."
            ],
        ),
        (
            HEAD + "workload: {a: 1, a: 2}\nworkflow: [{step: start}]",
            ["warning 4:18 : the key 'a' appears twice (the last one is used)"],
        ),
    ],
)
def test_the_document(text: str, expected: list[str]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (
            "[{step: start, next: fetsh}, {step: fetch}]",
            [
                "warning 4:32 workflow[0].next: the arc from 'start' leads to 'fetsh', "
                "which does not "
                "exist (did you mean 'fetch'?)",
                "warning 4:40 workflow[1]: the step 'fetch' is never reached from 'start'",
            ],
        ),
        (
            "[{step: start, next: {arcs: [{step: zzz}]}}]",
            [
                "warning 4:47 workflow[0].next.arcs[0].step: the arc from 'start' leads to "
                "'zzz', which does not exist (the arc is left out)"
            ],
        ),
        (
            "[{step: start, next: [a, q]}, {step: a}]",
            [
                "warning 4:36 workflow[0].next[1]: the arc from 'start' leads to 'q', "
                "which does not exist (the arc is left out)"
            ],
        ),
        ("[{step: start, next: end}]", []),
        (
            "[{step: start}, {step: start}]",
            ["error 4:34 workflow[1].step: the step 'start' is defined twice (first in line 4)"],
        ),
        ("[{step: start}, 5]", ["error 4:27 workflow[1]: a step must be a mapping"]),
        ("[{tool: null}]", ["error 4:12 workflow[0]: the step has no name"]),
        ("[{step: ''}]", ["error 4:19 workflow[0]: the step has no name"]),
        (
            "[{name: a}]",
            ["error 4:12 workflow[0]: the step has no name (write step: instead of name:)"],
        ),
    ],
)
def test_steps_and_arcs(steps: str, expected: list[str]) -> None:
    assert found(f"{HEAD}workflow: {steps}") == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "vars: [a]",
            ["error 6:11 workflow[0].vars: 'vars' must be a mapping"],
        ),
        (
            "case: [{when: x}]",
            [
                "error 6:5 workflow[0].case: 'case' is not part of this language "
                "(use next.arcs, or spec.policy.rules of the tool)"
            ],
        ),
        (
            "sink: {a: 1}",
            [
                "error 6:5 workflow[0].sink: 'sink' is not part of this language (add a "
                "task that saves the result)"
            ],
        ),
        (
            "retry: {a: 1}",
            [
                "error 6:5 workflow[0].retry: 'retry' is not part of this language "
                "(use spec.policy.rules of the tool with do: retry)"
            ],
        ),
        (
            "pagination: {a: 1}",
            [
                "error 6:5 workflow[0].pagination: 'pagination' is not part of this language "
                "(use arcs back to the step, or do: jump)"
            ],
        ),
        (
            "nexts: end",
            ["warning 6:5 workflow[0].nexts: a step has no key 'nexts' (did you mean 'next'?)"],
        ),
        ("whatever: 1", []),
        ("set: [1]", ["error 6:10 workflow[0].set: 'set' must be a mapping"]),
        (
            "set: {ctx..a: 1}",
            ["error 6:11 workflow[0].set: 'ctx..a' is not a name that can be set"],
        ),
        ("input: text", ["error 6:12 workflow[0].input: 'input' must be a mapping"]),
        ("spec: 5", ["error 6:11 workflow[0].spec: 'spec' must be a mapping"]),
        ("when: [1]", ["error 6:11 workflow[0].when: 'when' must be a template or a boolean"]),
        (
            "when: ctx.a > 3",
            [
                "warning 6:11 workflow[0].when: the condition is plain text and always true "
                '(write "{{ ctx.a > 3 }}")'
            ],
        ),
        ("when: 'false'", []),
        (
            "when: '{{ a b }}'",
            [
                "error 6:11 workflow[0].when: the template is broken: "
                "expected token 'end of print statement', got 'b'"
            ],
        ),
        (
            "set:\n      ctx.a: |\n        first\n        {{ x | lenght }}",
            [
                "error 9:1 workflow[0].set.ctx.a: the template is broken: "
                "there is no filter named 'lenght', did you mean 'length'?"
            ],
        ),
        ("next: {arcs: 5}", ["error 6:18 workflow[0].next.arcs: 'arcs' must be a list"]),
        (
            "next: {spec: {mode: inclusiv}, arcs: []}",
            [
                "error 6:25 workflow[0].next.spec.mode: unknown mode 'inclusiv' (did "
                "you mean 'inclusive'?)"
            ],
        ),
        (
            "next: {spec: {on_no_match: stop}, arcs: []}",
            [
                "warning 6:32 workflow[0].next.spec.on_no_match: unknown on_no_match 'stop' "
                "(use complete or quiet)"
            ],
        ),
        (
            "next: {arc: [end]}",
            ["warning 6:12 workflow[0].next.arc: a next has no key 'arc' (did you mean 'arcs'?)"],
        ),
        (
            "next: {arcs: [{stp: end}]}",
            [
                "error 6:19 workflow[0].next.arcs[0]: the arc has no 'step' (did you mean 'step'?)",
                "warning 6:20 workflow[0].next.arcs[0].stp: an arc has no key 'stp' "
                "(did you mean 'step'?)",
            ],
        ),
        ("next: [[end]]", ["error 6:12 workflow[0].next[0]: an arc must name a step"]),
        (
            "next: {arcs: [{step: end}, {step: end, when: '{{ x }}'}]}",
            [
                "warning 6:32 workflow[0].next.arcs[1]: the arc to 'end' is never taken: "
                "one before it always matches (put the arc without 'when' last)"
            ],
        ),
        (
            "spec: {policy: {admit: {rules: [{when: '{{ x }}', then: {allow: maybe}}]}}}",
            [
                "error 6:69 workflow[0].spec.policy.admit.rules[0].then: "
                "an admit rule needs 'allow: true' or false"
            ],
        ),
    ],
)
def test_inside_a_step(body: str, expected: list[str]) -> None:
    assert in_step(body) == expected


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            "{kind: pyton}",
            [
                "error 6:18 workflow[0].tool.kind: unknown tool kind 'pyton' (did you "
                "mean 'python'?)"
            ],
        ),
        (
            "{kind: zzz}",
            [
                "error 6:18 workflow[0].tool.kind: unknown tool kind 'zzz' "
                "(kinds are artifact, callback, duckdb, http, nats, noop, playbook, postgres, "
                "python, shell, spark, transfer, wait)"
            ],
        ),
        *(
            (
                f"{{kind: {kind}}}",
                [
                    f"error 6:18 workflow[0].tool.kind: the tool kind '{kind}' is not built in "
                    f"(install a package with an entry point '{kind}' in the group "
                    "'noetl_ray.tools')"
                ],
            )
            for kind in ("snowflake", "gcs", "container", "secrets")
        ),
        ("{kind: http}", ["warning 6:11 workflow[0].tool: a http task needs 'url' (or endpoint)"]),
        (
            "{kind: postgres, query: SELECT 1}",
            ["warning 6:11 workflow[0].tool: a postgres task needs 'auth' (or credential)"],
        ),
        (
            "{kind: transfer, source: {}}",
            ["warning 6:11 workflow[0].tool: a transfer task needs 'target'"],
        ),
        ("{kind: http, spec: {url: u}}", []),
        (
            "{code: x}",
            [
                "error 6:11 workflow[0].tool: the tool has no 'kind' (kinds are artifact, "
                "callback, duckdb, http, nats, noop, playbook, postgres, python, shell, spark, "
                "transfer, wait)"
            ],
        ),
        (
            "{one: {kind: noop}}",
            [
                "error 6:11 workflow[0].tool: the tool has no 'kind' "
                "(write tool: [{one: {kind: ...}}] or tool: {kind: ...})"
            ],
        ),
        (
            "python",
            [
                "error 6:11 workflow[0].tool: 'tool' must be a mapping or a list of tasks "
                "(write tool: {kind: python, ...})"
            ],
        ),
        ("[noop]", ["error 6:12 workflow[0].tool[0]: a task must be a mapping with a 'kind'"]),
        (
            "[{name: a, kind: noop}, {name: a, kind: noop}]",
            ["error 6:35 workflow[0].tool: the task label 'a' is used twice (first in line 6)"],
        ),
        (
            "{kind: http, url: u, parms: {a: 1}}",
            [
                "warning 6:32 workflow[0].tool.parms: a http task has no key 'parms' "
                "(did you mean 'params'?)"
            ],
        ),
        ("{kind: http, url: u, anything: 1}", []),
        (
            "{kind: noop, retry: {max: 3}}",
            [
                "error 6:24 workflow[0].tool.retry: 'retry' is not part of this language "
                "(use spec.policy.rules with do: retry)"
            ],
        ),
        (
            "{kind: noop, eval: [{do: fale}]}",
            [
                "error 6:36 workflow[0].tool.eval[0].do: unknown action 'fale' "
                "(did you mean 'fail'?)"
            ],
        ),
        (
            "{kind: noop, side_effects: maybe}",
            ["error 6:38 workflow[0].tool.side_effects: 'side_effects' must be true or false"],
        ),
        (
            "{kind: python, code: 'x = {{ y'}",
            [
                "error 6:32 workflow[0].tool.code: the template is broken: "
                "unexpected end of template, expected 'end of print statement'."
            ],
        ),
    ],
)
def test_tools(tool: str, expected: list[str]) -> None:
    assert in_tool(tool) == expected


RULES = "workflow[0].tool.spec.policy.rules"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (
            "[{when: true, then: {do: retri}}]",
            [f"error 8:55 {RULES}[0].then.do: unknown action 'retri' (did you mean 'retry'?)"],
        ),
        (
            "[{when: true, then: {do: xyz}}]",
            [
                f"error 8:55 {RULES}[0].then.do: unknown action 'xyz' "
                "(actions are continue, retry, jump, break, fail)"
            ],
        ),
        ("5", [f"error 8:30 {RULES}: 'rules' must be a list"]),
        ("[5]", [f"error 8:31 {RULES}[0]: a rule must be a mapping with 'when' and 'then'"]),
        ("[{when: true}]", [f"error 8:31 {RULES}[0]: the rule has no 'then'"]),
        (
            "[{when: true, thn: {do: fail}}]",
            [f"error 8:31 {RULES}[0]: the rule has no 'then' (did you mean 'then'?)"],
        ),
        ("[{else: 5}]", [f"error 8:38 {RULES}[0].else: 'else' must be a mapping"]),
        ("[{then: fail}]", [f"error 8:38 {RULES}[0].then: 'then' must be a mapping"]),
        (
            "[{then: {do: jump}}]",
            [f"error 8:38 {RULES}[0].then: 'jump' needs 'to', the label of a task"],
        ),
        (
            "[{then: {do: jump, to: start_tsk}}]",
            [
                "error 7:7 workflow[0].tool: 'jump' to 'start_tsk', which is no task of this step "
                "(did you mean 'start_task'?)"
            ],
        ),
        (
            "[{then: {do: retry, attempts: 0}}]",
            [f"error 8:60 {RULES}[0].then.attempts: 'attempts' must be at least 1"],
        ),
        (
            "[{then: {do: retry, backoff: linar}}]",
            [
                f"warning 8:59 {RULES}[0].then.backoff: unknown backoff 'linar' waits "
                f"the plain delay "
                "(did you mean 'linear'?)"
            ],
        ),
        (
            "[{else: {do: fail}}, {when: true, then: {do: continue}}]",
            [
                f"warning 8:51 {RULES}[1]: this rule is never looked at: "
                "the one before it always matches"
            ],
        ),
    ],
)
def test_policies(rules: str, expected: list[str]) -> None:
    assert in_rules(rules) == expected


def test_a_policy_with_misspelt_rules_is_noticed() -> None:
    assert in_step("tool: {kind: noop, spec: {policy: {rule: []}}}") == [
        "warning 6:40 workflow[0].tool.spec.policy.rule: a policy has no key 'rule' "
        "(did you mean 'rules'?)"
    ]


def test_too_many_findings_are_cut_with_errors_first() -> None:
    steps = "\n".join(f"  - {{step: s{n}, nexts: 1, tool: {{kind: zzz}}}}" for n in range(300))
    problems = check_playbook(f"{HEAD}workflow:\n{steps}\n")
    assert len(problems) == 200
    assert {problem.severity for problem in problems} == {"error"}
