"""One step's tasks: policies, scopes of `set`, locals, retries, results (language page 6, 8)."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.dsl.model import Rule, Step, Task
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.envelope import Output
from noetl_ray.engine.names import Names
from noetl_ray.errors import LogUnavailableError, NotFoundError, ToolError
from noetl_ray.testing.simloop import SimClock, run_simulated
from noetl_ray.tools import pipeline as module
from noetl_ray.tools.noop import NoopTool
from noetl_ray.tools.outcome import PipelineOutcome
from noetl_ray.tools.pipeline import Pipeline
from noetl_ray.tools.port import ToolContext, ToolResult
from noetl_ray.tools.registry import ToolRegistry

TEMPLATES = Templates()


class ActTool:
    """Does what each call's entry says: a value, an exception, or a function of the config."""

    kind = "http"
    side_effects = True
    meta_key = "http"
    text_keys = frozenset({"url"})

    def __init__(self, *acts: Any) -> None:
        self.acts = list(acts)
        self.seen: list[dict[str, Any]] = []
        self.contexts: list[ToolContext] = []

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        self.seen.append(config)
        self.contexts.append(context)
        act = self.acts.pop(0) if self.acts else config.get("value", {})
        if isinstance(act, Exception):
            raise act
        return ToolResult(data=act(config) if callable(act) else act, meta={"status": 200})

    async def close(self) -> None:
        """Nothing is held."""


def http(label: str = "t", *rules: Rule, **more: Any) -> Task:
    return Task(label=label, kind="http", config=more.pop("config", {}), rules=rules, **more)


def noop(label: str, result: Any, *rules: Rule, **more: Any) -> Task:
    return Task(label=label, kind="noop", config={"result": result}, rules=rules, **more)


def rule(when: Any = None, do: Any = "continue", **more: Any) -> Rule:
    return Rule(when=when, do=do, **more)


ON_ERROR = "{{ output.status == 'error' }}"


def run(
    *tasks: Task,
    tool: ActTool | None = None,
    ctx: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    refuse: Exception | None = None,
    **step: Any,
) -> tuple[PipelineOutcome, float]:
    """Run a pipeline in virtual time; its outcome and how long it took."""

    async def main(loop: Any) -> tuple[PipelineOutcome, float]:
        registry = ToolRegistry(plugins=[])
        registry.register(NoopTool())
        registry.register(tool or ActTool())
        bag = {} if ctx is None else ctx
        names = Names(TEMPLATES, execution_id=7, workload=workload or {}, ctx=bag, steps={}, env={})

        async def context_for(task: Any, attempt: int, turn: int, timeout: Any, seen: Any) -> Any:
            if refuse is not None:
                raise refuse
            return ToolContext(
                execution_id=7,
                step="s",
                task=task.label,
                attempt=attempt,
                idempotency_key=f"{task.label}/{turn}",
                timeout_s=timeout,
                credential=_no_credential,
                log=lambda _stream, _line: None,
            )

        made = Step(name="s", tasks=tasks, **step)
        pipeline = Pipeline(
            made,
            names,
            bag,
            registry=registry,
            templates=TEMPLATES,
            clock=SimClock(loop),
            context_for=context_for,
        )
        return await pipeline.run(), loop.time()

    return run_simulated(1, main)  # type: ignore[no-any-return]


async def _no_credential(name: str) -> Any:
    raise NotFoundError(name)


def failing(times: int, **more: Any) -> list[Any]:
    return [
        ToolError(f"no {i}", "server_error", True, {"status_code": 500, **more})
        for i in range(times)
    ]


# What a policy may do


def test_without_rules_success_goes_on_and_an_error_fails() -> None:
    ok, _ = run(noop("a", 1), noop("b", {"x": 2}))
    assert ok.ok
    assert ok.runs == 2
    bad, _ = run(http("a"), noop("b", 2), tool=ActTool(*failing(1)))
    assert not bad.ok
    assert bad.runs == 1
    assert bad.error["kind"] == "server_error"
    assert bad.error["status_code"] == 500
    assert (bad.error["step"], bad.error["task"]) == ("s", "a")


