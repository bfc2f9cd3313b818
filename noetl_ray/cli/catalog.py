"""``register`` and ``catalog list | show | diff``: the playbooks a gateway knows, by path.

Also owns how a playbook is named on the command line: a file, or ``PATH`` or ``PATH@VERSION`` in
the catalog.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, ask, open_client, read_input, the_gateway
from noetl_ray.cli.render import plain, short_time
from noetl_ray.cli.setup import checked_text
from noetl_ray.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl_ray.cli.context import Context
    from noetl_ray.client import Client, PlaybookText

FILES_MAX = 1_000
_SUFFIXES = (".yaml", ".yml")
_PLAYBOOK = re.compile(r"^apiVersion:\s*['\"]?noetl\.io/", re.MULTILINE)
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A path in the catalog; version None is the newest."""

    path: str
    version: int | None = None


def named(text: str, version: int | None = None) -> Named:
    """``PATH`` or ``PATH@VERSION``; ``@latest`` is the newest.

    Raises:
        UsageError: two versions are named, or none that can be.
    """
    path, mark, given = text.rpartition("@")
    if not mark or not (given == "latest" or (given.isascii() and given.isdigit())):
        return Named(path=text, version=version)
    if not path or given == "0":
        msg = f"{text!r} names no playbook: write PATH or PATH@VERSION, versions begin at 1"
        raise UsageError(msg)
    if version is not None:
        msg = f"name the version once, with {text!r} or with --version {version}"
        raise UsageError(msg)
    return Named(path=path, version=None if given == "latest" else int(given))


def is_file_name(text: str) -> bool:
    """Whether a playbook's name is meant as a file: it is one, or looks like one."""
    if text == "-" or Path(text).is_file():
        return True
    return text.endswith((*_SUFFIXES, ".json")) or text.startswith(("./", "../", "~"))


def register(context: Context) -> int:
    """Register every file; all are checked before the first is sent."""
    from noetl_ray.dsl.parse import parse_playbook

    texts: dict[str, str] = {}
    paths: dict[str, str] = {}
    for source in _sources(context, context.args.files):
        texts[source] = checked_text(context, source)
        path = parse_playbook(texts[source]).path
        if path in paths:
            msg = f"{paths[path]} and {source} are both {path!r}; register them one after the other"
            raise UsageError(msg)
        paths[path] = source
    gateway = the_gateway(context)

    async def send() -> list[dict[str, Any]]:
        done = []
        async with open_client(context, gateway) as client:
            for source, text in texts.items():
                found = {**plain(await client.register(text)), "file": source}
                done.append(found)
                if context.json:
                    context.emit(found)
        return done

    done = asyncio.run(send())
    if not context.json:
        rows = [(each["path"], each["version"], each["status"], each["file"]) for each in done]
        context.out.print(_table(("path", "version", "status", "file"), rows))
    return COMPLETED


def catalog(context: Context) -> int:
    """Do what ``ACTION`` says."""
    actions: dict[str, Callable[[Context], int]] = {"list": _list, "show": _show, "diff": _diff}
    return actions[context.args.action](context)


def _list(context: Context) -> int:
    args = context.args

    async def call(client: Client) -> Any:
        if args.path is not None:
            return await client.playbook_versions(args.path, limit=args.limit)
        return await client.catalog(limit=args.limit)

    found = [plain(each) for each in ask(context, call)]
    if context.json:
        for item in found:
            context.emit(item)
    elif not found:
        context.say("no playbooks; register one with: noetl-ray register FILE")
    else:
        rows = [
            (
                each["path"],
                each["version"],
                short_time(each["registered_at"]),
                each["size_bytes"],
                str(each["digest"])[:12],
            )
            for each in found
        ]
        titles = ("path", "version", "registered", "bytes", "digest")
        context.out.print(_table(titles, rows))
    return COMPLETED


def _show(context: Context) -> int:
    wanted = named(context.args.path, context.args.playbook_version)
    found = ask(context, lambda client: client.playbook(wanted.path, version=wanted.version))
    if context.json:
        context.emit(plain(found))
        return COMPLETED
    context.say(f"{found.path}@{found.version}  {short_time(found.registered_at)}")
    text = found.content if found.content.endswith("\n") else f"{found.content}\n"
    # The text itself, so that `> file` gives back what was registered.
    context.out.file.write(text)
    return COMPLETED


def _diff(context: Context) -> int:
    """From one version to another, or to a file."""
    old, new = ask(context, lambda client: _sides(context, client))
    lines = list(
        difflib.unified_diff(
            old[1].splitlines(), new[1].splitlines(), old[0], new[0], lineterm="", n=3
        )
    )
    if context.json:
        context.emit({"from": old[0], "to": new[0], "same": not lines, "diff": "\n".join(lines)})
    elif not lines:
        context.say(f"{old[0]} and {new[0]} are the same")
    for line in [] if context.json else lines:
        style = "bold" if line.startswith(("+++", "---")) else _STYLES.get(line[:1], "")
        context.out.print(Text(line, style=style), soft_wrap=True)
    return COMPLETED


async def _sides(context: Context, client: Client) -> tuple[tuple[str, str], tuple[str, str]]:
    args = context.args
    first = named(args.path)
    if args.other is None and first.version is None:
        versions = await client.playbook_versions(first.path, limit=2)
        if len(versions) < 2:
            msg = f"{first.path} has one version only; name a file to compare it with"
            raise UsageError(msg)
        before, newest = versions[1].version, versions[0].version
        return (
            _side(await client.playbook(first.path, version=before)),
            _side(await client.playbook(first.path, version=newest)),
        )
    old = _side(await client.playbook(first.path, version=first.version))
    if args.other is None:
        return old, _side(await client.playbook(first.path))
    if is_file_name(args.other):
        return old, (args.other, read_input(args.other))
    second = named(args.other)
    return old, _side(await client.playbook(second.path, version=second.version))


def _side(found: PlaybookText) -> tuple[str, str]:
    return f"{found.path}@{found.version}", found.content


def _sources(context: Context, given: Sequence[str]) -> list[str]:
    """The files named, and the playbooks below the folders named."""
    sources: dict[str, None] = {}
    for name in given:
        folder = Path(name)
        if not folder.is_dir():
            sources[name] = None
            continue
        files = sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
        if len(files) > FILES_MAX:
            msg = f"{name} holds {len(files)} YAML files, at most {FILES_MAX} at once"
            raise UsageError(msg)
        found = [str(path) for path in files if _PLAYBOOK.search(read_input(path))]
        if not found:
            msg = f"no playbooks below {name}: no YAML file there has apiVersion: noetl.io/v2"
            raise NotFoundError(msg)
        if len(found) < len(files):
            context.say(f"{len(files) - len(found)} YAML files below {name} are no playbooks")
        sources.update(dict.fromkeys(found))
    return list(sources)


def _table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in titles:
        side: Literal["left", "right"] = "right" if title in ("version", "bytes") else "left"
        table.add_column(title, justify=side, overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    return table
