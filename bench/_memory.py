"""Memory of a local set by process: PSS, which shares out the pages that several map."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from actors import ray_head, state_file

if TYPE_CHECKING:
    from actors.local import LocalSet

_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


def pss_mb(local: LocalSet) -> dict[str, float]:
    """Megabytes by what the processes are, Postgres's own family in one."""
    record = state_file.read(Path(local.data_dir))
    assert record is not None
    found: dict[str, float] = {}
    named = [(ref.pid, _label(ref.title)) for ref in ray_head.processes(record.set_id)]
    servers = [ref for ref in record.processes if ref.title in ("nats", "postgres")]
    named += [(pid, ref.title) for ref in servers for pid in (ref.pid, *_children(ref.pid))]
    for pid, label in dict(named).items():
        found[label] = round(found.get(label, 0.0) + _pss_mb(pid), 1)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _label(title: str) -> str:
    return "hosts" if title.startswith("ray::HostActor") else f"ray {title.removeprefix('ray::')}"


def _pss_mb(pid: int) -> float:
    try:
        match = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0.0
    return int(match.group(1)) / 1024 if match else 0.0


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]
