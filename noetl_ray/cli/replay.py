"""``replay``: an execution folded anew from the log and held against the read model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, FAILED, ask
from noetl_ray.cli.render import cut

if TYPE_CHECKING:
    from rich.console import RenderableType

    from noetl_ray.cli.context import Context


def replay(context: Context) -> int:
    """Fold from the log, compare, show the six checksums; 1 when the two sides differ."""
    args = context.args
    moment = {
        "position": args.as_of_position,
        "time": args.as_of_time,
        "event_id": args.as_of_event,
    }
    if any(value is not None for value in moment.values()):
        found = ask(context, lambda client: client.replay(args.id, **moment))
    else:
        found = ask(context, lambda client: client.replay(args.id, compare=True))
    parity = found.get("parity")
    if context.json:
        context.emit(found)
    else:
        context.out.print(_view(found, parity))
    return COMPLETED if parity is None or parity["matches"] else FAILED


def _view(found: dict[str, Any], parity: dict[str, Any] | None) -> Group:
    live = (parity or {}).get("live_checksums") or {}
    table = Table(box=None, pad_edge=False)
    for title in ("surface", "from the log", *(("read model",) if parity else ())):
        table.add_column(title, no_wrap=True)
    for name, checksum in found["projection_checksums"].items():
        cells = [Text(name), Text(checksum[:16])]
        if parity:
            theirs = live.get(name)
            mark = "-" if theirs is None else "same" if theirs == checksum else theirs[:16]
            cells.append(Text(mark, style="" if mark == "same" else "red"))
        table.add_row(*cells)
    lines: list[RenderableType] = [
        Text(
            f"execution {found['execution_id']} {found['status']}, {found['event_count']} events, "
            f"position {found['position']} ({found['as_of']})"
        ),
        Text(""),
        table,
    ]
    if parity is not None:
        lines += [Text(""), _verdict(parity)]
    return Group(*lines)


def _verdict(parity: dict[str, Any]) -> Text:
    if parity["matches"]:
        return Text("the read model matches the log")
    if parity["live_checksums"] is None:
        return Text("the read model does not have this execution (yet)")
    first = parity["first_difference"]
    shown = {side: cut(json.dumps(first[side], default=str)) for side in ("replay", "live")}
    return Text(
        f"first difference: {first['surface']}.{first['path']}\n"
        f"  log:        {shown['replay']}\n  read model: {shown['live']}"
    )
