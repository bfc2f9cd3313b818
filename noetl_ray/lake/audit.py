"""The bulk audit: every execution of a window folded anew and held against the read model.

The fold is the conductor's, the rows are the projector's, the six checksums are those of a replay
(VAL-1); only the number differs. Executors fold what their task has and read the rows of those
executions from the read model themselves. Owns what counts as comparable. Refuses to mend.
"""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl_ray.errors import NoetlError
from noetl_ray.lake.histories import executions, held, over_ranges, ranges, window
from noetl_ray.readmodel.postgres_pool import close_pool, open_pool
from noetl_ray.readmodel.postgres_whole import read_many
from noetl_ray.replay.divergence import Divergence, compare
from noetl_ray.results.redact import mask
from noetl_ray.scope import scope_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.lake.histories import Key, Range
    from noetl_ray.readmodel.postgres_pool import Connection
    from noetl_ray.readmodel.records import ExecutionRows
    from noetl_ray.wal.port import Recorded

READ_AT_ONCE = 200
"""Executions whose rows are asked for together."""
LISTED_MAX = 1_000
_SCHEMA = "kind string, told string"


class Counts(msgspec.Struct, kw_only=True):
    """What one task, or the whole audit, looked at."""

    executions: int = 0
    """Of the window."""
    records: int = 0
    events: int = 0
    matched: int = 0
    differing: int = 0
    ahead: int = 0
    """The read model knows records that the lake does not have yet."""
    missing: int = 0
    """The read model has nothing of them, although it is past them."""
    unprojected: int = 0
    """The read model is not as far as their first record."""
    unreadable: int = 0
    """They cannot be folded; those are listed."""

    def add(self, other: Counts) -> None:
        """Take another task's counts in."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def audit(spark: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Compare the executions of a window.

    Args:
        spark: The session.
        arguments: ``lake`` place, ``dsn`` of the read model; ``first_day``, ``last_day`` and
            ``tenant`` bound the window.

    Returns:
        The counts, ``mismatches`` (at most ``LISTED_MAX``) and ``problems``, ``position`` of the
        lake, ``took_s``.
    """
    began = time.monotonic()
    place, dsn = arguments["lake"], arguments["dsn"]
    snapshot = held(place)
    bounds = {name: str(arguments.get(name) or "") for name in ("first_day", "last_day", "tenant")}
    parts = window(snapshot, **bounds)
    position = snapshot.position
    total, mismatches, problems = Counts(), [], []

    def work(one: Range) -> pa.RecordBatch:
        return _told(check_all(dsn, position, executions(place, one)))

    cut = ranges(parts, spark.sparkContext.defaultParallelism)
    for row in over_ranges(spark, cut, _SCHEMA, work):
        match row["kind"]:
            case "counts":
                total.add(msgspec.json.decode(row["told"], type=Counts))
            case "differs":
                mismatches.append(msgspec.json.decode(row["told"]))
            case _:
                problems.append(msgspec.json.decode(row["told"]))
    order = ("tenant_id", "organization_id", "execution_id")
    mismatches.sort(key=lambda found: tuple(found[key] for key in order))
    return {
        **msgspec.to_builtins(total),
        "mismatches": mismatches[:LISTED_MAX],
        "problems": problems[:LISTED_MAX],
        "position": position,
        "took_s": round(time.monotonic() - began, 3),
    }


def check_all(
    dsn: str, position: int, given: Iterable[tuple[Key, list[Recorded]]]
) -> tuple[Counts, list[Divergence], list[dict[str, Any]]]:
    """Runs on an executor: hold executions against the read model, many at a time."""
    counts = Counts()
    found: list[Divergence] = []
    problems: list[dict[str, Any]] = []

    async def run() -> None:
        # It reads every scope, as the projector does.
        pool = await open_pool(dsn, size_max=1, operator=True)
        try:
            async with pool.acquire() as connection:
                source = iter(given)
                while several := list(islice(source, READ_AT_ONCE)):
                    await _check_several(connection, position, several, counts, found, problems)
        finally:
            await close_pool(pool)

    asyncio.run(run())
    return counts, found, problems


async def _check_several(
    connection: Connection,
    position: int,
    several: list[tuple[Key, list[Recorded]]],
    counts: Counts,
    found: list[Divergence],
    problems: list[dict[str, Any]],
) -> None:
    live: dict[Key, ExecutionRows] = {}
    for tenant, organization in dict.fromkeys(key[:2] for key, _ in several):
        ids = [key[2] for key, _ in several if key[:2] == (tenant, organization)]
        rows = await read_many(connection, scope_of(tenant, organization), ids)
        live |= {(tenant, organization, one): row for one, row in rows.items()}
    marks = await connection.fetch(
        "SELECT min(last_projected_position) AS mark FROM noetl.projection_checkpoint"
    )
    mark = marks[0]["mark"] or 0
    for key, records in several:
        counts.executions += 1
        counts.records += len(records)
        try:
            counts.events += sum(len(recorded.record.events) for recorded in records)
            _check(key, records, live.get(key), position, mark, counts, found)
        except NoetlError as error:
            counts.unreadable += 1
            problems.append({"execution_id": key[2], "tenant_id": key[0], "reason": error.message})


def _check(
    key: Key,
    records: list[Recorded],
    live: ExecutionRows | None,
    position: int,
    mark: int,
    counts: Counts,
    found: list[Divergence],
) -> None:
    if live is None and mark < records[0].position:
        counts.unprojected += 1
        return
    if live is None:
        counts.missing += 1
        found.append(
            Divergence(
                tenant_id=key[0], organization_id=key[1], execution_id=key[2],
                surfaces=["execution"], surface="execution", path="",
                replay="there", live=None, position=records[0].position,
                event_id=records[0].record.events[0].event_id,
                event_type=str(records[0].record.events[0].event_type),
            )
        )  # fmt: skip
        return
    if _newest(live) > position:
        counts.ahead += 1
        return
    divergence = compare(records, live)
    if divergence is None:
        counts.matched += 1
    else:
        counts.differing += 1
        found.append(divergence)


def _newest(live: ExecutionRows) -> int:
    """The newest record any of the rows knows of."""
    found = [live.execution.last_position]
    found += [row.position for row in live.commands]
    found += [row.position for row in live.stages]
    found += [row.position for row in live.frames]
    return max(found)


def _told(
    answer: tuple[Counts, list[Divergence], list[dict[str, Any]]],
) -> pa.RecordBatch:
    counts, found, problems = answer
    rows = [("counts", msgspec.json.encode(counts).decode())]
    # Where two sides differ may be in what a result says of a secret.
    rows += [
        ("differs", msgspec.json.encode(mask(msgspec.to_builtins(each))).decode()) for each in found
    ]
    rows += [("problem", msgspec.json.encode(each).decode()) for each in problems]
    kinds, told = zip(*rows, strict=True)
    arrays = [pa.array(kinds, pa.string()), pa.array(told, pa.string())]
    return pa.RecordBatch.from_arrays(arrays, ["kind", "told"])
