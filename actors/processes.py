"""Operating-system processes of the local set: who is alive, who is ours, and how they end.

A process is known by its id *and* its start time, so that a number the system gave to a stranger
since is never signalled. Refuses to look for processes by name: ours are recorded, or carry our
mark in their environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PROC = Path("/proc")
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRef:
    """One process, told apart from any later one with the same id."""

    title: str
    """What it is to us: ``nats``, ``postgres``, ``raylet``."""
    pid: int
    started: str
    """Opaque start mark; only ever compared for equality."""

    def to_dict(self) -> dict[str, Any]:
        """As kept in the state file."""
        return {"title": self.title, "pid": self.pid, "started": self.started}


def identify(pid: int, title: str) -> ProcessRef | None:
    """The running process with this id, or None when there is none."""
    started = _start_mark(pid)
    return None if started is None else ProcessRef(title=title, pid=pid, started=started)


def is_alive(ref: ProcessRef) -> bool:
    """Whether this very process still runs; one that only waits to be reaped does not."""
    return _start_mark(ref.pid) == ref.started


def family(mark: str) -> list[ProcessRef]:
    """Every running process that stems from one started with ``mark`` (``NAME=value``).

    The mark in a process's environment is where it begins: from there by parenthood and by session,
    because a process that sets its own title overwrites its environment, and orphans lose their
    parent. Our own session is never part of it.
    """
    rows = _process_table(mark.encode())
    sessions = {row.session for row in rows if row.marked and row.session} - {os.getsid(0)}
    ours = {row.pid for row in rows if row.marked or row.session in sessions}
    grew = True
    while grew:
        more = {row.pid for row in rows if row.parent in ours} - ours
        ours |= more
        grew = bool(more)
    refs = (identify(pid, _name(pid)) for pid in sorted(ours - {os.getpid()}))
    return [ref for ref in refs if ref is not None]


def end(refs: Iterable[ProcessRef], *, grace_s: float, kill_s: float = 5.0) -> list[ProcessRef]:
    """Ask the processes to end, then make them.

    Args:
        refs: What to end; those already gone are passed over.
        grace_s: How long they may take after SIGTERM. Zero kills at once.
        kill_s: How long to wait for the system after SIGKILL.

    Returns:
        Those still alive, normally none.
    """
    left = [ref for ref in refs if is_alive(ref)]
    if grace_s > 0:
        left = _signal_and_wait(left, signal.SIGTERM, grace_s)
    return _signal_and_wait(left, signal.SIGKILL, kill_s)


@contextlib.contextmanager
def exclusive(
    path: Path, *, purpose: str, note: str = "", patient_with: str = "", wait_s: float = 0.0
) -> Iterator[None]:
    """Hold a lock file while something is done that only one process may do.

    Args:
        path: The lock file.
        purpose: What is done, for the message.
        note: What those who find it locked may read about us.
        patient_with: A holder with this note is waited for.
        wait_s: How long.

    Raises:
        ConflictError: Another process holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
                expected = bool(patient_with) and holder.endswith(patient_with)
                if expected and time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                msg = f"{purpose} is already under way in process {holder} ({path})"
                raise ConflictError(msg) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {note}".strip().encode(), 0)
        yield
    finally:
        os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; only its owner may read it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_refs(raw: Iterable[dict[str, Any]]) -> tuple[ProcessRef, ...]:
    """The inverse of :meth:`ProcessRef.to_dict` for a list."""
    return tuple(
        ProcessRef(title=str(item["title"]), pid=int(item["pid"]), started=str(item["started"]))
        for item in raw
    )


def memory_mb(pid: int) -> dict[str, float]:
    """Resident and proportional memory of a process, where the system tells."""
    wanted = {"Rss:": "rss", "Pss:": "pss"}
    sizes: dict[str, float] = {}
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            words = line.split()
            if words and words[0] in wanted:
                sizes[wanted[words[0]]] = round(int(words[1]) / 1024, 1)
    return sizes


def dump(data: dict[str, Any]) -> str:
    """JSON for people and programs: sorted, indented."""
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def _signal_and_wait(refs: list[ProcessRef], number: int, wait_s: float) -> list[ProcessRef]:
    for ref in refs:
        if is_alive(ref):
            with contextlib.suppress(ProcessLookupError):
                os.kill(ref.pid, number)
    deadline = time.monotonic() + wait_s
    left = [ref for ref in refs if is_alive(ref)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for ref in left:
            _reap(ref.pid)
        left = [ref for ref in left if is_alive(ref)]
    return left


def _reap(pid: int) -> None:
    # Only our own children can be reaped here; anyone else's are their parent's affair.
    with contextlib.suppress(ChildProcessError, OSError):
        os.waitpid(pid, os.WNOHANG)


def _name(pid: int) -> str:
    if not sys.platform.startswith("linux"):
        answer = subprocess.run(
            ["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return Path(answer.stdout.strip()).name
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _start_mark(pid: int) -> str | None:
    if not sys.platform.startswith("linux"):
        return _start_mark_from_ps(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The command name is in parentheses and may hold anything; fields are counted after it.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return None
    return f"{_boot_id()}:{fields[19]}"


def _boot_id() -> str:
    # Start times count from boot; without this a process of an earlier boot could look alive.
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "boot"


def _start_mark_from_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    pid: int
    parent: int
    session: int
    """Zero where the system does not tell."""
    marked: bool


def _process_table(mark: bytes) -> list[_Row]:
    if not sys.platform.startswith("linux"):
        return _process_table_from_ps(mark.decode())
    rows: list[_Row] = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        # Processes that just ended cannot be read, nor can the environment of other users'.
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            marked = False
            with contextlib.suppress(PermissionError):
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
            rows.append(
                _Row(
                    pid=int(entry.name),
                    parent=int(fields[1]),
                    session=int(fields[3]),
                    marked=marked,
                )
            )
    return rows


def _process_table_from_ps(mark: str) -> list[_Row]:
    listing = subprocess.run(
        ["ps", "axeww", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=False
    )
    rows = (line.split() for line in listing.stdout.splitlines())
    return [
        _Row(pid=int(words[0]), parent=int(words[1]), session=0, marked=mark in words[2:])
        for words in rows
        if len(words) > 2
    ]
