"""The names of one pipeline run: labels, `_prev`, `output`, `iter` and what its `set`s wrote.

Owns the locals of section 6, the scopes of `set` (section 8), and their form between two tasks, so
that another worker can go on from there (P18). Which task runs when is the pipeline's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.dsl.language import CALLBACK
from noetl_ray.engine.envelope import Output, of_task, shown, without_envelope
from noetl_ray.engine.names import Names, step_value
from noetl_ray.engine.variables import assign, assign_variable
from noetl_ray.errors import TemplateError
from noetl_ray.tools.business_object import BusinessObject, ObjectNotes
from noetl_ray.tools.outcome import FailedAttempt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.dsl.model import Step, Task
    from noetl_ray.dsl.template import Templates
    from noetl_ray.tools.waiting import Asking

WARNINGS_MAX = 20
_PIPELINE_NAMES = frozenset(
    {
        "output",
        "outcome",
        "_prev",
        "_task",
        "_attempt",
        "results",
        "event",
        "frame",
        "input",
        "args",
    }
)
"""What comes before the keys of a task's `input` (section 2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a pipeline stands between two tasks; all of it has a JSON form."""

    task: str
    """The task that ran last."""
    ok: bool
    index: int
    """Which task comes next."""
    attempt: int
    runs: int
    turns: int
    values: dict[str, Any]
    """Results by label."""
    scope: dict[str, Any]
    """What else later templates can read: `written`, `iter`, `own`, `prev`, `output`; warnings."""
    changed: frozenset[str] = frozenset()
    """Labels whose value is new since the progress before this one."""
    failed_attempts: tuple[FailedAttempt, ...] = field(default=(), repr=False)


