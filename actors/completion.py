"""What a command's end says: outcomes as events, within the limits of the log, without secrets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from actors.stamp import object_events
from noetl_ray.events.canonical import canonical_json, to_jsonable
from noetl_ray.events.types import EventType
from noetl_ray.results.extracted import extract
from noetl_ray.results.redact import Redactor, mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.holding import Said
    from noetl_ray.tools.outcome import FailedAttempt, PipelineOutcome

ATTEMPTS_KEPT = 20
"""Failed attempts recorded at once; the newest count."""
ERROR_BYTES_MAX = 8_192
SET_BYTES_MAX = 102_400


def completion(
    outcome: PipelineOutcome,
    base: Mapping[str, Any],
    *,
    result: dict[str, Any],
    attempt: int,
    shown: Redactor,
) -> list[Said]:
    """The events that end a command."""
    warnings = list(outcome.warnings)
    said = failed_attempts(outcome.failed_attempts, base, shown)
    call = {**base, "result": result, "attempt": attempt, "runs": outcome.runs}
    rows = count_rows(outcome.value)
    if rows is not None:
        call["rows"] = rows
    if outcome.set:
        given = to_jsonable(outcome.set)
        kept = call["set"] = mask(shown.value(given))
        lost = [key for key in given if kept.get(key) != given[key]]
        warnings += [f"set {key} looks like a credential and is not kept" for key in lost]
    if warnings:
        call["warnings"] = shown.value(warnings)
    objects = object_events(outcome.objects, base, result.get("reference"), shown)
    if outcome.ok:
        said.append((EventType.CALL_DONE, call, None))
        ended: Said = (EventType.COMMAND_COMPLETED, dict(base), None)
    else:
        error = bounded(shown.value(outcome.error)) if outcome.error else None
        said.append((EventType.CALL_ERROR, call | {"error": error}, None))
        ended = (EventType.COMMAND_FAILED, {**base, "error": error}, None)
    said += [(kind, payload, None) for kind, payload in objects]
    said.append(ended)
    return said


def failed_attempts(
    failed: Iterable[FailedAttempt], base: Mapping[str, Any], shown: Redactor
) -> list[Said]:
    """Task runs that a policy answered with a retry, as events."""
    return [
        (
            EventType.TASK_ATTEMPT_FAILED,
            {
                **base,
                "task": one.task,
                "attempt": one.attempt,
                "delay_s": one.delay_s,
                "error": bounded(shown.value(one.error)),
            },
            None,
        )
        for one in list(failed)[-ATTEMPTS_KEPT:]
    ]


def bounded(error: dict[str, Any]) -> dict[str, Any]:
    """An error small enough for the log; what is too long is cut, its length is kept."""
    small, _ = extract(to_jsonable(error), ERROR_BYTES_MAX)
    return small if isinstance(small, dict) else {"message": str(small)}


def within_limits(outcome: PipelineOutcome) -> PipelineOutcome:
    """Refuse variables too large for the log; bodies belong in the step's result."""
    size = len(canonical_json(to_jsonable(outcome.set))) if outcome.set else 0
    if size <= SET_BYTES_MAX:
        return outcome
    error = {
        "kind": "schema",
        "code": "schema",
        "retryable": False,
        "message": f"the step's `set` holds {size} bytes, at most {SET_BYTES_MAX}; "
        "leave large values in the step's result",
    }
    return replace(outcome, ok=False, error=error, set={})


def count_rows(value: Any) -> int | None:
    """How many rows a result holds, for people who watch; None when it holds none."""
    if isinstance(value, dict):
        count = value.get("row_count")
        value = value.get("rows", count)
        if isinstance(count, int):
            return count
    return len(value) if isinstance(value, list) else None
