"""Histories: the records of executions as lines of text, and the fold over them.

Owns the line format of a stored history and what of a state counts when two replays are compared.
Refuses to fold by itself: the conductor's own ``fold`` is the only reducer. The same records give
the same states whoever wrote them and whenever (invariant 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import ExecutionState, encode_state
from noetl_ray.errors import EnvelopeError
from noetl_ray.events.canonical import canonical_json, digest
from noetl_ray.events.envelope import check_envelope, checksum_of, decode_record
from noetl_ray.wal.port import Recorded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.events.upcast import UpcasterRegistry


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a stored history."""

    position: int
    subject: str
    time_ms: int
    record: msgspec.Raw


_decoder = msgspec.json.Decoder(_Line)
_BLANK = ExecutionState(execution_id=0, tenant_id="", organization_id="")
_REQUIRED = frozenset(f.name for f in msgspec.structs.fields(ExecutionState) if f.required)
_DEFAULTS: dict[str, Any] = {
    key: value
    for key, value in msgspec.json.decode(encode_state(_BLANK)).items()
    if key not in _REQUIRED
}


def replay(records: Iterable[Recorded], *, as_of: int | None = None) -> dict[int, ExecutionState]:
    """The state of every execution the records speak of.

    Args:
        records: In order of position; records about the system are passed over.
        as_of: The last position that counts; None takes all (P9).

    Raises:
        InternalError: a record contradicts those before it.
    """
    states: dict[int, ExecutionState] = {}
    for recorded in records:
        if as_of is not None and recorded.position > as_of:
            break
        execution_id = recorded.record.events[0].execution_id
        if execution_id:
            states[execution_id] = fold(states.get(execution_id), recorded)
    return states


def normalised(state: ExecutionState) -> dict[str, Any]:
    """A state as plain JSON data, without what it says by default.

    So a field that a later version adds does not make an old execution look different.
    """
    data: dict[str, Any] = msgspec.json.decode(encode_state(state))
    return {key: value for key, value in data.items() if value != _DEFAULTS.get(key, _DEFAULTS)}


def state_checksum(state: ExecutionState) -> str:
    """SHA-256 over the normalised state: equal wherever the same records are folded."""
    return digest(normalised(state))


def encode_history(records: Iterable[Recorded]) -> bytes:
    """Records as canonical JSON, one to a line."""
    return b"".join(
        canonical_json(
            _Line(
                position=r.position,
                subject=r.subject,
                time_ms=r.time_ms,
                record=msgspec.Raw(canonical_json(r.record)),
            )
        )
        + b"\n"
        for r in records
    )


def decode_history(data: bytes, upcasters: UpcasterRegistry | None = None) -> list[Recorded]:
    """Read a stored history back, every envelope lifted to its newest version and checked.

    Args:
        data: What :func:`encode_history` gave, now or by an older version.
        upcasters: Another registry than that of this process.

    Raises:
        EnvelopeError: a line is no record, an envelope is incomplete, or a checksum does not fit.
    """
    records: list[Recorded] = []
    for number, text in enumerate(data.splitlines(), start=1):
        try:
            line = _decoder.decode(text)
            record = decode_record(line.record, upcasters)
        except (msgspec.DecodeError, EnvelopeError) as error:
            msg = f"line {number} is no record: {error}"
            raise EnvelopeError(msg) from None
        for event in record.events:
            check_envelope(event)
            if checksum_of(event) != event.envelope_checksum:
                msg = f"line {number}: the checksum of event {event.event_id} does not fit"
                raise EnvelopeError(msg)
        records.append(
            Recorded(
                position=line.position,
                subject=line.subject,
                time_ms=line.time_ms,
                record=record,
            )
        )
    return records
