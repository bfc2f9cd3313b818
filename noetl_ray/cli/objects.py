"""``objects``: the domain objects that results are about, and how one came to be what it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, ask
from noetl_ray.cli.render import cut, plain, short_time, styled
from noetl_ray.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.cli.context import Context
    from noetl_ray.client import Client


def objects(context: Context) -> int:
    """All objects, those of a type, or the history of one."""
    args = context.args
    one = args.object_id is not None

    async def call(client: Client) -> Any:
        if one:
            return await client.business_object_history(
                args.object_type, args.object_id, limit=args.limit
            )
        return await client.business_objects(args.object_type, status=args.status, limit=args.limit)

    found = [plain(each) for each in ask(context, call)]
    if one and args.status is not None:
        found = [each for each in found if each["status"] == args.status]
    if one and not found:
        msg = (
            f"nothing was said about {args.object_type} {args.object_id!r}; "
            f"see what there is with: noetl-ray objects {args.object_type}"
        )
        raise NotFoundError(msg)
    if context.json:
        for item in found:
            context.emit(item)
    elif found:
        context.out.print(_table(found, one=one))
    else:
        context.say("no business objects; tasks name them with spec.business_object")
    return COMPLETED


def _table(rows: Sequence[dict[str, Any]], *, one: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    about = ("recorded", "status") if one else ("type", "id", "status", "recorded")
    for title in (*about, "execution", "step", "attributes"):
        table.add_column(title, no_wrap=title == "execution")
    for row in rows:
        time = short_time(row["recorded_at"])
        status = styled(row["status"] or "-")
        first = (
            (time, status) if one else (Text(str(row["type"])), Text(str(row["id"])), status, time)
        )
        table.add_row(
            *first,
            str(row["execution_id"]),
            Text(str(row["step"] or "-")),
            Text(cut(json.dumps(row["attributes"], ensure_ascii=False, default=str))),
        )
    return table