def test_the_first_matching_rule_wins_and_else_matches_where_it_stands() -> None:
    rules = (
        rule("{{ output.data.n > 5 }}", "fail"),
        rule(None, "break"),
        rule("{{ true }}", "fail"),
    )
    outcome, _ = run(noop("a", {"n": 3}, *rules), noop("b", {"never": 1}))
    assert outcome.ok
    assert "b" not in outcome.value


def test_rules_none_of_which_match_leave_the_default() -> None:
    never = rule("{{ false }}", "break")
    assert run(noop("a", 1, never), noop("b", 2))[0].runs == 2
    assert not run(http("a", never), tool=ActTool(*failing(1)))[0].ok


def test_continue_turns_an_error_into_success_and_keeps_prev() -> None:
    outcome, _ = run(
        noop("a", {"v": 1}),
        http("b", rule(ON_ERROR, "continue")),
        noop("c", "{{ _prev.v }}"),
        tool=ActTool(*failing(1)),
    )
    assert outcome.ok
    assert outcome.value["c"] == 1
    assert "b" not in outcome.value["results"]


def test_fail_turns_success_into_an_error() -> None:
    outcome, _ = run(noop("a", {"v": 1}, rule("{{ output.v == 1 }}", "fail")))
    assert not outcome.ok
    assert outcome.error == {
        "kind": "unknown",
        "retryable": False,
        "code": "unknown",
        "message": "failed by policy",
        "task": "a",
        "step": "s",
    }


def test_break_ends_the_pipeline_well_with_what_there_is() -> None:
    outcome, _ = run(noop("a", {"v": 1}, rule(None, "break")), noop("b", 2))
    assert outcome.ok
    assert outcome.value == {"a": {"v": 1}, "results": {"a": {"v": 1}}, "v": 1}


@pytest.mark.parametrize("to", ["a", "previous", "prev"])
def test_jump_goes_to_a_label_or_the_task_before(to: str) -> None:
    again = rule(
        "{{ iter.n | default(0) < 2 }}",
        "jump",
        to=to,
        set={"iter.n": "{{ (iter.n | default(0)) + 1 }}"},
    )
    outcome, _ = run(noop("a", 1), noop("b", 2, again))
    assert outcome.ok
    assert outcome.runs == 6


def test_jump_before_the_first_task_stays_at_the_first() -> None:
    again = rule("{{ iter.n is not defined }}", "jump", to="previous", set={"iter.n": 1})
    assert run(noop("a", 1, again))[0].runs == 2


def test_a_jump_to_nowhere_is_the_steps_failure_not_the_workers() -> None:
    outcome, _ = run(noop("a", 1, rule(None, "jump", to="gone")), noop("b", 2))
    assert not outcome.ok
    assert outcome.error["kind"] == "template"
    assert "'gone'" in outcome.error["message"]


def test_a_pipeline_that_jumps_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TASK_RUNS_MAX", 25)
    outcome, _ = run(noop("a", 1, rule(None, "jump", to="a")), noop("b", 2))
    assert not outcome.ok
    assert outcome.runs == 25
    assert "25 task runs" in outcome.error["message"]


# Retries


@pytest.mark.parametrize(
    ("backoff", "delay", "waited"),
    [
        (None, None, 0.0),
        ("none", 2, 0.0),
        (None, 2, 6.0),
        ("fixed", 2, 6.0),
        ("linear", 2, 12.0),
        ("exponential", 2, 14.0),
        ("exponential", "{{ workload.d }}", 3.5),
    ],
)
def test_backoff_says_how_long_a_retry_waits(backoff: Any, delay: Any, waited: float) -> None:
    retry = rule(ON_ERROR, "retry", attempts=4, backoff=backoff, delay=delay)
    outcome, took = run(http("a", retry), tool=ActTool(*failing(3), {"v": 1}), workload={"d": 0.5})
    assert outcome.ok
    assert outcome.value == {"v": 1}
    assert took == pytest.approx(waited)


