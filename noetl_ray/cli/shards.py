"""``shards``: who owns which shard, since when, and how far it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, ask
from noetl_ray.cli.render import plain, short_time

if TYPE_CHECKING:
    from noetl_ray.cli.context import Context
    from noetl_ray.client import Client


def shards(context: Context) -> int:
    """Every shard that was ever claimed, in order."""

    async def call(client: Client) -> list[dict[str, Any]]:
        return await client.shards()

    found = ask(context, call)
    if context.json:
        for item in found:
            context.emit(plain(item))
    elif found:
        context.out.print(_table(found))
    else:
        context.say("no shard has been claimed yet")
    return COMPLETED


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("shard", "owner", "epoch", "since", "why", "checkpoint", "kept at", "unsaved"):
        table.add_column(title)
    for row in rows:
        live = row["live"]
        owner = live["owner"] if live else f"{row['owner_runtime_id'] or '-'} (silent)"
        table.add_row(
            str(row["shard_id"]),
            Text(owner),
            str(live["epoch"] if live else row["epoch"] or "-"),
            short_time(row["claimed_at"]),
            Text(row["reason"] or "-"),
            str(row["checkpoint_position"] or "-"),
            short_time(row["committed_at"]),
            f"{live['checkpoint_age_ms']} ms" if live else "-",
        )
    return table
