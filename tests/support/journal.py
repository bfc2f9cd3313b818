"""What the servers of a running set really hold, read past every layer of the product's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import nats

from actors.local import LocalSet
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.port import Recorded

READ_S = 30.0


@asynccontextmanager
async def open_log(running: LocalSet) -> AsyncIterator[JetStreamLog]:
    """The event log of a set."""
    log = await JetStreamLog.open(running.nats_url, token=running.nats_token or None)
    try:
        yield log
    finally:
        await log.close()


def records_of(running: LocalSet, execution_id: int) -> list[Recorded]:
    """Everything the log holds of one execution, in order."""

    async def read() -> list[Recorded]:
        async with open_log(running) as log:
            found = [each async for each in log.read(f"noetl.events.*.*.*.{execution_id}.>")]
            if not any(each.subject.endswith(".submit") for each in found):
                # A request with an idempotency key lies on a subject that the key names.
                async for each in log.read("noetl.events.*.*.*.*.submit"):
                    if each.record.events[0].execution_id == execution_id:
                        found.insert(0, each)
            return found

    return asyncio.run(asyncio.wait_for(read(), READ_S))


def raw_messages(running: LocalSet) -> dict[str, list[bytes]]:
    """Every message of every stream, headers included, as NATS stores it."""

    async def read() -> dict[str, list[bytes]]:
        client = await nats.connect(running.nats_url, token=running.nats_token or None)
        try:
            manager = client.jetstream()
            found: dict[str, list[bytes]] = {}
            for info in await manager.streams_info():
                name, state = info.config.name, info.state
                found[name] = [
                    await _message(manager, name, sequence)
                    for sequence in range(state.first_seq, state.last_seq + 1)
                ]
            return found
        finally:
            await client.close()

    return asyncio.run(asyncio.wait_for(read(), READ_S))


async def _message(manager: Any, stream: str, sequence: int) -> bytes:
    try:
        message = await manager.get_msg(stream, sequence)
    except nats.js.errors.NotFoundError:
        return b""
    headers = repr(message.headers or {}).encode()
    return b"\n".join([message.subject.encode(), headers, message.data or b""])


def fetch(dsn: str, query: str, *values: Any) -> list[dict[str, Any]]:
    """Rows of a query."""

    async def ask() -> list[dict[str, Any]]:
        # Rows belong to tenants; only an operator sees them all.
        everything = {"noetl.operator": "on"}
        connection = await asyncpg.connect(dsn, timeout=READ_S, server_settings=everything)
        try:
            return [dict(row) for row in await connection.fetch(query, *values)]
        finally:
            await connection.close()

    return asyncio.run(asyncio.wait_for(ask(), READ_S))


def tables_as_text(dsn: str, schema: str = "noetl") -> dict[str, list[str]]:
    """Every row of every table of a schema, written out."""
    names = fetch(
        dsn,
        "SELECT c.relname::text AS name FROM pg_class c JOIN pg_namespace n"
        " ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
        schema,
    )
    return {
        row["name"]: [
            found["text"]
            for found in fetch(dsn, f'SELECT t::text AS text FROM "{schema}"."{row["name"]}" t')
        ]
        for row in names
    }