def test_attempts_is_the_number_of_runs_and_each_failed_one_is_kept() -> None:
    retry = rule(ON_ERROR, "retry", attempts=3, delay=1)
    outcome, _ = run(http("a", retry), tool=ActTool(*failing(9)))
    assert not outcome.ok
    assert outcome.runs == 3
    assert outcome.error["message"] == "no 2"
    assert [(f.task, f.attempt, f.delay_s) for f in outcome.failed_attempts] == [
        ("a", 1, 1.0),
        ("a", 2, 1.0),
    ]
    assert outcome.failed_attempts[0].error["message"] == "no 0"


def test_attempts_default_to_three_and_may_be_a_template() -> None:
    assert run(http("a", rule(ON_ERROR, "retry")), tool=ActTool(*failing(9)))[0].runs == 3
    wanted = rule(ON_ERROR, "retry", attempts="{{ workload.n }}")
    outcome, _ = run(http("a", wanted), tool=ActTool(*failing(9)), workload={"n": 5})
    assert outcome.runs == 5


def test_a_retry_of_success_that_never_suffices_fails() -> None:
    outcome, _ = run(noop("a", 1, rule(None, "retry", attempts=2)))
    assert not outcome.ok
    assert outcome.runs == 2
    assert outcome.error["message"] == "attempts used up"


def test_counters_start_anew_after_an_outcome_that_is_no_retry() -> None:
    retry = rule(ON_ERROR, "retry", attempts=2)
    more = rule("{{ output.data.page < 3 }}", "jump", to="a")
    first = failing(1)[0]
    tool = ActTool(first, {"page": 1}, first, {"page": 2}, first, {"page": 3})
    outcome, _ = run(http("a", retry, more), tool=tool)
    assert outcome.ok
    assert [c.attempt for c in tool.contexts] == [1, 2, 1, 2, 1, 2]


def test_the_idempotency_key_is_the_same_over_attempts_and_another_after_a_jump() -> None:
    retry = rule(ON_ERROR, "retry", attempts=2)
    more = rule("{{ output.data.page < 2 }}", "jump", to="a")
    tool = ActTool(failing(1)[0], {"page": 1}, {"page": 2})
    run(http("a", retry, more), tool=tool)
    keys = [c.idempotency_key for c in tool.contexts]
    assert keys[0] == keys[1] != keys[2]


def test_a_number_that_is_none_fails_the_step() -> None:
    retry = rule(ON_ERROR, "retry", attempts="{{ 'many' }}")
    outcome, _ = run(http("a", retry), tool=ActTool(*failing(2)))
    assert outcome.error["kind"] == "template"
    assert "'many' is not a number" in outcome.error["message"]


# Scopes of `set`


def test_a_rule_writes_variables_that_are_seen_at_once_and_leave_with_the_outcome() -> None:
    ctx: dict[str, Any] = {"old": 1}
    sets = {"ctx.a.b": "{{ output.v }}", "bare": 2, "step.c": 3, "iter.mine": 4}
    outcome, _ = run(
        noop("one", {"v": 9}, rule(None, "continue", set=sets)),
        noop("two", "{{ ctx.a.b }}-{{ bare }}-{{ c }}-{{ iter.mine }}"),
        ctx=ctx,
    )
    assert outcome.value["two"] == "9-2-3-4"
    assert outcome.set == {"a.b": 9, "bare": 2, "c": 3}
    assert ctx == {"old": 1, "a": {"b": 9}, "bare": 2, "c": 3}


