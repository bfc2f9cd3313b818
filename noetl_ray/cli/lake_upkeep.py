"""``lake audit`` and ``lake archive``: the history held against the read model, and put away.

Both bring the lake up to date first, because they look at nothing else. Owns what people are told;
the jobs decide what is comparable and what is proven.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED, FAILED
from noetl_ray.cli.render import cut
from noetl_ray.lake.archive import DAY_MS
from noetl_ray.lake.files import lake_place

if TYPE_CHECKING:
    from noetl_ray.cli.context import Context
    from noetl_ray.config.settings import Settings

BUILD = "noetl_ray.lake.build:build"
Job = tuple[str, dict[str, Any]]


def audit(context: Context) -> int:
    """Fold every execution of the window, compare; 1 when something differs."""
    from noetl_ray.cli.lake import reached_settings, run_job

    settings = reached_settings(context)
    asked = {
        "lake": lake_place(settings),
        "dsn": settings.projection_stores.dsn,
        **_bounds(context),
    }
    jobs = [*_building(context, settings), ("noetl_ray.lake.audit:audit", asked)]
    found = run_job(context, settings, jobs)[-1]
    if context.json:
        context.emit(found)
    else:
        _show_audit(context, found)
    return FAILED if found["mismatches"] or found["problems"] else COMPLETED


def archive(context: Context) -> int:
    """Put finished executions away and, where that is switched on, trim what is put away."""
    from noetl_ray.cli.lake import reached_settings, run_job
    from noetl_ray.lake.source import log_place
    from noetl_ray.lake.tier import tier_place
    from noetl_ray.scope import Scope

    settings = reached_settings(context)
    days = settings.lake.retention_days if context.args.days is None else context.args.days
    trims = settings.lake.compactor_enabled or context.args.trim
    tier = tier_place(settings, Scope())
    asked = {
        "lake": lake_place(settings),
        "tier": tier,
        "before_ms": int(time.time() * 1_000) - days * DAY_MS,
        **_bounds(context),
    }
    jobs = [*_building(context, settings), ("noetl_ray.lake.archive:archive", asked)]
    if trims:
        removal = {"tier": tier, "log": log_place(settings), "dsn": settings.projection_stores.dsn}
        jobs.append(("noetl_ray.lake.trim:trim", removal))
    answers = run_job(context, settings, jobs)
    kept, removed = (answers[-2], answers[-1]) if trims else (answers[-1], None)
    if context.json:
        context.emit({"archive": kept, "trim": removed})
    else:
        _show_archive(context, kept, removed, days)
    failed = kept["problems"] or (removed or {}).get("problems")
    return FAILED if failed else COMPLETED


def _building(context: Context, settings: Settings) -> list[Job]:
    if context.args.no_build:
        return []
    from noetl_ray.lake.source import log_place

    given = {"lake": lake_place(settings), "log": log_place(settings)}
    return [(BUILD, {**given, "split_records": settings.lake.split_records})]


def _bounds(context: Context) -> dict[str, str]:
    args = context.args
    return {"first_day": args.first or "", "last_day": args.last or "", "tenant": args.tenant or ""}


def _show_audit(context: Context, found: dict[str, Any]) -> None:
    compared = found["matched"] + found["differing"]
    context.out.print(
        f"{compared} executions compared ({found['events']:,} events folded) in "
        f"{found['took_s']:g} s: {found['matched']} match, {found['differing']} differ, "
        f"{found['missing']} missing",
        highlight=False,
    )
    for name, text in (
        ("ahead", "are ahead of the lake; build again"),
        ("unprojected", "are not in the read model yet"),
        ("unreadable", "cannot be folded"),
    ):
        if found[name]:
            context.say(f"{found[name]} executions {text}")
    for problem in found["problems"]:
        context.out.print(f"{problem['execution_id']}: {problem['reason']}", highlight=False)
    if not found["mismatches"]:
        return
    table = Table(box=None, pad_edge=False)
    for column in ("execution", "where", "log", "read model", "first diverging event"):
        table.add_column(column)
    for one in found["mismatches"]:
        where = f"{one['surface']}.{one['path']}".rstrip(".")
        event = "no event of the log"
        if one["position"] is not None:
            event = f"{one['event_type']} at {one['position']}"
        shown = [cut(json.dumps(one[side], default=str)) for side in ("replay", "live")]
        table.add_row(*(Text(str(cell)) for cell in (one["execution_id"], where, *shown, event)))
    context.out.print(table)


def _show_archive(
    context: Context, kept: dict[str, Any], removed: dict[str, Any] | None, days: int
) -> None:
    context.out.print(
        f"archived {kept['executions']} executions that ended over {days} days ago: "
        f"{kept['events']:,} events in {kept['segments']} segments, {kept['bytes']:,} bytes, "
        f"{kept['took_s']:g} s",
        highlight=False,
    )
    for problem in kept["problems"]:
        context.out.print(
            f"kept back {problem['execution_id']}: {problem['reason']}", highlight=False
        )
    if removed is None:
        context.say("nothing was removed: lake.compactor_enabled is off; --trim does it once")
        return
    context.out.print(
        f"trimmed {removed['executions']} executions: {removed['purged']:,} records of the log, "
        f"{removed['deleted']:,} rows of events; {removed['events_per_second']:,} events/s",
        highlight=False,
    )
    for problem in removed["problems"]:
        context.out.print(f"left alone: {problem['reason']}", highlight=False)
