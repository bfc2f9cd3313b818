"""Replay: from records of the log back to states, and the checksum replays are compared by."""

from __future__ import annotations

from noetl_ray.replay.history import (
    decode_history,
    encode_history,
    normalised,
    replay,
    state_checksum,
)

__all__ = ["decode_history", "encode_history", "normalised", "replay", "state_checksum"]
