"""Runs the tasks of one step: render, tool, envelope, policy. It knows nothing of the log.

Owns the locals of section 6 (`output`, `_prev`, labels, `results`), the scopes of `set` (section 8)
and the order in which policy rules act. What a task printed, how results are stored and who is told
is the worker's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.model import Rule, Step, Task
from noetl_ray.engine.fold import assign
from noetl_ray.engine.names import Names, step_value
from noetl_ray.errors import LogError, NoetlError, TemplateError, ToolError
from noetl_ray.tools.business_object import BusinessObject, ObjectNotes
from noetl_ray.tools.keychain import Prepare, was_refused
from noetl_ray.tools.limits import after_retry_after
from noetl_ray.tools.port import ToolContext

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.dsl.template import Templates
    from noetl_ray.tools.registry import ToolRegistry

TASK_RUNS_MAX = 1_000_000
"""A pipeline that jumps for ever is ended here."""

WARNINGS_MAX = 20
_COERCED_KEYS = frozenset({"input", "args", "params", "payload", "json", "data", "form"})
_ENVELOPE_KEYS = ("http", "pg", "py")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A task run that a policy answered with a retry."""

    task: str
    attempt: int
    error: dict[str, Any]
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOutcome:
    """How a pipeline ended. ``set`` holds what its policies wrote to the execution's variables."""

    ok: bool
    value: Any
    error: dict[str, Any] | None = None
    set: dict[str, Any] = field(default_factory=dict)
    failed_attempts: tuple[FailedAttempt, ...] = ()
    runs: int = 0
    warnings: tuple[str, ...] = ()
    """Values of a `set` that could not be rendered and were left out (section 8)."""
    objects: tuple[BusinessObject, ...] = ()


ContextFactory = Callable[[Task, int, int, float | None, Mapping[str, Any]], Awaitable[ToolContext]]
"""``(task, attempt, run ordinal, timeout, names) -> ToolContext``.

Raises LogError to stop before an outside call.
"""


