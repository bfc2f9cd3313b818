"""The reduce stage of a fan-out: which partitions are there and what came of them. Pure.

A fan-out cuts one collection into partitions, a frame each; its reduce takes their values in the
order of the collection, however they arrive, so that its result does not depend on how many there
were. As a stream it has one frame at a time, begun as soon as the next partition is there, with
what the frame before gave; otherwise one frame takes all of them once the last is back. State holds
the position, counts and one result block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.ranges import available

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl_ray.engine.ranges import Run

STREAM_PARTS = 100
"""Partitions one frame of a stream takes in at most, where the playbook does not say."""


class ReduceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reduce stage of a fan-out under way."""

    stage_id: str
    policy: FramePolicy
    stream: bool = True
    outstanding_max: int = 0
    """Partitions that may be under way or wait for the reduce; 0 means any number."""
    next: int = 0
    """The first item of the collection that no partition taken in so far has."""
    taken: int = 0
    """Partitions taken in."""
    index: int = 0
    """The next frame's place."""
    frame_id: str | None = None
    last_frame_id: str | None = None
    root_frame_id: str | None = None
    frames: int = 0
    failed: int = 0
    result: dict[str, Any] | None = None
    """The result block of what came of the partitions taken in."""

    def ready(self, parts: tuple[Run, ...], *, complete: bool) -> tuple[Run, ...] | None:
        """The partitions the next frame takes; None when there is none to dispatch now.

        Args:
            parts: Partitions whose values are there.
            complete: Whether no other will come.
        """
        if self.frame_id is not None or self.failed:
            return None
        if not self.stream and not complete:
            return None
        at_once = self.policy.max_rows if self.stream else 0
        found = available(parts, self.next, at_once)
        if found:
            return found
        # A collection without an item has a result too.
        return () if complete and not self.frames else None

    def over(self, total: int) -> bool:
        """Whether everything is taken in."""
        return self.frame_id is None and self.frames > 0 and self.next >= total

    def place_of(self, _frame_id: str) -> tuple[int, int]:
        """Slot and index of the frame under way."""
        return 0, self.index - 1

    def dispatched(self, frame_id: str) -> ReduceState:
        """The stage once it has a frame."""
        return msgspec.structs.replace(
            self,
            frame_id=frame_id,
            index=self.index + 1,
            root_frame_id=self.root_frame_id or frame_id,
        )

    def returned(self, payload: Mapping[str, Any], *, ok: bool) -> ReduceState:
        """The stage once its frame has come back."""
        whole = ok and not payload.get("failed")
        changes: dict[str, Any] = {"frame_id": None, "last_frame_id": self.frame_id}
        if whole:
            changes |= {
                "frames": self.frames + 1,
                "next": int(payload["reduced_to"]),
                "taken": self.taken + int(payload["partitions"]),
                "result": payload["result"],
            }
        return msgspec.structs.replace(self, failed=self.failed + (not whole), **changes)