def test_all_values_of_one_set_see_the_state_before_it() -> None:
    swap = {"ctx.a": "{{ ctx.b }}", "ctx.b": "{{ ctx.a }}"}
    outcome, _ = run(noop("t", 1, rule(None, "continue", set=swap)), ctx={"a": 1, "b": 2})
    assert outcome.set == {"a": 2, "b": 1}


@pytest.mark.parametrize("do", ["break", "fail", "continue"])
def test_what_was_set_is_written_on_every_way_out(do: str) -> None:
    outcome, _ = run(noop("t", 1, rule(None, do, set={"ctx.k": 5})), noop("u", 2))
    assert outcome.set == {"k": 5}


def test_a_task_level_set_means_the_result_and_bare_keys_stay_in_the_pipeline() -> None:
    outcome, _ = run(
        noop("a", {"v": 1}, set={"whole": "{{ output }}", "ctx.v": "{{ output.v }}"}),
        noop("b", "{{ whole.v }}"),
    )
    assert outcome.value["b"] == 1
    assert outcome.set == {"v": 1}


def test_a_value_that_cannot_be_rendered_is_left_out_and_said() -> None:
    """Section 8: the others still apply."""
    broken = {"ctx.bad": "{{ 1 // 0 }}", "ctx.good": 1}
    for task in (noop("t", 1, set=broken), noop("t", 1, rule(None, "continue", set=broken))):
        outcome, _ = run(task)
        assert outcome.ok
        assert outcome.set == {"good": 1}
        assert outcome.warnings[0].startswith("set ctx.bad of t: ")


def test_rules_and_sets_see_the_label_and_input_of_their_own_task() -> None:
    wanted = {"ctx.at": "{{ _task }}", "ctx.mine": "{{ size }}"}
    outcome, _ = run(
        noop("one", 1),
        noop("two", 2, rule("{{ size == 3 }}", "continue", set=wanted), input={"size": 3}),
    )
    assert outcome.set == {"at": "two", "mine": 3}


# Names in templates


def test_output_in_a_later_task_is_the_envelope_of_the_one_before() -> None:
    outcome, _ = run(
        noop("a", {"v": 1}),
        noop("b", "{{ output.status }} {{ output.data.v }} {{ output.v }} {{ output.response.v }}"),
        noop("c", "{{ a.v }} {{ results.a.v }} {{ a.data.v }} {{ _task }} {{ _attempt }}"),
    )
    assert outcome.value["b"] == "ok 1 1 1"
    assert outcome.value["c"] == "1 1 1 c 1"


def test_input_is_rendered_given_to_the_tool_and_visible_as_names() -> None:
    tool = ActTool()
    task = http(
        input={"n": "{{ workload.n + 1 }}", "m": 1},
        config={"url": "u/{{ n }}", "value": {"m": "{{ m }}", "all": "{{ input.n }}"}},
    )
    outcome, _ = run(task, tool=tool, workload={"n": 1}, input={"m": "{{ 'step wins' }}"})
    assert tool.seen[0]["url"] == "u/2"
    assert tool.seen[0]["input"] == {"n": 2, "m": "step wins"}
    assert outcome.value == {"m": "step wins", "all": 2}


def test_mixed_text_becomes_data_in_input_and_params_only() -> None:
    tool = ActTool()
    mixed = "[{{ workload.n }}]"
    run(
        http(config={"url": "{{ workload.n }}", "json": mixed, "params": {"q": mixed}}),
        tool=tool,
        workload={"n": 12},
    )
    assert tool.seen[0]["url"] == "12"
    assert tool.seen[0]["json"] == "[12]"
    assert tool.seen[0]["params"] == {"q": [12]}


def test_the_envelope_of_an_error_shows_its_fields_where_rules_look() -> None:
    seen = (
        "{{ output.error.status_code == 500 and output.http.status_code == 500 and not output.pg }}"
    )
    outcome, _ = run(http("a", rule(seen, "break")), tool=ActTool(*failing(1)))
    assert outcome.ok


