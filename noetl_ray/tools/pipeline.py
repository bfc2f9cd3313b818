"""Runs the tasks of one step: render, tool, envelope, policy. It knows nothing of the log.

Owns the order in which tasks run and policy rules act. Before a task follows one that has side
effects, `record` is told where the pipeline stands (P18); a pipeline made with such a `Progress`
goes on from there. How that is stored, what a task printed and who is told is the worker's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.language import CALLBACK
from noetl_ray.engine.envelope import Output, shown
from noetl_ray.errors import LogError, NoetlError, TemplateError, ToolError
from noetl_ray.tools.keychain import Prepare, was_refused
from noetl_ray.tools.limits import after_retry_after
from noetl_ray.tools.locals import Locals, Progress
from noetl_ray.tools.outcome import FailedAttempt, PipelineOutcome, error_of, tool_error
from noetl_ray.tools.port import Parked, ToolContext, ToolResult
from noetl_ray.tools.rendering import rendered
from noetl_ray.tools.waiting import PARK_S, RETRY, TIMER, Asking, settled, time_over

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.dsl.model import Rule, Step, Task
    from noetl_ray.dsl.template import Templates
    from noetl_ray.engine.names import Names
    from noetl_ray.tools.meter import TaskMeter
    from noetl_ray.tools.port import Tool
    from noetl_ray.tools.registry import ToolRegistry

TASK_RUNS_MAX = 1_000_000
"""A pipeline that jumps for ever is ended here."""

_ENVELOPE_KEYS = ("http", "pg", "py")


ContextFactory = Callable[
    ["Task", int, int, float | None, Mapping[str, Any]], Awaitable[ToolContext]
]
"""``(task, attempt, turn, timeout, names) -> ToolContext``.

A turn is one visit of a task, however many attempts it takes. Raises LogError to stop before an
outside call.
"""

Adopt = Callable[["Task"], Awaitable[tuple[Any] | None]]
"""What a task gave an earlier holder, in a tuple; None when it has to run."""

Recorder = Callable[[Progress], Awaitable[None]]
"""Makes a pipeline's progress durable; raises LogError when the command is no longer ours."""


