"""What the lake's bench works over: a log in NATS, a read model in Postgres, and how many of what.

Owns the generator: whole executions of one step, ever the same story, of one shard. Their records
go straight to the stream, counted afterwards, and their rows straight to Postgres.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats

from noetl_ray.embedded.nats import start_nats, stop_nats
from noetl_ray.embedded.postgres import start_postgres, stop_postgres
from noetl_ray.events.envelope import encode_record
from noetl_ray.lake.filling import fill_readmodel
from noetl_ray.lake.source import open_log
from noetl_ray.readmodel.postgres_store import PostgresProjectionStore
from noetl_ray.readmodel.schema import migrate
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.wal.port import Recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from noetl_ray.events.envelope import Record

EVENTS_PER_EXECUTION = 8
RECORDS_PER_EXECUTION = 5
FIRST_EXECUTION = 264905531850760193
STEP = 1 << 22
"""The ids are a millisecond apart, so a million executions are of one day."""
FLUSH_EVERY = 2_000
TOKEN = "lake-bench-token"
CHUNK = 1_000


class _Taking:
    """A log that only takes: positions count up, records are handed on."""

    def __init__(self) -> None:
        self.position = 0
        self.taken: list[tuple[int, str, bytes]] = []

    async def append(self, subject: str, record: Record, *, expected_version: int | None) -> int:
        """Take a record; nobody else writes, so its position is known."""
        del expected_version
        self.position += 1
        self.taken.append((self.position, subject, encode_record(record)))
        return self.position


@dataclass(frozen=True, kw_only=True)
class World:
    """Addresses, and what lies there."""

    folder: Path
    log: dict[str, Any]
    dsn: str
    executions: int
    records: int
    events: int
    record_bytes: int


@contextlib.contextmanager
def servers() -> Iterator[tuple[Path, dict[str, Any], str]]:
    """NATS and Postgres of the bench's own, in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nl-"))
    # The embedded Postgres may run as another user, who must reach its folder.
    folder.chmod(0o711)
    (folder / "nats").mkdir()
    server = start_nats(folder / "nats", token=TOKEN, durability="process", detached=False)
    try:
        postgres = start_postgres(folder / "postgres", detached=False)
        log = {
            "url": server.url,
            "token": server.token,
            "stream": "noetl_events",
            "durability": "process",
        }
        yield folder, log, postgres.dsn
    finally:
        stop_postgres(folder / "postgres")
        stop_nats(server)
        shutil.rmtree(folder, ignore_errors=True)


async def generated(executions: int) -> AsyncIterator[list[Recorded]]:
    """The records of so many executions, some executions at a time, in order of position."""
    log = _Taking()
    writer = HistoryWriter(log)  # type: ignore[arg-type] # it only appends
    for number in range(executions):
        await writer.run(FIRST_EXECUTION + number * STEP)
        if len(log.taken) >= CHUNK or number == executions - 1:
            yield [
                Recorded(position=position, subject=subject, time_ms=0, data=data)
                for position, subject, data in log.taken
            ]
            log.taken = []


async def fill(folder: Path, log: dict[str, Any], dsn: str, executions: int) -> World:
    """Generate everything into the servers."""
    await (await _stream(log)).close()
    connection = await nats.connect(log["url"], token=log["token"])
    await migrate(dsn)
    store = await PostgresProjectionStore.open(dsn)
    records = size = 0
    marks: dict[str, int] = {}
    try:
        async for several in generated(executions):
            for recorded in several:
                await connection.publish(recorded.subject, recorded.data)
                size += len(recorded.data)
            await connection.flush()
            records += len(several)
            marks = await fill_readmodel(store, several, with_events=False, marks=marks)
    finally:
        await store.close()
        await connection.close()
    opened = await _stream(log)
    stored = await opened.last_position()
    await opened.close()
    if stored != records:
        msg = f"the stream took {stored} of {records} records"
        raise RuntimeError(msg)
    return World(
        folder=folder,
        log=log,
        dsn=dsn,
        executions=executions,
        records=records,
        events=executions * EVENTS_PER_EXECUTION,
        record_bytes=size,
    )


async def _stream(log: dict[str, Any]) -> Any:
    return await open_log(log)


async def plant(dsn: str, number: int) -> int:
    """Flip one field in one row; gives the execution it belongs to."""
    import asyncpg

    execution = FIRST_EXECUTION + number * STEP
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET noetl.operator = 'on'")
        await connection.execute(
            "UPDATE noetl.command SET worker_id = 'flipped' WHERE execution_id = $1", execution
        )
    finally:
        await connection.close()
    return execution


def made(executions: int) -> tuple[World, contextlib.ExitStack]:
    """A filled world, and what ends its servers."""
    stack = contextlib.ExitStack()
    try:
        folder, log, dsn = stack.enter_context(servers())
        return asyncio.run(fill(folder, log, dsn, executions)), stack
    except BaseException:
        stack.close()
        raise
