"""The record of a local set: ``state.json`` in its data directory.

Written in one step, readable by its owner only since it holds tokens. Owns the file's shape; what
the recorded processes mean and how they end is :mod:`actors.local`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from actors.processes import ProcessRef, dump, is_alive, read_refs, write_private

VERSION = 1
SERVERS = frozenset({"nats", "postgres"})
"""Processes that are started again when they die, as long as Ray stands."""
ESSENTIAL = SERVERS | {"gcs_server", "raylet"}
"""Processes without which the set is not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRecord:
    """What is known of a set, from its first process to its end."""

    set_id: str
    data_dir: str
    ready: bool = False
    namespace: str = "noetl"
    gateway_url: str = ""
    token: str = field(default="", repr=False)
    nats_url: str = ""
    nats_token: str = field(default="", repr=False)
    postgres_dsn: str = field(default="", repr=False)
    ray_address: str = ""
    ray_is_ours: bool = False
    dashboard_url: str = ""
    durability: str = "process"
    """What the embedded NATS promises; it must promise the same when it is started again."""
    processes: tuple[ProcessRef, ...] = ()

    def with_process(self, ref: ProcessRef) -> SetRecord:
        """The record with one more process."""
        return replace(self, processes=(*self.processes, ref))

    def with_replaced(self, ref: ProcessRef) -> SetRecord:
        """The record with this process in place of the one of the same title."""
        others = (other for other in self.processes if other.title != ref.title)
        return replace(self, processes=(*others, ref))

    def dead(self) -> list[ProcessRef]:
        """The essential processes that no longer run."""
        return [r for r in self.processes if r.title in ESSENTIAL and not is_alive(r)]

    def is_whole(self) -> bool:
        """Whether it became ready and everything essential still runs."""
        return self.ready and not self.dead()

    def is_standing(self) -> bool:
        """Whether it became ready and all that died will be started again by its own hosts."""
        if not self.ready or not self.ray_is_ours:
            return False
        dead, recorded = ({r.title for r in refs} for refs in (self.dead(), self.processes))
        return dead <= SERVERS and recorded >= ESSENTIAL - SERVERS


def state_path(data_dir: Path) -> Path:
    """Where the record of a data directory lies."""
    return data_dir / "state.json"


def save(record: SetRecord) -> None:
    """Replace the record."""
    data: dict[str, Any] = {"version": VERSION, **asdict(record)}
    write_private(state_path(Path(record.data_dir)), dump(data))


def read(data_dir: Path) -> SetRecord | None:
    """The record, or None when there is none that can be read."""
    try:
        data = json.loads(state_path(data_dir).read_text(encoding="utf-8"))
        if data.pop("version") != VERSION:
            return None
        data["processes"] = read_refs(data["processes"])
        return SetRecord(**data)
    except (OSError, ValueError, KeyError, TypeError):
        # Written in one step, so never half: such a file is another program's or another version's.
        return None


def forget(data_dir: Path) -> None:
    """Remove the record."""
    state_path(data_dir).unlink(missing_ok=True)
