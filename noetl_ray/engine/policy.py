"""The policy of frames: how large one may be, how often it is tried, how long it is held. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from noetl_ray.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

Process = Literal["row", "frame"]

WHOLE_FRAME = "whole_frame"

_NUMBERS: dict[str, tuple[float, float]] = {
    "max_rows": (1, 1_000_000),
    "max_seconds": (0.001, 86_400),
    "max_bytes": (1_024, 1 << 40),
    "lease_seconds": (1, 86_400),
    "heartbeat_seconds": (0.1, 86_400),
    "max_attempts": (1, 1_000),
    "row_concurrency": (1, 10_000),
}
_WHOLE = frozenset({"max_rows", "max_bytes", "max_attempts", "row_concurrency"})


class FramePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How rows become frames, and what happens to a frame whose worker is gone."""

    max_rows: int = 1
    max_seconds: float = 30
    max_bytes: int = 67_108_864
    lease_seconds: float = 120
    heartbeat_seconds: float = 30
    process: Process = "row"
    retry_mode: str = WHOLE_FRAME
    max_attempts: int = 3
    row_concurrency: int = 1
    row_barrier: bool = False
    """Whether finished rows are recorded, so that a later holder of the frame leaves them out."""


def frame_policy(wanted: Mapping[str, Any], defaults: Mapping[str, Any], step: str) -> FramePolicy:
    """The policy of a stage from the rendered `frame` of its loop over the defaults.

    Raises:
        TemplateError: a value is not a number in its range; nothing is clamped.
    """
    values: dict[str, Any] = {key: value for key, value in defaults.items() if key in _NUMBERS}
    for key, value in wanted.items():
        if value is None or value == "":
            continue
        if key == "process":
            values[key] = _word(value, ("row", "frame"), step)
        elif key == "retry_mode":
            _word(value, (WHOLE_FRAME,), step)
        elif key == "row_barrier":
            values[key] = _flag(value, step)
        else:
            values[key] = _number(key, value, step)
    policy = FramePolicy(**values)
    if policy.row_barrier and policy.process == "frame":
        msg = f"frame.row_barrier of {step!r} needs process: row; a whole frame has no rows to tell"
        raise TemplateError(msg)
    if "heartbeat_seconds" not in wanted and policy.heartbeat_seconds * 2 > policy.lease_seconds:
        return msgspec.structs.replace(policy, heartbeat_seconds=policy.lease_seconds / 4)
    if policy.heartbeat_seconds * 2 > policy.lease_seconds:
        msg = (
            f"frame.heartbeat_seconds of {step!r} is {policy.heartbeat_seconds:g}; it must be at "
            f"most half of lease_seconds, {policy.lease_seconds:g}"
        )
        raise TemplateError(msg)
    return policy


def next_max_rows(policy: FramePolicy, rows: int, seconds: float, size_bytes: int) -> int:
    """What the next frame of a slot may claim, from how the last one went.

    A claim cannot give rows back, so a frame that took longer or weighed more than the policy
    allows makes the next one smaller. ``max_rows`` stays the bound.
    """
    if rows <= 0:
        return policy.max_rows
    fit = rows_that_fit(policy, rows, seconds, size_bytes)
    return max(1, int(fit))


def rows_that_fit(policy: FramePolicy, rows: int, seconds: float, size_bytes: int) -> float:
    """How many rows like these stay within all bounds of a policy."""
    fit = float(policy.max_rows)
    if seconds > 0:
        fit = min(fit, rows * policy.max_seconds / seconds)
    if size_bytes > 0:
        fit = min(fit, rows * policy.max_bytes / size_bytes)
    return fit


def _number(name: str, value: Any, step: str) -> Any:
    low, high = _NUMBERS[name]
    try:
        number = float(value)
        fits = not isinstance(value, bool) and low <= number <= high
        fits = fits and (name not in _WHOLE or number == int(number))
    except (TypeError, ValueError):
        fits = False
    if not fits:
        what = "a whole number" if name in _WHOLE else "a number"
        msg = f"frame.{name} of {step!r} is {value!r}; give it {what} from {low:g} to {high:g}"
        raise TemplateError(msg)
    return int(number) if name in _WHOLE else number


def _flag(value: Any, step: str) -> bool:
    if not isinstance(value, bool):
        msg = f"frame.row_barrier of {step!r} is {value!r}; give it true or false"
        raise TemplateError(msg)
    return value


def _word(value: Any, words: tuple[str, ...], step: str) -> Any:
    if value not in words:
        msg = f"{value!r} is not known in the frame of {step!r}; use {' or '.join(words)}"
        raise TemplateError(msg)
    return value
