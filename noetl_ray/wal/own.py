"""What this process appended a moment ago, so that it need not be read again when it comes back.

Conductor and worker of one host hear everything they say through their subscription. Owns the link
from stored bytes to the record they were made from: only equal bytes on the same subject give the
record back, so nothing rests on positions, acks or luck. Bounded; refuses large records. Whoever
appends a record must not change it afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_ray.events.envelope import Record

RECORDS_MAX = 2_048
BYTES_MAX = 16_384


class OwnRecords:
    """The newest append of each of some subjects."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        # Taking the oldest out of a plain dict walks over all that were taken out before.
        self._records: OrderedDict[str, tuple[bytes, Record]] = OrderedDict()

    def note(self, subject: str, data: bytes, record: Record) -> None:
        """Remember an append; before it is sent, because it may be delivered before its ack."""
        if len(data) > BYTES_MAX:
            return
        self._records[subject] = (data, record)
        if len(self._records) > RECORDS_MAX:
            self._records.popitem(last=False)

    def record_of(self, subject: str, data: bytes) -> Record | None:
        """The record these bytes were made from, when they were made here and lately."""
        found = self._records.get(subject)
        return found[1] if found is not None and found[0] == data else None
