"""Snowflake ids: 41 bits of milliseconds, 10 bits of generator, 12 bits of sequence.

They fit BIGINT.

A generator number belongs to one process incarnation (it is leased through the log's server), so
two processes never mint the same id. Order never rests on these ids, only identity does (ENV-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_ray.clock import Clock

EPOCH_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z
GENERATORS_MAX = 1 << 10
_SEQUENCE_MAX = 1 << 12


class SnowflakeIds:
    """Mints ids for one generator number; never goes back even when the wall clock does."""

    def __init__(self, generator: int, clock: Clock) -> None:
        if not 0 <= generator < GENERATORS_MAX:
            msg = f"generator {generator} is not in 0..{GENERATORS_MAX - 1}"
            raise ValueError(msg)
        self.generator = generator
        self._clock = clock
        self._last_ms = 0
        self._sequence = 0

    def mint(self) -> int:
        """A new id, greater than every id this object gave before."""
        now = self._clock.now_ms() - EPOCH_MS
        if now > self._last_ms:
            self._last_ms = now
            self._sequence = 0
        else:
            self._sequence += 1
            if self._sequence == _SEQUENCE_MAX:
                # Borrow from the next millisecond instead of spinning: ids only identify.
                self._last_ms += 1
                self._sequence = 0
        return (self._last_ms << 22) | (self.generator << 12) | self._sequence


def mint_time_ms(identifier: int) -> int:
    """When an id was minted, milliseconds since the Unix epoch."""
    return (identifier >> 22) + EPOCH_MS
