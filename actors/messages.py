"""The hints roles send each other: offers, announcements and nudges.

None of them is ever the truth (P1).
"""

from __future__ import annotations

import msgspec

from noetl_ray.events.envelope import Event
from noetl_ray.wal.subjects import token

CANCEL = "noetl.hints.cancel"
"""Where workers hear that an execution was cancelled (P23)."""


GONE = "noetl.hints.gone"
"""Where everybody hears that a process is dead (P22)."""


def heard_subject(worker_id: str) -> str:
    """Where a worker learns that it was heard."""
    return f"noetl.hints.heard.{token(worker_id)}"


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A command for one worker.

    ``version`` is what its completion must expect on the command's subject.
    """

    issued: Event
    shard: int
    version: int
    attempt: int
    incarnation: str
    prev_event_id: int
    lease_ms: int
    sent_ms: int
    recorded: int = 0
    """Where the command's newest record of a task lies in the log; 0 when nothing is recorded."""
    answer: int = 0
    """Where what its parked task waited for lies; 0 when it waits for nothing (P13)."""


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A worker says that it lives, each second."""

    worker_id: str
    incarnation: str
    sequence: int
    running: int


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The keeper says which announcement it heard."""

    incarnation: str
    sequence: int


class Nudge(msgspec.Struct, frozen=True, kw_only=True):
    """An execution was cancelled; stop working on it."""

    execution_id: int


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A host's process is dead, by somebody who knows; a wrong word costs work, nothing else."""

    host: str
    incarnation: str


class ShardsWord(msgspec.Struct, frozen=True, kw_only=True):
    """A conductor's shards: the epoch of each lease, and the age of what is not kept yet (ms)."""

    owner: str
    shards: dict[int, tuple[int, int]]


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The projector has written the end of these: tenant, organization and execution of each."""

    executions: list[tuple[str, str, int]]


encode = msgspec.json.encode
decode_offer = msgspec.json.Decoder(Offer).decode
decode_announcement = msgspec.json.Decoder(Announcement).decode
decode_nudge = msgspec.json.Decoder(Nudge).decode
decode_ended = msgspec.json.Decoder(Ended).decode
decode_heard = msgspec.json.Decoder(Heard).decode
decode_gone = msgspec.json.Decoder(Gone).decode
