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
