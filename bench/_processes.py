"""What the processes of a local set use: memory as PSS, which shares out pages several map; CPU."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from actors import ray_head, state_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.local import LocalSet

_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def pss_mb(local: LocalSet) -> dict[str, float]:
    """Megabytes by what the processes are."""
    return _by_label(local, _pss_mb)


def cpu_s(local: LocalSet, asking: int) -> dict[str, float]:
    """Seconds of CPU since their start, by what the processes are; who asks for work included."""
    return _by_label(local, _cpu_s) | {"who asks": _cpu_s(asking)}


def used(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What was used between two readings, leaving out those that used nothing."""
    spent = {label: round(after[label] - before.get(label, 0.0), 3) for label in after}
    return {label: value for label, value in spent.items() if value > 0}


def _by_label(local: LocalSet, read: Callable[[int], float]) -> dict[str, float]:
    record = state_file.read(Path(local.data_dir))
    assert record is not None
    named = [(ref.pid, _label(ref.title)) for ref in ray_head.processes(record.set_id)]
    servers = [ref for ref in record.processes if ref.title in ("nats", "postgres")]
    named += [(pid, ref.title) for ref in servers for pid in (ref.pid, *_children(ref.pid))]
    found: dict[str, float] = {}
    for pid, label in dict(named).items():
        found[label] = round(found.get(label, 0.0) + read(pid), 2)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _label(title: str) -> str:
    if title.startswith("ray::HostActor"):
        return "hosts"
    if "dashboard" in title.lower():
        return "ray dashboard"
    return f"ray {title.removeprefix('ray::')}"


def _pss_mb(pid: int) -> float:
    try:
        match = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:
        return 0.0
    return int(match.group(1)) / 1024 if match else 0.0


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]
