"""What a checkpoint is: folded states of a shard and the position they reach (P25). Pure.

A chain begins with a base, which holds every open execution of the shard, and goes on with changes:
the executions touched since, and those that have ended. So a save costs what was touched, however
many are open. A state may be ahead of the position it is saved under, because a known record gives
a state back unchanged; it is never behind. Refuses to give anything out of a chain that is broken,
made by other code, or made under another upcaster registry: then the log is folded from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.upcast import registry
from noetl_ray.shards.port import MESSAGE_BYTES_MAX
from noetl_ray.shards.versions import code_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl_ray.shards.port import Stored

SAVE_BYTES_MAX = 256 * 1024 * 1024
_ROOM = MESSAGE_BYTES_MAX - 1_024


class Save(msgspec.Struct, kw_only=True):
    """One save of one shard: a base, or the changes since the save before."""

    base: bool
    shard: int
    epoch: int
    position: int
    """Everything of the shard up to here is in the states."""
    anchor_position: int = 0
    """A record that was folded in; the log it came from is known by it."""
    anchor_event_id: int = 0
    saved_ms: int = 0
    owner: str = ""
    code: str = ""
    registry: str = ""
    states: list[msgspec.Raw] = []
    ended: list[int] = []
    """Executions of earlier saves that are over."""


class _Chunk(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A piece of a save, as large as a message may be."""

    checksum: str
    """Of the whole save; the pieces of one save share it."""
    index: int
    count: int
    data: bytes


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """What a chain comes to."""

    shard: int
    epoch: int = 0
    position: int = 0
    anchor_position: int = 0
    anchor_event_id: int = 0
    version: int = 0
    """Version of the last message, whatever it holds."""
    base_version: int = 0
    """Version of the first message of the base."""
    owner: str = ""
    base_bytes: int = 0
    change_bytes: int = 0
    changes: int = 0
    states: dict[int, ExecutionState] = field(default_factory=dict)
    refused: str = ""
    """Why nothing of the chain is used; empty when it is, or when there is none."""


_Whole = tuple[int, Save, int]
"""A save that is complete, with the version it begins at and its size."""

_encode_state = msgspec.json.Encoder().encode
_decode_state = msgspec.json.Decoder(ExecutionState).decode
_decode_save = msgspec.json.Decoder(Save).decode
_decode_chunk = msgspec.msgpack.Decoder(_Chunk).decode


def encode_state(state: ExecutionState) -> msgspec.Raw:
    """A state as it lies in a save; compact, and without the order a checksum wants."""
    return msgspec.Raw(_encode_state(state))


def encode_save(save: Save) -> list[bytes]:
    """A save as messages.

    Raises:
        ValueError: it is larger than any chain may hold.
    """
    save.code, save.registry = code_version(), registry().digest
    data = msgspec.json.encode(save)
    if len(data) > SAVE_BYTES_MAX:
        msg = f"{len(data)} bytes of open executions are more than {SAVE_BYTES_MAX}"
        raise ValueError(msg)
    checksum = sha256_hex(data)
    pieces = [data[at : at + _ROOM] for at in range(0, len(data), _ROOM)]
    return [
        msgspec.msgpack.encode(
            _Chunk(checksum=checksum, index=index, count=len(pieces), data=piece)
        )
        for index, piece in enumerate(pieces)
    ]


def read_chain(shard: int, messages: Sequence[Stored]) -> Checkpoint:
    """What a chain comes to: the newest whole base and the changes after it."""
    found = Checkpoint(shard=shard)
    if not messages:
        return found
    found.version = messages[-1].version
    try:
        saves = list(_saves(messages))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        found.refused = f"cannot be read: {error}"
        return found
    if saves:
        # Who wrote last counts even where nothing can be used.
        found.owner, found.epoch = saves[-1][1].owner, max(save.epoch for _, save, _ in saves)
    bases = [n for n, (_, save, _) in enumerate(saves) if save.base and save.epoch == found.epoch]
    bases = bases or [n for n, (_, save, _) in enumerate(saves) if save.base]
    if not bases:
        found.refused = "has no whole base"
        return found
    used = _without_late(saves[bases[-1] :])
    for _, save, _ in used:
        found.refused = _misfit(shard, save)
        if found.refused:
            return found
    try:
        _apply(found, used)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        found.states, found.refused = {}, f"cannot be read: {error}"
    return found


def _without_late(saves: Sequence[_Whole]) -> list[_Whole]:
    """Without what an owner wrote after the next one had begun to."""
    kept: list[_Whole] = []
    for each in saves:
        if not kept or each[1].epoch >= kept[-1][1].epoch:
            kept.append(each)
    return kept


def _apply(found: Checkpoint, saves: Iterable[_Whole]) -> None:
    for version, save, size in saves:
        if save.base:
            found.base_version, found.base_bytes = version, size
        else:
            found.change_bytes += size
            found.changes += 1
        for raw in save.states:
            state = _decode_state(raw)
            found.states[state.execution_id] = state
        for execution_id in save.ended:
            found.states.pop(execution_id, None)
        found.position = save.position
        found.anchor_position = save.anchor_position
        found.anchor_event_id = save.anchor_event_id


def _misfit(shard: int, save: Save) -> str:
    if save.shard != shard:
        return f"speaks of shard {save.shard}"
    if save.registry != registry().digest:
        return "was made under another upcaster registry"
    if save.code != code_version():
        return "was made by another version of this program"
    return ""


def _saves(messages: Sequence[Stored]) -> Iterable[_Whole]:
    """The whole saves of a chain, each with the version it begins at and its size.

    A writer that died in the middle of one leaves pieces that are passed over: nothing was built
    upon them.
    """
    pieces: list[_Chunk] = []
    begun = 0
    for message in messages:
        piece = _decode_chunk(message.data)
        if piece.index == 0:
            pieces, begun = [], message.version
        elif not pieces or piece.checksum != pieces[0].checksum or piece.index != len(pieces):
            pieces = []
            continue
        pieces.append(piece)
        if len(pieces) == piece.count:
            data = b"".join(each.data for each in pieces)
            if sha256_hex(data) == piece.checksum:
                yield begun, _decode_save(data), len(data)
            pieces = []