def test_output_knows_what_it_contains() -> None:
    output = Output(status="ok", data={"x": 1})
    assert "x" in output
    assert "response" in output
    assert "y" not in output
    assert output["result"] == {"x": 1}
    with pytest.raises(KeyError):
        output["y"]
    assert "x" not in Output(data=[1])


# Failures of rendering, of tools and of the log


def test_a_template_that_breaks_is_an_error_rules_can_answer() -> None:
    broken = Task(label="a", kind="noop", config={"result": "{{ 1 // 0 }}"})
    outcome, _ = run(broken)
    assert outcome.error["kind"] == "template"
    assert outcome.error["template"] == "{{ 1 // 0 }}"
    forgiving = Task(
        label="a", kind="noop", config=broken.config, rules=(rule(ON_ERROR, "continue"),)
    )
    assert run(forgiving)[0].ok


def test_a_condition_that_breaks_fails_the_step() -> None:
    outcome, _ = run(noop("a", 1, rule("{{ 1 // 0 }}", "continue")))
    assert outcome.error["kind"] == "template"
    assert outcome.error["task"] == "a"


@pytest.mark.parametrize(
    ("task", "step", "expected"),
    [
        (2, None, 2.0),
        ("{{ workload.t }}", 9, 4.0),
        (None, 9, 9.0),
        (None, None, None),
        ("", 9, None),
    ],
)
def test_a_timeout_is_the_tasks_own_else_the_steps(task: Any, step: Any, expected: Any) -> None:
    tool = ActTool()
    run(http(timeout=task), tool=tool, workload={"t": "4"}, timeout=step)
    assert tool.contexts[0].timeout_s == expected


def test_a_timeout_that_is_no_number_is_said() -> None:
    outcome, _ = run(noop("a", 1, timeout="{{ 'soon' }}"))
    assert "timeout 'soon' is not a number of seconds" in outcome.error["message"]


def test_a_kind_this_worker_lacks_fails_the_step_and_nothing_else() -> None:
    outcome, _ = run(Task(label="a", kind="htpp", config={}))
    assert outcome.error["kind"] == "schema"
    assert "did you mean 'http'" in outcome.error["message"]


def test_a_tool_that_breaks_its_contract_fails_its_task() -> None:
    outcome, _ = run(http("a"), tool=ActTool(ValueError("oops")))
    assert outcome.error["kind"] == "unknown"
    assert outcome.error["message"] == "ValueError: oops"
    missing, _ = run(http("a"), tool=ActTool(NotFoundError("no credential 'x'")))
    assert missing.error["kind"] == "not_found"


def test_p22_a_log_that_forbids_the_call_is_no_failure_of_the_step() -> None:
    tool = ActTool()
    with pytest.raises(LogUnavailableError):
        run(http("a", rule(ON_ERROR, "continue")), tool=tool, refuse=LogUnavailableError("down"))
    assert tool.seen == []


# Results


def test_one_task_gives_its_result_several_give_every_label_and_the_last_on_top() -> None:
    assert run(noop("a", [1, 2]))[0].value == [1, 2]
    outcome, _ = run(noop("a", {"x": 1, "y": 1}), noop("b", {"y": 2, "results": "mine"}))
    assert outcome.value == {
        "a": {"x": 1, "y": 1},
        "b": {"y": 2, "results": "mine"},
        "y": 2,
        "results": "mine",
    }
    plain, _ = run(noop("a", {"x": 1}), noop("b", 5))
    assert plain.value == {"a": {"x": 1}, "b": 5, "results": {"a": {"x": 1}, "b": 5}}


def test_a_failed_task_keeps_the_payload_its_tool_had() -> None:
    error = ToolError("no", "client_error", False, {}, {"status_code": 404})
    outcome, _ = run(http("a", rule(ON_ERROR, "continue")), tool=ActTool(error))
    assert outcome.ok
    assert outcome.value == {"status_code": 404}
