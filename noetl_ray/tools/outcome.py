"""What task runs and pipelines come to: the envelope of section 6, outcomes, errors as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from noetl_ray.tools.business_object import BusinessObject

if TYPE_CHECKING:
    from noetl_ray.errors import ToolError


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


def error_of(kind: str, message: str, **more: Any) -> dict[str, Any]:
    """An error of the engine's own, in the shape of section 6."""
    return {"kind": kind, "retryable": False, "code": kind, "message": message, **more}


def tool_error(failure: ToolError, task: str) -> dict[str, Any]:
    """A tool's error in the shape of section 6."""
    return {
        "kind": failure.kind,
        "retryable": failure.retryable,
        "code": failure.details.get("code", failure.kind),
        "message": failure.message,
        "task": task,
        **failure.details,
    }
