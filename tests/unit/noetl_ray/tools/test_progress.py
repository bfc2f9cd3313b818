"""Progress of a pipeline: when it is told, what it holds, and going on from it (P18, P20)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl_ray.dsl.model import Rule, Step, Task
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.names import Names
from noetl_ray.errors import ToolError, VersionConflictError
from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.testing.simloop import SimClock, run_simulated
from noetl_ray.tools.locals import Progress
from noetl_ray.tools.noop import NoopTool
from noetl_ray.tools.outcome import PipelineOutcome
from noetl_ray.tools.pipeline import Pipeline
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.registry import ToolRegistry
from tests.unit.noetl_ray.tools.test_pipeline import (
    ON_ERROR,
    ActTool,
    _no_credential,
    http,
    noop,
    rule,
)

TEMPLATES = Templates()


class Run:
    """One pipeline over a tool, with what it recorded."""

    def __init__(self, *tasks: Task, tool: ActTool, **more: Any) -> None:
        self.step = Step(name="s", tasks=tasks)
        self.tool = tool
        self.told: list[Progress] = []
        self.ctx: dict[str, Any] = {}
        self.more = more
        self.refuse: Exception | None = None
        self.asked: list[str] = []

    def go(self, progress: Progress | None = None) -> PipelineOutcome:
        async def main(loop: Any) -> PipelineOutcome:
            registry = ToolRegistry(plugins=[])
            registry.register(NoopTool())
            registry.register(self.tool)
            self.ctx = {}
            names = Names(TEMPLATES, execution_id=7, workload={}, ctx=self.ctx, steps={}, env={})

            async def context_for(
                task: Any, attempt: int, turn: int, timeout: Any, _names: Any
            ) -> Any:
                self.asked.append(f"lease for {task.label}")
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

            async def record(told: Progress) -> None:
                if self.refuse is not None:
                    raise self.refuse
                self.told.append(told)

            return await Pipeline(
                self.step,
                names,
                self.ctx,
                registry=registry,
                templates=TEMPLATES,
                clock=SimClock(loop),
                context_for=context_for,
                record=record,
                progress=progress,
                **self.more,
            ).run()

        return run_simulated(1, main)  # type: ignore[no-any-return]

    def resumed(self, at: int) -> PipelineOutcome:
        """Go on from a record as another process reads it back."""
        told = self.told[at]
        plain = msgspec.json.decode(canonical_json(to_jsonable([told.values, told.scope])))
        self.tool.seen.clear()
        self.tool.contexts.clear()
        return self.go(
            Progress(
                task=told.task,
                ok=told.ok,
                index=told.index,
                attempt=told.attempt,
                runs=told.runs,
                turns=told.turns,
                values=plain[0],
                scope=plain[1],
            )
        )

    @property
    def ran(self) -> list[str]:
        return [context.idempotency_key for context in self.tool.contexts]


def test_p18_each_task_with_side_effects_is_told_before_the_next_and_the_last_is_not() -> None:
    run = Run(http("a"), http("b"), http("c"), tool=ActTool({"n": 1}, {"n": 2}, {"n": 3}))
    assert run.go().ok
    assert [(p.task, p.index, p.runs) for p in run.told] == [("a", 1, 1), ("b", 2, 2)]
    assert [sorted(p.changed) for p in run.told] == [["a"], ["b"]]


def test_p18_a_single_task_is_never_told() -> None:
    run = Run(http("a"), tool=ActTool({"n": 1}))
    assert run.go().ok
    assert run.told == []


def test_p20_what_has_no_side_effects_is_not_told_by_itself() -> None:
    tasks = (noop("a", 1), http("b", side_effects=False), http("c"), noop("d", 4))
    run = Run(*tasks, tool=ActTool({}, {}))
    assert run.go().ok
    assert [p.task for p in run.told] == ["c"]
    assert sorted(run.told[0].changed) == ["a", "b", "c"]
    forced = Run(noop("a", 1, side_effects=True), noop("b", 2), tool=ActTool())
    assert forced.go().ok
    assert [p.task for p in forced.told] == ["a"]


def test_p18_nothing_runs_after_a_record_that_was_refused() -> None:
    run = Run(http("a"), http("b"), tool=ActTool({}, {}))
    run.refuse = VersionConflictError("s", 1, 2)
    with pytest.raises(VersionConflictError):
        run.go()
    assert run.ran == ["a/1"]


def test_p18_going_on_gives_what_the_whole_run_gave() -> None:
    tasks = (
        http("a", set={"mine": "{{ output.n }}", "iter.i": "{{ output.n + 1 }}"}),
        http(
            "b",
            rule(None, "continue", set={"ctx.deep.er": "{{ output.data.n + mine }}"}),
            config={"url": "{{ a.n }} {{ _prev.n }} {{ output.http.status }} {{ results.a.n }}"},
        ),
        http("c", config={"url": "{{ b.n }} {{ mine }} {{ iter.i }} {{ ctx.deep.er }}"}),
    )
    run = Run(*tasks, tool=ActTool(*({"n": n} for n in (1, 2, 3))))
    whole = run.go()
    urls = [seen["url"] for seen in run.tool.seen[1:]]
    assert urls == ["1 1 200 1", "2 1 2 3"]
    for at, answers in ((0, [{"n": 2}, {"n": 3}]), (1, [{"n": 3}])):
        run.tool.acts = list(answers)
        again = run.resumed(at)
        assert [seen["url"] for seen in run.tool.seen] == urls[at:]
        assert (again.value, again.set, again.runs) == (whole.value, whole.set, whole.runs)
        assert run.ctx["deep"] == {"er": 3}
        assert run.ran == [f"{label}/{turn}" for label, turn in (("b", 2), ("c", 3))][at:]


def test_p18_a_failure_that_was_continued_is_told_with_its_error() -> None:
    bad = ToolError("no", "server_error", True, {"status_code": 500}, {"body": "why"})
    tasks = (
        http("a"),
        http("b", rule(ON_ERROR, "continue")),
        http("c", config={"url": "{{ output.error.status_code }} {{ output.body }} {{ _prev.n }}"}),
    )
    run = Run(*tasks, tool=ActTool({"n": 1}, bad, {}))
    assert run.go().ok
    assert [(p.task, p.ok, sorted(p.changed)) for p in run.told] == [
        ("a", True, ["a"]),
        ("b", False, []),
    ]
    assert run.tool.seen[-1]["url"] == "500 why 1"
    run.tool.acts = [{}]
    assert run.resumed(1).ok
    assert run.tool.seen[-1]["url"] == "500 why 1"


def test_p18_turns_back_are_told_each_time_and_retries_are_not() -> None:
    page = rule("{{ (iter.page | default(0)) < 2 }}", "jump", to="a")
    tasks = (
        http("a", Rule(when=ON_ERROR, do="retry", attempts=5, delay=1)),
        noop("b", {}, page, set={"iter.page": "{{ (iter.page | default(0)) + 1 }}"}),
    )
    no = ToolError("no", "server_error", True)
    run = Run(*tasks, tool=ActTool({"p": 1}, no, {"p": 2}, {"p": 3}))
    assert run.go().ok
    assert [(p.task, p.runs, p.turns) for p in run.told] == [("a", 1, 2), ("a", 4, 4)]
    assert run.ran == ["a/1", "a/3", "a/3"]
    assert [len(p.failed_attempts) for p in run.told] == [0, 1]


def test_p18_the_item_of_a_loop_is_not_told_again() -> None:
    names = {"iter": {"row": "x" * 1000, "index": 0}, "row": "x" * 1000}
    tasks = (http("a", set={"iter.seen": "{{ row | length }}"}), http("b"))
    run = Run(*tasks, tool=ActTool({}, {}), iteration=names)
    assert run.go().ok
    assert run.told[0].scope["iter"] == {"seen": 1000}


def test_p22_the_lease_is_asked_after_everything_that_waits() -> None:
    """The barrier reads a store, which may take longer than what is left of the lease."""

    async def adopt(task: Task) -> None:
        run.asked.append(f"barrier of {task.label}")

    run = Run(http("a"), tool=ActTool({"n": 1}), adopt=adopt)
    assert run.go().ok
    assert run.asked == ["barrier of a", "lease for a"]