class Pipeline:
    """One run of a step's tasks."""

    def __init__(
        self,
        step: Step,
        names: Names,
        ctx: dict[str, Any],
        *,
        registry: ToolRegistry,
        templates: Templates,
        clock: Clock,
        context_for: ContextFactory,
        iteration: Mapping[str, Any] | None = None,
        prepare: Prepare | None = None,
        record: Recorder | None = None,
        progress: Progress | None = None,
        meter: TaskMeter | None = None,
        adopt: Adopt | None = None,
        answer: ToolResult | ToolError | None = None,
        parks: bool = False,
        asking: Asking | None = None,
    ) -> None:
        self._adopt = adopt
        self._parks = parks
        self._answer = answer
        self._step = step
        self._registry = registry
        self._templates = templates
        self._clock = clock
        self._context_for = context_for
        self._prepare = prepare
        self._record = record
        self._meter = meter
        self._locals = Locals(names, ctx, templates, iteration, step, asking)
        self._failed_attempts: list[FailedAttempt] = []
        self._index = 0
        self._attempt = 1
        self._runs = 0
        self._turns = 1
        if progress is not None:
            self._locals.restore(progress)
            self._index = progress.index
            self._attempt = progress.attempt
            self._runs = progress.runs
            self._turns = progress.turns

    async def run(self) -> PipelineOutcome:
        """Run to the end, a break or a failure.

        Raises:
            Parked: a task waits for something; its progress says where to go on with the answer.
        """
        tasks = self._step.tasks
        while self._index < len(tasks):
            if self._runs >= TASK_RUNS_MAX:
                return self._outcome(error_of("unknown", f"more than {TASK_RUNS_MAX} task runs"))
            task = tasks[self._index]
            output = await self._run_task(task)
            try:
                rule = self._matching(task, output)
                action = rule.do if rule else ("fail" if output["error"] else "continue")
                if rule is not None:
                    self._locals.apply_set(task, rule.set, output, by_task=False)
                if action == "retry" and rule is not None:
                    if not await self._retried(task, rule, output):
                        failure = output["error"] or error_of("unknown", "attempts used up")
                        return self._outcome(failure)
                    continue
                jumps = rule is not None and action == "jump"
                following = self._target(rule) if rule and jumps else self._index + 1
            except TemplateError as error:
                return self._outcome(error_of("template", error.message, task=task.label))
            if action == "fail":
                failure = output["error"] or error_of(
                    "unknown", "failed by policy", task=task.label
                )
                return self._outcome(failure)
            self._locals.note_object(task, output)
            if action == "break":
                break
            await self._go_on(task, following)
        return self._outcome(None)

    async def _go_on(self, task: Task, following: int) -> None:
        """To the next task; where one had side effects, not before that is recorded (P18)."""
        self._index, self._attempt = following, 1
        self._turns += 1
        if self._record is None or following >= len(self._step.tasks):
            # After the last task the completion follows at once.
            return
        if self._has_side_effects(task):
            await self._record(self._progress())

    def _has_side_effects(self, task: Task) -> bool:
        """What the task says of itself, else what its kind says (P20)."""
        if task.side_effects is not None:
            return task.side_effects
        try:
            return self._registry.side_effects(task.kind)
        except ToolError:
            # There is no such tool, so nothing has happened.
            return False

    def _progress(self, task: str | None = None) -> Progress:
        made = self._locals.progress(
            task=task,
            index=self._index,
            attempt=self._attempt,
            runs=self._runs,
            turns=self._turns,
            failed_attempts=tuple(self._failed_attempts),
        )
        self._failed_attempts = []
        return made

    async def _retried(self, task: Task, rule: Rule, output: Output) -> bool:
        """Wait for the next attempt; False when there is none left."""
        delay = self._retry_delay(rule)
        if delay is None:
            return False
        self._failed_attempts.append(
            FailedAttempt(
                task=task.label,
                attempt=self._attempt,
                error=output["error"] or error_of("unknown", "retried by policy"),
                delay_s=delay,
            )
        )
        self._attempt += 1
        if self._parks and delay > PARK_S:
            asked = {"kind": RETRY, "after_s": delay}
            raise self._parked(task, settled(asked, task.label, self._clock.now_ms()))
        if delay > 0:
            await self._clock.sleep(delay)
        return True

    def _parked(self, task: Task, wait: dict[str, Any]) -> Parked:
        """The pipeline lets go here, and goes on from here."""
        parked = Parked(wait)
        parked.progress = self._progress(task.label)
        return parked

    async def _stand_by(self, task: Task, wait: dict[str, Any]) -> ToolResult:
        """Let go until what a tool waits for has come; a short time passes here."""
        kind = wait["kind"]
        if kind in (TIMER, CALLBACK):
            key = self._locals.callback_key(task) if kind == CALLBACK else ""
            if key is None:
                msg = "a frame cannot wait for an answer: it holds its worker"
                raise ToolError(msg, "schema")
            now = self._clock.now_ms()
            wait = settled(wait, task.label, now, key)
            span = (wait["until_ms"] - now) / 1000
            if kind == TIMER and (span <= PARK_S or not self._parks):
                await self._clock.sleep(max(span, 0.0))
                return time_over(wait)
        self._runs -= 1
        raise self._parked(task, wait)

    async def _run_task(self, task: Task) -> Output:
        """One run of one task; an error becomes part of the envelope."""
        self._runs += 1
        started = acting = self._clock.monotonic()
        data: Any = None
        error: dict[str, Any] | None = None
        meta: dict[str, Any] = {}
        meta_key = ""
        ref: dict[str, Any] | None = None
        self._locals.given = {}
        try:
            tool = self._registry.get(task.kind)
            meta_key = tool.meta_key
            if self._prepare is not None:
                refused = self._attempt > 1 and was_refused(self._locals.output)
                await self._prepare(task, self._step, refused=refused)
            locals_ = self._locals.of(task, self._attempt)
            names = self._locals.names(locals_)
            config, timeout = self._render(task, locals_, names)
            result = self._answered() or await self._adopted(task)
            if result is None:
                # Last before the call, and after anything that waits: it asks for the lease (P22).
                context = await self._context_for(task, self._attempt, self._turns, timeout, names)
                acting = self._clock.monotonic()
                result = await self._run_tool(tool, task, config, context)
            data, meta, ref = result.data, result.meta, result.ref
        except Parked:
            raise
        except ToolError as failure:
            data = failure.data
            error = tool_error(failure, task.label)
        except TemplateError as failure:
            error = error_of(
                "template", failure.message, task=task.label, template=failure.template
            )
        except LogError:
            # Whether this run may touch the world is not the playbook's business.
            raise
        except NoetlError as failure:
            error = error_of(
                failure.code, failure.message, task=task.label, retryable=failure.retryable
            )
        except Exception as failure:
            # A tool that breaks its own contract fails its task; left alone it would be offered,
            # and act on the world, again and again.
            error = error_of("unknown", f"{type(failure).__name__}: {failure}", task=task.label)
        ended = self._clock.monotonic()
        if self._meter is not None:
            self._meter.note(task, acting - started, ended - acting, failed=error is not None)
        output = Output(
            status="error" if error else "ok",
            data=data,
            error=error,
            ref=ref,
            meta={
                "attempt": self._attempt,
                "duration_ms": round((ended - started) * 1000, 3),
            },
        )
        for key in _ENVELOPE_KEYS:
            output[key] = meta if key == meta_key else {}
        if error and meta_key:
            output[meta_key] = dict(error)
        self._locals.note(task, output)
        self._locals.apply_set(task, task.set, output, by_task=True)
        return output

    async def _run_tool(
        self, tool: Tool, task: Task, config: dict[str, Any], context: ToolContext
    ) -> ToolResult:
        try:
            return await tool.run(config, context)
        except Parked as parked:
            return await self._stand_by(task, parked.wait)

    def _answered(self) -> ToolResult | None:
        """What the task that parked waited for, when its pipeline goes on with it."""
        answer, self._answer = self._answer, None
        if answer is None:
            return None
        if isinstance(answer, ToolError):
            raise answer
        return answer

    async def _adopted(self, task: Task) -> ToolResult | None:
        """What an earlier holder's run gave, for the one task of this run that may have had one.

        Every task with side effects is recorded before the next begins, so only the first of a
        later holder can be in doubt.
        """
        if self._adopt is None or not self._has_side_effects(task):
            return None
        adopt, self._adopt = self._adopt, None
        found = await adopt(task)
        return None if found is None else ToolResult(data=found[0])

    def _render(
        self, task: Task, locals_: dict[str, Any], names: Names
    ) -> tuple[dict[str, Any], float | None]:
        """The task's config and time limit; ``locals_``, which ``names`` show, get its input."""
        wanted = {**task.input, **self._step.input}
        given = self._templates.value(wanted, names, coerce=True) if wanted else {}
        self._locals.take(locals_, given)
        text_keys = self._registry.get(task.kind).text_keys
        return rendered(task, self._step, given, text_keys, self._templates, names)

    def _matching(self, task: Task, output: Output) -> Rule | None:
        if not task.rules:
            return None
        names = self._locals.judging(task, output, shown(output))
        for rule in task.rules:
            if rule.when is None or self._templates.truth(rule.when, names):
                return rule
        return None

    def _retry_delay(self, rule: Rule) -> float | None:
        """Seconds before the next run; None when the attempts are used up."""
        output = self._locals.output
        names = self._locals.names({"output": output, "outcome": output})
        attempts = self._number(rule.attempts, names, default=3)
        if self._attempt >= attempts:
            return None
        delay = self._number(rule.delay, names, default=0.0)
        match rule.backoff:
            case "none":
                delay = 0.0
            case "linear":
                delay *= self._attempt
            case "exponential":
                delay *= 2 ** (self._attempt - 1)
        return after_retry_after(delay, output["error"] if output else None)

    def _number(self, value: Any, names: Mapping[str, Any], *, default: float) -> float:
        if value is None:
            return default
        rendered = self._templates.value(value, names)
        try:
            return float(rendered)
        except (TypeError, ValueError):
            msg = f"{rendered!r} is not a number"
            raise TemplateError(msg, str(value)) from None

    def _target(self, rule: Rule) -> int:
        if rule.to in ("previous", "prev"):
            return max(self._index - 1, 0)
        for position, task in enumerate(self._step.tasks):
            if task.label == rule.to:
                return position
        msg = f"jump to {rule.to!r}: no such task in step {self._step.name!r}"
        raise TemplateError(msg, str(rule.to))

    def _outcome(self, error: dict[str, Any] | None) -> PipelineOutcome:
        found = self._locals
        if error is not None:
            error = {**error, "step": self._step.name}
        return PipelineOutcome(
            ok=error is None,
            value=found.so_far(),
            error=error,
            set=found.written,
            failed_attempts=tuple(self._failed_attempts),
            runs=self._runs,
            warnings=found.warnings,
            objects=found.objects,
        )
