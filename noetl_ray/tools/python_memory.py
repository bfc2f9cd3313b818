"""How much memory user code uses, and how much it may. Looks at processes, touches none.

Resident memory is what counts: libraries reserve far more address space than they ever use, so a
limit on that would refuse ordinary code.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FAMILY_MAX = 1_000


def used_bytes(pid: int) -> int:
    """Resident memory of a process and what it started; 0 where the system does not tell."""
    total = 0
    waiting = [pid]
    for _ in range(_FAMILY_MAX):
        if not waiting:
            break
        one = waiting.pop()
        try:
            total += int((_PROC / str(one) / "statm").read_text().split()[1]) * _PAGE
            for thread in (_PROC / str(one) / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return total


def machine_bytes() -> int:
    """Memory of this machine, or of the container around us where that has less."""
    found = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            found = min(found, int(text))
    return found
