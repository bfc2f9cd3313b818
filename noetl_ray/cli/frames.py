"""``frames``: the windows of rows that the cursor loops of an execution work off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, ask
from noetl_ray.cli.render import cut, error_text, plain, short_time, styled, took

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.cli.context import Context
    from noetl_ray.client import Client

Rows = list[dict[str, Any]]


def frames(context: Context) -> int:
    """Stages of an execution and their frames, last changed first."""
    args = context.args

    async def call(client: Client) -> tuple[Rows, Rows]:
        await client.status(args.id)  # an unknown execution is an error, not an empty list
        stages = await client.stages(args.id)
        return stages, await client.frames(args.id, status=args.status, limit=args.limit)

    stages, found = ask(context, call)
    if context.json:
        for item in (*stages, *found):
            context.emit(plain(item))
    elif stages:
        context.out.print(Group(_stages(stages), Text(""), _frames(found)))
    else:
        context.say("no frames; loops with `spec: {mode: cursor}` have them")
    return COMPLETED


def _stages(rows: Sequence[dict[str, Any]]) -> Table:
    table = _table("stage", "status", "rows", "failed", "frames", "took")
    for row in rows:
        stats = row["stats"] or {}
        table.add_row(
            Text(f"{row['step_name']} #{row['visit']}"),
            styled(row["status"]),
            str(stats.get("total", "-")),
            str(stats.get("failed", "-")),
            str(stats.get("frames", "-")),
            took(row["started_at"], row["ended_at"]),
        )
    return table


def _frames(rows: Sequence[dict[str, Any]]) -> Table:
    table = _table("frame", "status", "rows", "tries", "worker", "since", "error")
    for row in rows:
        table.add_row(
            Text(str(row["frame_id"])),
            styled(row["status"]),
            "-" if row["row_count"] is None else str(row["row_count"]),
            str(row["attempts"]),
            Text(str(row["owner_worker"] or "-")),
            short_time(row["created_at"]),
            Text(cut(error_text(row["error"]))),
        )
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=title == "frame")
    return table