class Locals:
    """What the tasks of one pipeline run can name beside everything else."""

    def __init__(
        self,
        names: Names,
        ctx: dict[str, Any],
        templates: Templates,
        iteration: Mapping[str, Any] | None,
        step: Step,
        asking: Asking | None = None,
    ) -> None:
        self._step = step
        self._asking = asking
        self._rounds: dict[str, int] = {}
        """How often each callback was waited for."""
        self._names = names
        self._ctx = ctx
        self._templates = templates
        self._loop: Mapping[str, Any] = iteration or {}
        self._iter: dict[str, Any] = dict(self._loop.get("iter", {}))
        self._labels: dict[str, Any] = {}
        self._own: dict[str, Any] = {}
        self._prev: str | None = None
        self._output_task = ""
        self._changed: set[str] = set()
        self._warnings: list[str] = []
        self._objects = ObjectNotes()
        self.values: dict[str, Any] = {}
        self.written: dict[str, Any] = {}
        self.output: Output | None = None
        self.given: dict[str, Any] = {}
        """What the current task's `input` rendered to."""

    @property
    def prev(self) -> Any:
        """The result of the last task that succeeded."""
        return None if self._prev is None else self.values[self._prev]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The newest warnings about values that could not be rendered."""
        return tuple(self._warnings[-WARNINGS_MAX:])

    def names(self, locals_: Mapping[str, Any]) -> Names:
        """All names, with these in front."""
        return self._names.with_locals(locals_)

    def of(self, task: Task, attempt: int) -> dict[str, Any]:
        """The locals a task's templates see."""
        locals_: dict[str, Any] = {
            **({self._step.name: step_value(self.so_far())} if self.values else {}),
            **self._loop,
            **self._labels,
            **self._own,
            "results": self._labels,
            "_prev": self.prev,
            "_task": task.label,
            "_attempt": attempt,
        }
        if self._iter:
            locals_["iter"] = self._iter
        if self._asking is not None:
            locals_[CALLBACK] = self._asking.names(task.label, self._rounds)
        if self.output is not None:
            locals_["output"] = locals_["outcome"] = shown(self.output)
        return locals_

    def take(self, locals_: dict[str, Any], given: dict[str, Any]) -> None:
        """Name the current task's input: by its keys, as `input` and, with an arc's, as `args`."""
        self.given = given
        from_arc = self._ctx.get("args")
        for key, value in given.items():
            if key not in _PIPELINE_NAMES or key not in locals_:
                locals_[key] = value
        locals_["input"] = given
        locals_["args"] = {**from_arc, **given} if isinstance(from_arc, dict) else given

    def so_far(self) -> Any:
        """The result of the step, were it to end now."""
        if not self._step.tasks:
            return {}
        if len(self._step.tasks) == 1:
            return self.output["data"] if self.output else None
        last = self.prev if isinstance(self.prev, dict) else {}
        plain = {
            key: dict(item) if isinstance(item, dict) else item for key, item in self.values.items()
        }
        return {**plain, "results": plain, **last}

    def judging(self, task: Task, output: Output, seen: Any) -> Names:
        """The names a task's rules and `set` see, once it has run."""
        locals_ = self.of(task, output["meta"]["attempt"])
        self.take(locals_, self.given)
        return self.names(locals_ | {"output": seen, "outcome": seen})

    def note(self, task: Task, output: Output) -> None:
        """A task has run; a failed one leaves its label and `_prev` as they were."""
        self.output = output
        self._output_task = task.label
        if task.kind == CALLBACK:
            self._rounds[task.label] = self._rounds.get(task.label, 0) + 1
        if not output["error"]:
            self._prev = task.label
            self._keep(task.label, output["data"])

    def callback_key(self, task: Task) -> str | None:
        """The digest of the token that answers a task now; None where it cannot be answered."""
        if self._asking is None:
            return None
        return self._asking.key(self._asking.token(task.label, self._rounds.get(task.label, 0)))

    def _keep(self, label: str, value: Any) -> None:
        self.values[label] = value
        self._labels[label] = step_value(value)
        self._changed.add(label)

    def apply_set(
        self, task: Task, wanted: Mapping[str, Any], output: Output, *, by_task: bool
    ) -> None:
        """Write a `set` of a rule or a task; all its values are rendered before any is written."""
        if not wanted:
            return
        names = self.judging(task, output, of_task(shown(output)) if by_task else shown(output))
        values: dict[str, Any] = {}
        for key, template in wanted.items():
            try:
                value = self._templates.value(template, names, coerce=True)
                values[key] = without_envelope(value) if by_task else value
            except TemplateError as error:
                self._warnings.append(f"set {key} of {task.label}: {error.message}"[:300])
        for key, value in values.items():
            scope, _, rest = key.partition(".")
            if scope == "iter" and rest:
                assign(self._iter, rest, value)
            elif by_task and not rest:
                self._own[key] = value
            else:
                plain = rest if scope in ("ctx", "step") and rest else key
                assign_variable(self._ctx, self._names.seed, plain, value)
                self.written[plain] = value

    @property
    def objects(self) -> tuple[BusinessObject, ...]:
        """What the accepted runs say their results are about."""
        return self._objects.kept

    def note_object(self, task: Task, output: Output) -> None:
        """Keep what an accepted run says its result is about; `output` is that result."""
        if task.business_object is not None and not output["error"]:
            names = self.judging(task, output, step_value(output["data"]))
            self._warnings += self._objects.note(task, self._templates, names)

    # Between two tasks (P18)

    def progress(
        self,
        *,
        task: str | None = None,
        index: int,
        attempt: int,
        runs: int,
        turns: int,
        failed_attempts: tuple[FailedAttempt, ...],
    ) -> Progress:
        """What another worker needs to go on from here."""
        output = self.output
        told: dict[str, Any] = {}
        if output is not None:
            told = {key: value for key, value in output.items() if key != "data"}
            told["task"] = self._output_task
            if output["error"] and output["data"] is not None:
                told["data"] = output["data"]
        given = self._loop.get("iter", {})
        scope: dict[str, Any] = {
            "written": self.written,
            # The item of a loop comes with the command.
            "iter": {k: v for k, v in self._iter.items() if k not in given or v != given[k]},
            "own": self._own,
            "prev": self._prev,
            "output": told,
            "warnings": list(self.warnings),
            "objects": self._objects.told(),
            **({"rounds": self._rounds} if self._rounds else {}),
        }
        changed, self._changed = frozenset(self._changed), set()
        return Progress(
            task=task or self._output_task,
            ok=output is None or not output["error"],
            index=index,
            attempt=attempt,
            runs=runs,
            turns=turns,
            values=dict(self.values),
            scope=scope,
            changed=changed,
            failed_attempts=failed_attempts,
        )

    def restore(self, progress: Progress) -> None:
        """Go on from what was recorded."""
        scope = progress.scope
        for label, value in progress.values.items():
            self._keep(label, value)
        self._changed = set()
        self._prev = scope["prev"]
        self._own = dict(scope["own"])
        self._iter.update(scope["iter"])
        self._warnings = list(scope["warnings"])
        self._objects.restore(scope["objects"])
        self._rounds = dict(scope.get("rounds", {}))
        for key, value in scope["written"].items():
            assign_variable(self._ctx, self._names.seed, key, value)
            self.written[key] = value
        told = dict(scope["output"])
        if told:
            self._output_task = told.pop("task")
            ok = not told["error"]
            data = progress.values.get(self._output_task) if ok else told.get("data")
            self.output = Output({**told, "data": data})
