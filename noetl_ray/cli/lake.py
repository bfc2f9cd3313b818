"""``lake``: build the event lake, ask it, draw its report.

Jobs run on the cluster's Spark session, or where ``spark.master`` says. Questions are answered in
this process from the same files, unless Spark is asked for.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from noetl_ray.cli.context import COMPLETED
from noetl_ray.cli.lake_upkeep import archive, audit
from noetl_ray.errors import UsageError
from noetl_ray.lake.files import Files, lake_place
from noetl_ray.lake.session import LocalSpark

if TYPE_CHECKING:
    from pathlib import Path

    from noetl_ray.cli.context import Context
    from noetl_ray.config.settings import Settings
    from noetl_ray.lake.runner import Progress
    from noetl_ray.lake.session import SparkJobs

CELL_CHARS_MAX = 60


def lake(context: Context) -> int:
    """The verb and its actions."""
    actions = {
        "build": _build,
        "query": _query,
        "report": _report,
        "audit": audit,
        "archive": archive,
    }
    return actions[context.args.action](context)


def reached_settings(context: Context) -> Settings:
    """The settings with the addresses of the running set filled in.

    Raises:
        UsageError: nothing runs and no addresses are given.
    """
    settings = replace(context.settings, data_dir=str(context.data_dir.expanduser().absolute()))
    from actors.local import find

    local = find(context.data_dir)
    if local is not None:
        return replace(
            settings,
            event_store=replace(settings.event_store, url=local.nats_url, token=local.nats_token),
            projection_stores=replace(settings.projection_stores, dsn=local.postgres_dsn),
            ray=replace(settings.ray, address=local.ray_address),
        )
    if not settings.event_store.url:
        msg = (
            f"nothing runs in {context.data_dir}; start it with `noetl-ray up`, "
            "or set event_store.url"
        )
        raise UsageError(msg)
    return settings


def spark_jobs(context: Context, settings: Settings) -> SparkJobs:
    """Where jobs of these settings run."""
    if settings.spark.master not in ("", "raydp") or not settings.ray.address:
        return LocalSpark(settings.spark)
    from actors.spark_job import ClusterSpark

    return ClusterSpark(settings, context.data_dir)


def run_job(
    context: Context, settings: Settings, jobs: list[tuple[str, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Run jobs one after the other, telling a person how far they are."""
    spark = spark_jobs(context, settings)
    answers = []
    try:
        for job, arguments in jobs:
            shown = job.rpartition(":")[2]
            seen: list[Progress] = []

            def tell(progress: Progress, shown: str = shown, seen: list[Progress] = seen) -> None:
                if progress["tasks"] and (not seen or seen[-1] != progress):
                    seen.append(progress)
                    context.say(f"{shown}: {progress['done']} of {progress['tasks']} tasks")

            answers.append(spark.run(job, arguments, progress=tell))
    finally:
        if isinstance(spark, LocalSpark):
            spark.stop()
    return answers


def _build(context: Context) -> int:
    settings = reached_settings(context)
    from noetl_ray.lake.source import log_place
    from noetl_ray.lake.tier import tier_place
    from noetl_ray.scope import Scope

    place = lake_place(settings)
    jobs: list[tuple[str, dict[str, Any]]] = [
        (
            "noetl_ray.lake.build:build",
            {
                "lake": place,
                "log": log_place(settings),
                "split_records": settings.lake.split_records,
                "archive": tier_place(settings, Scope()) if context.args.from_archive else None,
            },
        )
    ]
    if not context.args.no_compact:
        compacting = {"lake": place, "parts": settings.lake.compact_parts}
        jobs.append(("noetl_ray.lake.compact:compact", compacting))
    built, *rest = run_job(context, settings, jobs)
    compacted = rest[0] if rest else None
    if context.json:
        context.emit({"build": built, "compact": compacted})
        return COMPLETED
    context.out.print(
        f"added {built['events']} events of {built['records']} records in {built['files']} files; "
        f"the lake reaches position {built['position']} of the log",
        highlight=False,
    )
    if built["unreadable"]:
        context.say(f"{built['unreadable']} records cannot be read; ask: SELECT * FROM unreadable")
    if compacted and compacted["partitions"]:
        context.out.print(
            f"made {compacted['after']} files of {compacted['before']}", highlight=False
        )
    return COMPLETED


def _query(context: Context) -> int:
    from noetl_ray.lake.query import ask
    from noetl_ray.lake.questions import QUESTIONS

    args = context.args
    if args.sql is None:
        for question in QUESTIONS.values():
            context.out.print(f"{question.name:22} {question.title}", highlight=False)
        return COMPLETED
    ready = QUESTIONS.get(args.sql)
    sql = ready.sql if ready else args.sql
    if args.spark:
        settings = reached_settings(context)
        arguments = {"lake": lake_place(settings), "sql": sql, "rows_max": args.limit}
        found = run_job(context, settings, [("noetl_ray.lake.query:run_sql", arguments)])[0]
        columns, rows = found["columns"], found["rows"]
    else:
        table = ask(Files(lake_place(context.settings)), sql, rows_max=args.limit)
        columns, rows = table.column_names, [list(row.values()) for row in table.to_pylist()]
    more = len(rows) > args.limit
    _show(context, columns, rows[: args.limit])
    if more:
        context.say(f"there are more rows; --limit {args.limit} were shown")
    return COMPLETED


def _report(context: Context) -> int:
    from noetl_ray.lake.commits import read_snapshot
    from noetl_ray.lake.questions import QUESTIONS
    from noetl_ray.lake.report import answers, picture

    files = Files(lake_place(context.settings))
    snapshot = read_snapshot(files)
    if snapshot.number == 0:
        msg = "there is no lake yet; make it with `noetl-ray lake build`"
        raise UsageError(msg)
    found = answers(files)
    events = sum(part.rows for part in snapshot.of("events"))
    heading = f"Event lake: {events:,} events, log position {snapshot.position:,}"
    out: Path = context.args.out
    out.write_bytes(picture(found, heading=heading))
    for name, table in found.items():
        if context.json:
            context.emit({"question": name, "rows": table.to_pylist()})
        else:
            context.out.print(f"\n{QUESTIONS[name].title}", highlight=False)
            _show(context, table.column_names, [list(row.values()) for row in table.to_pylist()])
    context.say(f"\nthe picture is {out}")
    return COMPLETED


def _show(context: Context, columns: list[str], rows: list[list[Any]]) -> None:
    if context.json:
        for row in rows:
            context.emit(dict(zip(columns, row, strict=True)))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    context.out.print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (dict, list)):
        value = json.dumps(value, default=str)
    shown = str(value)
    return shown if len(shown) <= CELL_CHARS_MAX else shown[: CELL_CHARS_MAX - 1] + "…"
