"""The nine metrics of the baseline (BAS-4), and what else a run of the workload shows.

Read from the read model once the execution has ended; connections are watched while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import asyncpg

if TYPE_CHECKING:
    from pathlib import Path

POLL_S = 0.25
_OURS = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


class Connections:
    """Watches how many sessions a Postgres server has, while a block runs."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.high = 0

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching

    async def _watch(self) -> None:
        connection = await asyncpg.connect(self._dsn, timeout=30)
        try:
            while True:
                self.high = max(self.high, await connection.fetchval(_OURS))
                await asyncio.sleep(POLL_S)
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the read model says of one execution."""

    seconds: float
    events: dict[str, int]
    stages: dict[str, int]
    frames: list[dict[str, Any]] = field(repr=False)
    """Id, step, rows, attempts, metrics, and when begun and ended, seconds from the start."""

    def of_type(self, prefix: str) -> int:
        """How many events have a type that begins so."""
        return sum(n for kind, n in self.events.items() if kind.startswith(prefix))


async def told(dsn: str, execution_id: int) -> Told:
    """Ask the read model, as an operator may."""
    operator = {"noetl.operator": "on"}
    connection = await asyncpg.connect(dsn, timeout=30, server_settings=operator)
    try:
        times = await connection.fetchrow(
            "SELECT started_at, extract(epoch FROM ended_at - started_at)::float8 AS seconds"
            " FROM noetl.execution WHERE execution_id = $1",
            execution_id,
        )
        assert times is not None
        events = await connection.fetch(
            "SELECT event_type, count(*) AS n FROM noetl.event WHERE execution_id = $1 GROUP BY 1",
            execution_id,
        )
        stages = await connection.fetch(
            "SELECT status, count(*) AS n FROM noetl.stage WHERE execution_id = $1 GROUP BY 1",
            execution_id,
        )
        frames = await connection.fetch(
            "SELECT f.frame_id, s.step_name AS step, f.row_count AS rows, f.attempts, f.cursor,"
            " f.parent_frame_id IS NULL AS root,"
            " (f.command_id IS NOT NULL AND f.claimed_event_id IS NOT NULL"
            "  AND f.terminal_event_id IS NOT NULL) AS linked,"
            " extract(epoch FROM f.created_at - $2)::float8 AS began,"
            " extract(epoch FROM f.completed_at - $2)::float8 AS ended"
            " FROM noetl.frame f JOIN noetl.stage s USING (execution_id, stage_id)"
            " WHERE f.execution_id = $1 ORDER BY f.completed_at",
            execution_id,
            times["started_at"],
        )
    finally:
        await connection.close()
    return Told(
        seconds=times["seconds"],
        events={row["event_type"]: row["n"] for row in events},
        stages={row["status"]: row["n"] for row in stages},
        frames=[dict(row) | {"cursor": json.loads(row["cursor"] or "{}")} for row in frames],
    )


def nine(run: Told, rows: int, connections: int, tier3_bytes: int, nats: int) -> dict[str, Any]:
    """The nine, under names that say what they are here."""
    full = [frame for frame in run.frames if frame["rows"]]
    claims = sorted(f["cursor"].get("metrics", {}).get("claim_ms", 0.0) for f in run.frames)
    total = sum(run.events.values())
    return {
        "command_events": run.of_type("command."),
        "frames_with_rows": len(full),
        "rows_per_frame": round(sum(f["rows"] for f in full) / max(len(full), 1), 2),
        "claim_ms_p50_p95": [
            round(statistics.median(claims), 2) if claims else None,
            round(claims[int(len(claims) * 0.95)], 2) if claims else None,
        ],
        "postgres_connections_high": connections,
        "nats_restarts": nats,
        "tier3_bytes": tier3_bytes,
        "projected_events_per_s": round(total / run.seconds, 1),
        "wall_s": round(run.seconds, 2),
        "more": {
            "events": total,
            "events_per_row": round(total / max(rows, 1), 4),
            "frame_events_per_row": round(run.of_type("frame.") / max(rows, 1), 4),
            "claims_per_row": round(len(run.frames) / max(rows, 1), 4),
            "frame_ms": _parts(full),
            "frames_abandoned": run.events.get("frame.abandoned", 0),
            "frames_failed": run.events.get("frame.failed", 0),
            "stages_opened": run.events.get("stage.opened", 0),
            "stages_closed": run.events.get("stage.closed", 0),
        },
    }


def _parts(frames: list[dict[str, Any]]) -> dict[str, float]:
    """Where a frame's time goes, medians: claiming, working, and the way to its end."""
    parts: dict[str, list[float]] = {}
    for frame in frames:
        seen = frame["cursor"].get("metrics", {})
        for name in ("claim_ms", "work_ms", "render_ms", "tool_ms"):
            parts.setdefault(name, []).append(seen.get(name, 0.0))
        whole = (frame["ended"] - frame["began"]) * 1000
        parts.setdefault("whole_ms", []).append(whole)
    return {name: round(statistics.median(values), 2) for name, values in parts.items()}


def wrong_lineage(run: Told) -> list[str]:
    """What does not hold of stages and frames (FRM-3, FRM-15, BAS-2)."""
    wrong = []
    stages = sum(run.stages.values())
    opened, closed = run.events.get("stage.opened", 0), run.events.get("stage.closed", 0)
    if not stages or not opened == closed == stages:
        wrong.append(f"stages: {opened} opened, {closed} closed, {stages} rows")
    if sum(frame["root"] for frame in run.frames) != stages:
        wrong.append("not exactly one frame without a parent per stage")
    if not all(frame["linked"] for frame in run.frames):
        wrong.append("a frame lacks its command, claim or end")
    if run.events.get("frame.failed"):
        wrong.append(f"{run.events['frame.failed']} frames failed")
    return wrong


def bytes_below(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
