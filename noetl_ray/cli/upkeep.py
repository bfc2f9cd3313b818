"""``gc``, ``repair`` and ``trace``: what stored results are needed, sound, and made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, FAILED, ask

if TYPE_CHECKING:
    from noetl_ray.cli.context import Context

_MEANING = {
    "live": "belongs to an execution the log has",
    "young": "too young to be looked at",
    "archived": "belongs to an archived execution",
    "pinned": "its task said `scope: permanent`",
    "referenced": "something names it",
    "unparsed": "not a result or payload",
    "orphan": "its execution is gone, or nothing names it",
    "expired": "its task said how long it is wanted, and that is over",
    "deleted": "deleted now",
    "failed": "could not be deleted, found again next time",
}


def gc(context: Context) -> int:
    """Show what may go; with --delete, let it go. 1 when something could not be deleted."""
    dry_run = not context.args.delete
    found = ask(context, lambda client: client.collect_garbage(dry_run=dry_run))
    if context.json:
        context.emit(found)
    else:
        table = Table(box=None, pad_edge=False)
        for title in ("outcome", "objects", "meaning"):
            table.add_column(title, justify="right" if title == "objects" else "left")
        for outcome, count in found["counts"].items():
            table.add_row(Text(outcome), str(count), Text(_MEANING.get(outcome, "")))
        context.out.print(table)
        for key in found["candidates"]:
            context.out.print(f"  {key}", highlight=False, soft_wrap=True)
        may_go = found["counts"].get("orphan", 0) + found["counts"].get("expired", 0)
        if dry_run and may_go:
            context.say(
                f"{may_go} objects, {found['reclaimable_bytes']} bytes may go; "
                "nothing was deleted. Delete them with: noetl-ray gc --delete"
            )
    return FAILED if found["counts"].get("failed") else COMPLETED


def repair(context: Context) -> int:
    """Verify and rebuild; 1 when bytes are lost, could not be written, or need a repair."""
    args = context.args
    found = ask(context, lambda client: client.repair(args.id, dry_run=args.dry_run))
    counts = found["counts"]
    if context.json:
        context.emit(found)
    else:
        names = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing stored"
        context.out.print(Text(f"objects: {names}"))
        for each in found["findings"]:
            source = f" from {each['source']}" if "source" in each else ""
            fate = "can be rebuilt" if args.dry_run and each["fate"] == "rebuilt" else each["fate"]
            line = f"  {each['uri']}  copy {each['copy']} {each['state']}: {fate}{source}"
            context.out.print(Text(line), soft_wrap=True)
    bad = ("lost", "unwritten", *(("rebuilt",) if args.dry_run else ()))
    return FAILED if any(counts.get(name) for name in bad) else COMPLETED


def trace(context: Context) -> int:
    """The chain of results, the step's own first."""
    found = ask(context, lambda client: client.trace(context.args.id, context.args.step))
    if context.json:
        context.emit(found)
        return COMPLETED
    table = Table(box=None, pad_edge=False)
    for title in ("step", "visit", "status", "made from", "where it lies"):
        table.add_column(title)
    for link in found["links"]:
        reference = link["result_ref"] or {}
        sources = ", ".join(each["step"] for each in link["made_from"])
        table.add_row(
            Text(link["step_name"]),
            str(link["visit"]),
            Text(link["status"]),
            Text(sources or "-"),
            Text(reference.get("uri", "in the event")),
        )
    context.out.print(table)
    if found["cut"]:
        context.say("the chain is longer; this is its newest part")
    return COMPLETED
