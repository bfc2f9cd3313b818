"""Servers of a local set that died are started again, from what the set recorded of itself.

Every host looks once a second whether the embedded NATS and Postgres still run. The work is done by
a process of its own, ``python -m actors.caretaker DIR``, which belongs to nobody: what a host
starts, Ray would end together with the host. Refuses a set that is being started or taken down, one
whose Ray is gone (that is a ruin, and ``up`` replaces it), and servers it did not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from actors import ray_head, state_file
from actors.processes import end, exclusive, identify
from noetl_ray.config.environ import environ
from noetl_ray.embedded.nats import start_nats
from noetl_ray.embedded.postgres import start_postgres
from noetl_ray.errors import ConflictError, InternalError, NoetlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.state_file import SetRecord

logger = logging.getLogger(__name__)

LOOK_S = 1.0
AGAIN_S = 10.0
"""How long one mending may take before another is sent."""
MENDING = "mending"
"""Said in the lock file, so that whoever wants the lock knows that it is worth waiting."""
LOG_NAME = "caretaker.log"
END_S = 5.0
NEWS_BYTES_MAX = 64 << 10
NO_ROOM = b"no space left on device"
ROOM_BYTES = 16 << 20
"""Free space from which on a server that still complains of none is stuck."""


class Caretaker:
    """One host's watch over the servers of its set."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._sent: float | None = None
        self._log_read = 0
        self._had_room = False
        self.sent = 0
        """How often someone was sent to mend."""

    def turn(self) -> bool:
        """Look once; send someone when a server is gone. Says whether someone was sent."""
        record = state_file.read(self._data_dir)
        gone = missing(record) if record is not None else ()
        if not gone:
            self._sent = None
            if record is not None:
                self._end_stuck(record)
            return False
        now = time.monotonic()
        if self._sent is not None and now - self._sent < AGAIN_S:
            return False
        self._sent = now
        self.sent += 1
        logger.warning("%s of this set is gone; starting it again", " and ".join(gone))
        send(self._data_dir)
        return True

    def _end_stuck(self, record: SetRecord) -> None:
        """End a NATS that refuses every write though its disk has room again.

        After one failed write it remembers the error until it is started anew; the next look finds
        it gone.
        """
        servers = [ref for ref in record.processes if ref.title == "nats"]
        folder = Path(record.data_dir) / "nats"
        if not servers or not folder.is_dir():
            return
        space = os.statvfs(folder)
        room, had_room = space.f_bavail * space.f_frsize >= ROOM_BYTES, self._had_room
        news = self._news(folder / "nats.log")
        self._had_room = room
        if room and had_room and NO_ROOM in news:
            logger.warning("NATS finds no room on a disk that has some again; ending it")
            end(servers, grace_s=END_S)

    def _news(self, log: Path) -> bytes:
        """What a log has grown by since the last look, at most its tail."""
        if not log.exists():
            return b""
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            before, self._log_read = self._log_read or size, size
            file.seek(max(before, size - NEWS_BYTES_MAX))
            return file.read()

    async def run(self) -> None:
        """Repeat the turn for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.turn)
            except OSError:
                logger.warning("cannot look after the servers now", exc_info=True)


def missing(record: SetRecord) -> tuple[str, ...]:
    """Servers of a standing set that have died."""
    if not record.ready or not record.is_standing():
        return ()
    return tuple(ref.title for ref in record.dead() if ref.title in state_file.SERVERS)


def mend(record: SetRecord) -> SetRecord:
    """Start again what has died, at the same address over the same files, and record it.

    The caller holds the lock of the data directory.

    Raises:
        NoetlError: A server cannot be started.
    """
    folder = Path(record.data_dir)
    for title in missing(record):
        pid = _start(title, record, folder)
        ref = identify(pid, title)
        if ref is None:
            msg = f"{title} ended right after it was started again"
            raise InternalError(msg)
        record = record.with_replaced(ref)
        state_file.save(record)
    return record


def _start(title: str, record: SetRecord, folder: Path) -> int:
    if title == "postgres":
        return start_postgres(folder / "postgres", detached=True).pid
    server = start_nats(
        folder / "nats",
        port=urlsplit(record.nats_url).port,
        token=record.nats_token or None,
        durability="disk" if record.durability == "disk" else "process",
        detached=True,
    )
    if server.process is not None:
        # It outlives us on purpose; told so, the interpreter does not complain at its own end.
        server.process.returncode = 0
    return server.pid


def send(data_dir: Path) -> None:
    """Start the process that mends a set; does not wait for it."""
    everything = {k: v for k, v in environ().items() if k != ray_head.MARK_NAME}
    with (data_dir / LOG_NAME).open("ab") as log:
        subprocess.run(
            [sys.executable, "-m", "actors.caretaker", str(data_dir)],
            env={**everything, "PYTHONPATH": ray_head.import_path()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=AGAIN_S,
            check=False,
        )


def main(arguments: Sequence[str]) -> int:
    """Let go of whoever called, then mend the set of the given directory."""
    if os.fork():
        return 0
    os.setsid()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    folder = Path(arguments[0])
    # When another is at it, or the set is being taken down, there is nothing to do.
    with (
        contextlib.suppress(ConflictError),
        exclusive(folder / "up.lock", purpose="mending", note=MENDING),
    ):
        record = state_file.read(folder)
        if record is None:
            return 0
        try:
            gone = missing(record)
            mend(record)
            logger.info("started again: %s", ", ".join(gone) or "nothing, all run")
        except NoetlError:
            logger.exception("the servers of %s could not be started", folder)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
