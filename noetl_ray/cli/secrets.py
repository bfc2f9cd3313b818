"""``credential add | list | remove``: secrets go in, never out.

Data are read from a file or from stdin, never from an argument, which other users of the machine
could see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, ask, read_input
from noetl_ray.cli.render import cut, plain
from noetl_ray.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl_ray.cli.context import Context


def credential(context: Context) -> int:
    """Do what ``ACTION`` says."""
    actions: dict[str, Callable[[Context], int]] = {
        "add": _add,
        "list": _list,
        "remove": _remove,
    }
    return actions[context.args.action](context)


def _add(context: Context) -> int:
    args = context.args
    data = _data(read_input(args.data_file))
    ask(
        context,
        lambda client: client.credential_add(
            args.name, args.type, data, description=args.description
        ),
    )
    if context.json:
        context.emit({"name": args.name, "type": args.type, "fields": sorted(data)})
    else:
        context.say(f"credential {args.name} is kept, encrypted")
    return COMPLETED


def _list(context: Context) -> int:
    found = [plain(each) for each in ask(context, lambda client: client.credential_list())]
    if context.json:
        for item in found:
            context.emit(item)
    elif not found:
        context.say("no credentials; add one with: noetl-ray credential add NAME --data-file FILE")
    else:
        table = Table(box=None, pad_edge=False)
        for title in ("name", "type", "fields", "description"):
            table.add_column(title)
        for item in found:
            table.add_row(
                Text(str(item.get("name", ""))),
                Text(str(item.get("type", ""))),
                Text(", ".join(str(field) for field in item.get("fields") or ())),
                Text(cut(str(item.get("description") or ""))),
            )
        context.out.print(table)
    return COMPLETED


def _remove(context: Context) -> int:
    name = context.args.name
    removed = ask(context, lambda client: client.credential_remove(name))
    if not removed:
        msg = f"there is no credential {name!r}; see them with: noetl-ray credential list"
        raise NotFoundError(msg)
    if context.json:
        context.emit({"name": name, "removed": True})
    else:
        context.say(f"credential {name} is gone")
    return COMPLETED


def _data(text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        # The parser's message quotes the text, which is secret.
        msg = "the data are neither JSON nor YAML"
        raise UsageError(msg) from None
    if not isinstance(data, dict) or not data or not all(isinstance(key, str) for key in data):
        msg = "the data must be a mapping of names to values"
        raise UsageError(msg)
    return data
