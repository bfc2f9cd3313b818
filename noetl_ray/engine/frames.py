"""Frames of a loop: the stage's state and what a frame gives. Pure.

A stage is one run of a loop whose rows go in frames. It has slots; each slot has at most one frame
at a time. Over a cursor a frame is a window of rows that a worker claims: one with rows is followed
by the next of its slot, one without ends its slot. Over a collection a frame is a range of it, and
the stage is over when all ranges are back. State holds the open frames, counts and ranges, so a
stage of a hundred thousand rows is as small as one of ten (P26).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.ranges import Range, Run, add_part, mixed, next_range, without
from noetl_ray.engine.reducing import ReduceState

if TYPE_CHECKING:
    from collections.abc import Mapping

SLOTS_MAX = 64
"""Frames of one stage at once, at most."""
FRAMES_MAX = 100_000
"""Frames one slot may claim, so that a claim that never runs dry ends with an error."""


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
    reduce: ReduceState | None = None
    """Of a fan-out: what takes its partitions in."""
    closed: bool = False
    """Whether a fan-out is closed while its reduce goes on."""

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
    def may_go_on(self) -> bool:
        """Whether a slot may be given a frame now, and the reduce keeps up (FAN-3)."""
        if self.idle_slot is None:
            return False
        reduce = self.reduce
        if reduce is None or not reduce.outstanding_max:
            return True
        if self.open + self.frames - reduce.taken < reduce.outstanding_max:
            return True
        # What the reduce waits for is dispatched whatever else lies there, or both would wait.
        return bool(self.gaps) and self.gaps[0][0] == reduce.next

    def place_of(self, frame_id: str) -> tuple[int, int]:
        """Slot and index of a frame under way."""
        number = next(n for n, slot in enumerate(self.slots) if slot.frame_id == frame_id)
        return number, self.slots[number].index - 1

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


_FRAME_ID = re.compile(r"\.s\d+\.f\d+$")


def is_frame_id(command_id: str) -> bool:
    """Whether an id is a frame's; those of other commands end with a visit or an index."""
    return ".f" in command_id[-10:] and _FRAME_ID.search(command_id) is not None


def frame_id_of(stage_id: str, slot: int, index: int) -> str:
    """The id of a frame follows from the decision alone (P3, FRM-13)."""
    return f"{stage_id}.s{slot}.f{index}"


def frame_ordinal(slot: int, index: int) -> int:
    """One number for slot and index, for the frame's place in a result's name."""
    return index * SLOTS_MAX + slot
