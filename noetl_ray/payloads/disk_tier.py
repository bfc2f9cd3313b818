"""Tier 2: verified bytes as files of this node, mapped and not read (CCH-1).

A copy of what is durable elsewhere: any of it may vanish at any time. A file is trusted after its
digest was checked once by this process; one that does not match is removed and counts as a miss. A
full disk stores nothing and says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl_ray.payloads.shared import TierKey

_TEMP = ".tmp"
_KNOWN_MAX = 10_000
_ORPHAN_S = 3_600.0

Identity = tuple[int, int, int]


class MappedFiles:
    """Maps files whose digest it has checked; remembers which."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, Identity], str] = OrderedDict()

    def map(self, path: str, size_bytes: int, sha256: str) -> memoryview | None:
        """The file's bytes without a copy; None when it is not there or holds something else."""
        try:
            with Path(path).open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_size != size_bytes or not size_bytes:
                    return None
                view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError:
            return None
        place = (path, (found.st_ino, found.st_mtime_ns, found.st_size))
        if self._known.get(place) == sha256:
            return view
        if hashlib.sha256(view).hexdigest() != sha256:
            return None
        self._known[place] = sha256
        while len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return view


class DiskTier:
    """Files below one folder, the least recently used given up first; calls block."""

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder = folder
        self._budget_bytes = budget_bytes
        self._files = MappedFiles()
        self._held: OrderedDict[str, int] | None = None

    def path(self, key: TierKey) -> Path:
        """Where the bytes of a key lie when they are here."""
        return self._folder / key.name

    def get(self, key: TierKey) -> memoryview | None:
        """The bytes, mapped; a file with other bytes is removed."""
        path = self.path(key)
        view = self._files.map(str(path), key.size_bytes, key.sha256)
        if view is None:
            with contextlib.suppress(OSError):
                path.unlink()
        elif self._held is not None and key.name in self._held:
            self._held.move_to_end(key.name)
        return view

    def put(self, key: TierKey, data: bytes | memoryview) -> str | None:
        """Keep verified bytes; None when they do not fit or the disk refuses.

        Raises:
            OSError: the disk refused; nothing is left of the attempt.
        """
        if len(data) > self._budget_bytes:
            return None
        self._make_room(len(data))
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = self._folder / _TEMP
        temp.mkdir(exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=temp)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        assert self._held is not None
        self._held[key.name] = len(data)
        return str(path)

    def sweep(self, now_s: float) -> int:
        """Remove what crashed writers left half-written; how many files that was."""
        removed = 0
        for left in (self._folder / _TEMP).glob("*"):
            try:
                if now_s - left.stat().st_mtime > _ORPHAN_S:
                    left.unlink()
                    removed += 1
            except OSError:
                continue
        return removed

    def _make_room(self, size_bytes: int) -> None:
        if self._held is None or sum(self._held.values()) + size_bytes > self._budget_bytes:
            # Other processes of the node use the same folder: only the disk knows what is there.
            self._held = self._listed()
        used = sum(self._held.values())
        while self._held and used + size_bytes > self._budget_bytes:
            name, size = self._held.popitem(last=False)
            (self._folder / name).unlink(missing_ok=True)
            used -= size

    def _listed(self) -> OrderedDict[str, int]:
        found: list[tuple[float, str, int]] = []
        for path in self._folder.glob("*/*/*/*"):
            try:
                state = path.stat()
            except OSError:
                continue
            name = path.relative_to(self._folder).as_posix()
            found.append((max(state.st_atime, state.st_mtime), name, state.st_size))
        return OrderedDict((name, size) for _, name, size in sorted(found))
