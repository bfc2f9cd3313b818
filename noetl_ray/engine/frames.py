"""Frames of a loop: the policy, the stage's state and what a frame gives. Pure.

A stage is one run of a loop whose rows go in frames. It has slots; each slot has at most one frame
at a time. Over a cursor a frame is a window of rows that a worker claims: one with rows is followed
by the next of its slot, one without ends its slot. Over a collection a frame is a range of it, and
the stage is over when all ranges are back. State holds the open frames, counts and ranges, so a
stage of a hundred thousand rows is as small as one of ten (P26).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from noetl_ray.engine.ranges import Range, Run, add_part, mixed, next_range, without
from noetl_ray.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

Process = Literal["row", "frame"]

SLOTS_MAX = 64
"""Frames of one stage at once, at most."""
FRAMES_MAX = 100_000
"""Frames one slot may claim, so that a claim that never runs dry ends with an error."""
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


class Slot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lane of a stage."""

    index: int = 0
    """The next frame's place in this slot."""
    frame_id: str | None = None
    """The frame under way."""
    last_frame_id: str | None = None
    max_rows: int = 0
    """What the next claim may take; 0 means what the policy says."""
    done: bool = False


class StageState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stage under way."""

    stage_id: str
    policy: FramePolicy
    slots: tuple[Slot, ...]
    root_frame_id: str | None = None
    frames: int = 0
    frames_failed: int = 0
    processed: int = 0
    failed: int = 0
    total: int = 0
    """Items of the collection; 0 for a cursor, of which nobody knows how many it has."""
    issued: int = 0
    """Items that some frame has or had, from the first on."""
    gaps: tuple[Range, ...] = ()
    """Ranges that a frame gave back because a bound of its policy was hit."""
    parts: tuple[Run, ...] = ()
    """Finished ranges, equal neighbours together."""
    size_bytes: int = 0
    digest: str = ""
    """Over the results of all finished ranges, whatever order they came in."""

    @property
    def stopped(self) -> bool:
        """Whether nothing new may begin: over a collection one failed item is enough."""
        return self.frames_failed > 0 or (self.total > 0 and self.failed > 0)

    @property
    def open(self) -> int:
        """Frames under way."""
        return sum(1 for slot in self.slots if slot.frame_id is not None)

    @property
    def idle_slot(self) -> int | None:
        """A slot that may be given a frame now."""
        if self.stopped or (self.total and not self.gaps and self.issued >= self.total):
            return None
        for number, slot in enumerate(self.slots):
            if slot.frame_id is None and not slot.done:
                return number
        return None

    @property
    def over(self) -> bool:
        """Whether nothing is under way and nothing may follow."""
        return self.open == 0 and self.idle_slot is None

    def range_for(self, number: int) -> Range | None:
        """The items a slot's next frame takes; None over a cursor."""
        size = self.slots[number].max_rows or self.policy.max_rows
        return next_range(self.issued, self.total, self.gaps, size)

    def dispatched(self, number: int, frame_id: str, taken: Range | None = None) -> StageState:
        """The stage once a slot has a frame."""
        slot = msgspec.structs.replace(
            self.slots[number], frame_id=frame_id, index=self.slots[number].index + 1
        )
        changes: dict[str, Any] = {"root_frame_id": self.root_frame_id or frame_id}
        if taken is not None and self.gaps:
            changes["gaps"] = without(self.gaps, taken)
        elif taken is not None:
            changes["issued"] = taken[0] + taken[1]
        return self._with(number, slot, **changes)

    def returned(self, number: int, payload: Mapping[str, Any], *, ok: bool) -> StageState:
        """The stage once a slot's frame has come back."""
        rows = int(payload.get("row_count", 0))
        slot = self.slots[number]
        slot = msgspec.structs.replace(
            slot,
            frame_id=None,
            last_frame_id=slot.frame_id,
            max_rows=int(payload.get("next_max_rows", 0)),
            done=not ok or (rows == 0 and not self.total),
        )
        return self._with(
            number,
            slot,
            **self._ranged(payload, rows, ok=ok),
            frames=self.frames + (ok and rows > 0),
            frames_failed=self.frames_failed + (not ok),
            processed=self.processed + int(payload.get("processed", 0)),
            failed=self.failed + int(payload.get("failed", 0)),
        )

    def _ranged(self, payload: Mapping[str, Any], rows: int, *, ok: bool) -> dict[str, Any]:
        """What a returned range changes: its part is there, the rest of it is to do."""
        if not ok or "range" not in payload:
            return {}
        first, count = payload["range"]
        changes: dict[str, Any] = {}
        if rows < count and not payload.get("failed"):
            changes["gaps"] = tuple(sorted((*self.gaps, (first + rows, count - rows))))
        if rows:
            given = payload["output_ref"]
            changes["parts"] = add_part(self.parts, first, rows, int(payload["attempt"]))
            changes["size_bytes"] = self.size_bytes + int(given["bytes"])
            changes["digest"] = mixed(self.digest, given["sha256"])
        return changes

    def _with(self, number: int, slot: Slot, **changes: Any) -> StageState:
        slots = (*self.slots[:number], slot, *self.slots[number + 1 :])
        return msgspec.structs.replace(self, slots=slots, **changes)


def stage_value(stage: StageState) -> dict[str, Any]:
    """What a cursor loop gives to other steps (section 9)."""
    whole = not stage.failed and not stage.frames_failed
    return {
        "status": "ok" if whole else "partial",
        "processed": stage.processed,
        "failed": stage.failed,
        "frame_count": stage.frames,
        "frames_failed": stage.frames_failed,
        "stage_id": stage.stage_id,
    }


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
        else:
            values[key] = _number(key, value, step)
    policy = FramePolicy(**values)
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


def frame_id_of(stage_id: str, slot: int, index: int) -> str:
    """The id of a frame follows from the decision alone (P3, FRM-13)."""
    return f"{stage_id}.s{slot}.f{index}"


def frame_ordinal(slot: int, index: int) -> int:
    """One number for slot and index, for the frame's place in a result's name."""
    return index * SLOTS_MAX + slot


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


def _word(value: Any, words: tuple[str, ...], step: str) -> Any:
    if value not in words:
        msg = f"{value!r} is not known in the frame of {step!r}; use {' or '.join(words)}"
        raise TemplateError(msg)
    return value