class Output(dict[str, Any]):
    """The envelope of section 6; a field it lacks is looked up in the task's own result."""

    def __missing__(self, key: str) -> Any:
        """Fall through to the result."""
        data = self.get("data")
        if key in ("response", "result"):
            return data
        if isinstance(data, dict) and key in data:
            return data[key]
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """Present when a lookup would find it."""
        if dict.__contains__(self, key) or key in ("response", "result"):
            return True
        data = dict.get(self, "data")
        return isinstance(data, dict) and key in data


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
    ) -> None:
        self._step = step
        self._ctx = ctx
        self._registry = registry
        self._templates = templates
        self._clock = clock
        self._context_for = context_for
        self._prepare = prepare
        self._names = names
        self._loop: Mapping[str, Any] = iteration or {}
        self._iter: dict[str, Any] = dict(self._loop.get("iter", {}))
        self._written: dict[str, Any] = {}
        self._labels: dict[str, Any] = {}
        self._own: dict[str, Any] = {}
        self._prev: Any = None
        self._output: Output | None = None
        self._given: dict[str, Any] = {}
        self._failed_attempts: list[FailedAttempt] = []
        self._warnings: list[str] = []
        self._objects = ObjectNotes()
        self._runs = 0

    async def run(self) -> PipelineOutcome:
        """Run to the end, a break or a failure."""
        tasks = self._step.tasks
        index = 0
        attempt = 1
        while index < len(tasks):
            if self._runs >= TASK_RUNS_MAX:
                return self._outcome(_error("unknown", f"more than {TASK_RUNS_MAX} task runs"))
            task = tasks[index]
            output = await self._run_task(task, attempt)
            try:
                rule = self._matching(task, output)
                action = rule.do if rule else ("fail" if output["error"] else "continue")
                if rule is not None:
                    self._apply_set(task, rule.set, output, coerce_output=False)
                if action == "retry" and rule is not None:
                    delay = self._retry_delay(rule, attempt)
                    if delay is None:
                        return self._outcome(
                            output["error"] or _error("unknown", "attempts used up")
                        )
                    self._note_retry(task, attempt, output, delay)
                    if delay > 0:
                        await self._clock.sleep(delay)
                    attempt += 1
                    continue
                following = self._target(index, rule) if rule and action == "jump" else index + 1
            except TemplateError as error:
                return self._outcome(_error("template", error.message, task=task.label))
            attempt = 1
            if action == "fail":
                failure = output["error"] or _error("unknown", "failed by policy", task=task.label)
                return self._outcome(failure)
            self._note_object(task, output)
            if action == "break":
                break
            index = following
        return self._outcome(None)

    async def _run_task(self, task: Task, attempt: int) -> Output:
        """One run of one task; an error becomes part of the envelope."""
        self._runs += 1
        started = self._clock.monotonic()
        data: Any = None
        error: dict[str, Any] | None = None
        meta: dict[str, Any] = {}
        meta_key = ""
        ref: dict[str, Any] | None = None
        self._given = {}
        try:
            tool = self._registry.get(task.kind)
            meta_key = tool.meta_key
            if self._prepare is not None:
                await self._prepare(
                    task, self._step, refused=attempt > 1 and was_refused(self._output)
                )
            locals_ = self._locals(task, attempt)
            config, timeout = self._render(task, locals_)
            names = self._names.with_locals(locals_)
            context = await self._context_for(task, attempt, self._runs, timeout, names)
            result = await tool.run(config, context)
            data, meta, ref = result.data, result.meta, result.ref
        except ToolError as failure:
            data = failure.data
            error = _tool_error(failure, task.label)
        except TemplateError as failure:
            error = _error("template", failure.message, task=task.label, template=failure.template)
        except LogError:
            # Whether this run may touch the world is not the playbook's business.
            raise
        except NoetlError as failure:
            error = _error(
                failure.code, failure.message, task=task.label, retryable=failure.retryable
            )
        except Exception as failure:
            # A tool that breaks its own contract fails its task; left alone it would be offered,
            # and act on the world, again and again.
            error = _error("unknown", f"{type(failure).__name__}: {failure}", task=task.label)
        output = Output(
            status="error" if error else "ok",
            data=data,
            error=error,
            ref=ref,
            meta={
                "attempt": attempt,
                "duration_ms": round((self._clock.monotonic() - started) * 1000, 3),
            },
        )
        for key in _ENVELOPE_KEYS:
            output[key] = meta if key == meta_key else {}
        if error and meta_key:
            output[meta_key] = dict(error)
        self._output = output
        if not error:
            self._prev = data
            self._labels[task.label] = step_value(data)
        if task.set:
            self._apply_set(task, task.set, output, coerce_output=True)
        return output

    def _render(self, task: Task, locals_: dict[str, Any]) -> tuple[dict[str, Any], float | None]:
        names = self._names.with_locals(locals_)
        given = self._templates.value({**task.input, **self._step.input}, names, coerce=True)
        self._given = given
        locals_.update(given)
        locals_["input"] = locals_["args"] = given
        text_keys = self._registry.get(task.kind).text_keys
        config: dict[str, Any] = {}
        for key, value in task.config.items():
            if key in text_keys:
                config[key] = self._text(value, names)
            else:
                config[key] = self._templates.value(value, names, coerce=key in _COERCED_KEYS)
        config["input"] = given
        raw = self._templates.value(task.timeout, names) if task.timeout is not None else None
        if raw is None and self._step.timeout is not None:
            raw = self._templates.value(self._step.timeout, names)
        try:
            timeout = float(raw) if raw not in (None, "") else None
        except (TypeError, ValueError):
            msg = f"timeout {raw!r} is not a number of seconds"
            raise TemplateError(msg, str(task.timeout)) from None
        return config, timeout

    def _text(self, value: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(value, str):
            return self._templates.text(value, names)
        if isinstance(value, list):
            return [self._text(item, names) for item in value]
        return value

    def _locals(self, task: Task, attempt: int) -> dict[str, Any]:
        locals_: dict[str, Any] = {
            **self._loop,
            **self._labels,
            **self._own,
            "results": self._labels,
            "_prev": self._prev,
            "_task": task.label,
            "_attempt": attempt,
        }
        if self._iter:
            locals_["iter"] = self._iter
        if self._output is not None:
            locals_["output"] = locals_["outcome"] = self._output
        return locals_

    def _after(self, task: Task, output: Output, shown: Any) -> Mapping[str, Any]:
        """What templates can name once a task has run; ``shown`` is what `output` means there."""
        locals_ = self._locals(task, output["meta"]["attempt"]) | self._given
        return self._names.with_locals(locals_ | {"output": shown, "outcome": shown})

    def _matching(self, task: Task, output: Output) -> Rule | None:
        if not task.rules:
            return None
        names = self._after(task, output, output)
        for rule in task.rules:
            if rule.when is None or self._templates.truth(rule.when, names):
                return rule
        return None

    def _apply_set(
        self, task: Task, wanted: Mapping[str, Any], output: Output, *, coerce_output: bool
    ) -> None:
        """Write a `set` of a rule or a task; all its values are rendered before any is written."""
        if not wanted:
            return
        shown: Any = step_value(output["data"]) if coerce_output else output
        names = self._after(task, output, shown)
        values: dict[str, Any] = {}
        for key, template in wanted.items():
            try:
                values[key] = self._templates.value(template, names, coerce=True)
            except TemplateError as error:
                self._warnings.append(f"set {key} of {task.label}: {error.message}"[:300])
        for key, value in values.items():
            scope, _, rest = key.partition(".")
            if scope == "iter" and rest:
                assign(self._iter, rest, value)
            elif coerce_output and not rest:
                self._own[key] = value
            else:
                plain = rest if scope in ("ctx", "step") and rest else key
                assign(self._ctx, plain, value)
                self._written[plain] = value

    def _note_object(self, task: Task, output: Output) -> None:
        """Keep what an accepted run says its result is about; `output` is that result."""
        if task.business_object is not None and not output["error"]:
            names = self._after(task, output, step_value(output["data"]))
            self._warnings += self._objects.note(task, self._templates, names)

    def _retry_delay(self, rule: Rule, attempt: int) -> float | None:
        """Seconds before the next run; None when the attempts are used up."""
        names = self._names.with_locals({"output": self._output, "outcome": self._output})
        attempts = self._number(rule.attempts, names, default=3)
        if attempt >= attempts:
            return None
        delay = self._number(rule.delay, names, default=0.0)
        match rule.backoff:
            case "none":
                delay = 0.0
            case "linear":
                delay *= attempt
            case "exponential":
                delay *= 2 ** (attempt - 1)
        return after_retry_after(delay, self._output["error"] if self._output else None)

    def _number(self, value: Any, names: Mapping[str, Any], *, default: float) -> float:
        if value is None:
            return default
        rendered = self._templates.value(value, names)
        try:
            return float(rendered)
        except (TypeError, ValueError):
            msg = f"{rendered!r} is not a number"
            raise TemplateError(msg, str(value)) from None

    def _note_retry(self, task: Task, attempt: int, output: Output, delay: float) -> None:
        self._failed_attempts.append(
            FailedAttempt(
                task=task.label,
                attempt=attempt,
                error=output["error"] or _error("unknown", "retried by policy"),
                delay_s=delay,
            )
        )

    def _target(self, index: int, rule: Rule) -> int:
        if rule.to in ("previous", "prev"):
            return max(index - 1, 0)
        for position, task in enumerate(self._step.tasks):
            if task.label == rule.to:
                return position
        msg = f"jump to {rule.to!r}: no such task in step {self._step.name!r}"
        raise TemplateError(msg, str(rule.to))

    def _outcome(self, error: dict[str, Any] | None) -> PipelineOutcome:
        value: Any
        if len(self._step.tasks) == 1:
            value = self._output["data"] if self._output else None
        else:
            last = self._prev if isinstance(self._prev, dict) else {}
            plain = {
                key: dict(item) if isinstance(item, dict) else item
                for key, item in self._labels.items()
            }
            value = {**plain, "results": plain, **last}
        if error is not None:
            error = {**error, "step": self._step.name}
        return PipelineOutcome(
            ok=error is None,
            value=value,
            error=error,
            set=self._written,
            failed_attempts=tuple(self._failed_attempts),
            runs=self._runs,
            warnings=tuple(self._warnings[-WARNINGS_MAX:]),
            objects=self._objects.kept,
        )


def _error(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "retryable": False, "code": kind, "message": message, **more}


def _tool_error(failure: ToolError, task: str) -> dict[str, Any]:
    return {
        "kind": failure.kind,
        "retryable": failure.retryable,
        "code": failure.details.get("code", failure.kind),
        "message": failure.message,
        "task": task,
        **failure.details,
    }
