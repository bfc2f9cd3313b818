"""Looking at executions: list, status, events, logs, result."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from noetl_ray.cli.context import COMPLETED, ask, open_client, the_gateway
from noetl_ray.cli.render import (
    data_table,
    event_line,
    executions_table,
    log_line,
    plain,
    status_view,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from noetl_ray.cli.context import Context
    from noetl_ray.client import Client


CHILDREN_MAX = 50
"""Children a status shows, newest first; `list --parent` has the rest."""


def list_executions(context: Context) -> int:
    """Executions, newest first."""
    args = context.args
    found = ask(
        context,
        lambda client: client.executions(
            status=args.status, path=args.path, parent=args.parent, limit=args.limit
        ),
    )
    rows = [plain(each) for each in found]
    if context.json:
        for row in rows:
            context.emit(row)
    elif rows:
        context.out.print(executions_table(rows))
    else:
        context.say("no executions; start one with: noetl-ray run PLAYBOOK")
    return COMPLETED


def status(context: Context) -> int:
    """One execution, and those it asked for."""
    own = context.args.id

    async def look(client: Client) -> tuple[Any, list[Any]]:
        found = await client.execution(own)
        return found, await client.executions(parent=own, limit=CHILDREN_MAX)

    execution, children = ask(context, look)
    found = plain(execution)
    if children:
        found["children"] = [
            {key: row[key] for key in ("execution_id", "path", "status", "started_at", "ended_at")}
            for row in map(plain, children)
        ]
    if context.json:
        context.emit(found)
    else:
        context.out.print(status_view(found))
    return COMPLETED


def events(context: Context) -> int:
    """The log of one execution, one line per event."""
    args = context.args
    return _stream(
        context,
        lambda client: client.events(args.id, after=args.after, follow=args.follow),
        event_line,
        f"no events of execution {args.id} after position {args.after}",
    )


def logs(context: Context) -> int:
    """What the tasks printed."""
    args = context.args
    return _stream(
        context,
        lambda client: client.logs(args.id, step=args.step, follow=args.follow),
        log_line,
        f"nothing was printed by execution {args.id}",
    )


def result(context: Context) -> int:
    """What a step gave, as rows when it is rows."""
    args = context.args
    found = ask(context, lambda client: client.result(args.id, args.step))
    if context.json:
        context.emit(found)
        return COMPLETED
    table = data_table(found)
    if table is not None:
        context.out.print(table)
    else:
        text = json.dumps(found, indent=2, default=str, ensure_ascii=False)
        context.out.print(text, markup=False, highlight=context.out.is_terminal, soft_wrap=True)
    return COMPLETED


def _stream(
    context: Context,
    source: Callable[[Client], AsyncIterator[Any]],
    line: Callable[[Any], str],
    nothing: str,
) -> int:
    gateway = the_gateway(context)

    async def show() -> int:
        shown = 0
        async with open_client(context, gateway) as client:
            async for found in source(client):
                item = plain(found)
                shown += 1
                if context.json:
                    context.emit(item)
                else:
                    context.out.print(line(item), markup=False, highlight=False, soft_wrap=True)
        return shown

    if asyncio.run(show()) == 0:
        context.say(nothing)
    return COMPLETED
