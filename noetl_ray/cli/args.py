"""The grammar of the command line: verbs, options, help with an example each. Does nothing itself.

Common options may stand before or after the verb. Refuses abbreviations of options, so that adding
one never changes what an old script means.
"""

from __future__ import annotations

import argparse
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from noetl_ray import __version__
from noetl_ray.cli.args_backup import backup_verbs
from noetl_ray.cli.args_upkeep import upkeep_verbs
from noetl_ray.cli.grammar import common, count, execution_id, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl_ray.cli.grammar import Verbs

_EPILOG = """\
exit codes: 0 completed, 1 failed, 2 bad use or unreachable, 130 interrupted

start here:
  noetl-ray doctor                 what is missing on this machine
  noetl-ray demo                   see it work, then everything stops
  noetl-ray run playbook.yaml      start what is needed, run, stop it again
"""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments as a namespace; ends the program with 2 and the usage on bad ones."""
    return build().parse_args(argv)


def build() -> argparse.ArgumentParser:
    """The whole grammar."""
    parser = argparse.ArgumentParser(
        prog="noetl-ray",
        description="Run NoETL playbooks as durable, replayable executions on Ray.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"noetl-ray {__version__}")
    common(parser, suppress=False)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _setup_verbs(verbs)
    _run_verbs(verbs)
    _catalog_verbs(verbs)
    _inspect_verbs(verbs)
    _acting_verbs(verbs)
    upkeep_verbs(partial(verb, verbs), execution_id)
    backup_verbs(verbs)
    _lake_verbs(verbs)
    _credential_verbs(verbs)
    return parser


def _setup_verbs(verbs: Verbs) -> None:
    verb(verbs, "up", "start NATS, Postgres, Ray and the gateway here", "noetl-ray up")
    verb(verbs, "down", "stop what `up` started; data stay", "noetl-ray down")
    verb(verbs, "doctor", "check this machine and say what to do", "noetl-ray doctor --json")
    demo = verb(verbs, "demo", "run the demo playbook from start to end", "noetl-ray demo")
    demo.add_argument(
        "--spark", action="store_true", help="a playbook with steps on Spark; starts a session"
    )
    verb(verbs, "version", "show the version", "noetl-ray version")
    validate = verb(
        verbs,
        "validate",
        "check a playbook without running it, offline",
        "noetl-ray validate playbook.yaml",
    )
    validate.add_argument("playbook", metavar="PLAYBOOK", help="file, or - for stdin")
    explain = verb(
        verbs,
        "explain",
        "draw the steps and arcs of a playbook, offline",
        "noetl-ray explain playbook.yaml --mermaid",
    )
    explain.add_argument("playbook", metavar="PLAYBOOK", help="file, or - for stdin")
    explain.add_argument(
        "--mermaid", action="store_true", help="as Mermaid text, for a page that shows diagrams"
    )


def _run_verbs(verbs: Verbs) -> None:
    run = verb(
        verbs,
        "run",
        "run a playbook and wait; starts a local set for it when none is up",
        "noetl-ray run playbook.yaml --set region=eu --set limits.rows=100",
    )
    run.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="cancel the execution after so long"
    )
    submit = verb(
        verbs,
        "submit",
        "start a playbook and return at once with the execution id",
        "noetl-ray submit playbook.yaml --workload day.yaml --idempotency-key 2026-01-31",
    )
    for parser in (run, submit):
        parser.add_argument(
            "playbook",
            metavar="PLAYBOOK",
            help="file, - for stdin, or PATH[@VERSION] in the catalog",
        )
        _version_option(parser)
        parser.add_argument(
            "--set",
            dest="sets",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="workload value; dots go deeper, the value is read as YAML; repeatable",
        )
        parser.add_argument(
            "--workload", type=Path, metavar="FILE", help="workload values (YAML or JSON)"
        )
        parser.add_argument(
            "--idempotency-key", metavar="KEY", help="the same key gives the same execution"
        )


def _catalog_verbs(verbs: Verbs) -> None:
    register = verb(
        verbs,
        "register",
        "keep playbooks in the catalog, as new versions of their paths",
        "noetl-ray register playbook.yaml playbooks/",
    )
    register.add_argument(
        "files", nargs="+", metavar="FILE", help="files, - for stdin, or folders with playbooks"
    )
    example = "noetl-ray catalog show examples/hello@2"
    catalog = verb(verbs, "catalog", "the registered playbooks and their versions", example)
    actions = catalog.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = verb(
        actions,
        "list",
        "the newest version of each path, or the versions of one",
        "noetl-ray catalog list examples/hello",
    )
    listing.add_argument("path", nargs="?", metavar="PATH", help="only of this path, all versions")
    listing.add_argument("--limit", type=count, default=100, metavar="N", help="default 100")
    show = verb(actions, "show", "the text of a version, the newest by default", example)
    show.add_argument("path", metavar="PATH", help="PATH or PATH@VERSION")
    _version_option(show)
    diff = verb(
        actions,
        "diff",
        "what changed between two versions, or between a version and a file",
        "noetl-ray catalog diff examples/hello@1 examples/hello@3",
    )
    diff.add_argument("path", metavar="PATH", help="PATH, or PATH@VERSION to begin with")
    diff.add_argument(
        "other",
        nargs="?",
        metavar="OTHER",
        help="PATH@VERSION or a file; without it the newest version",
    )


def _version_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--version",
        dest="playbook_version",
        type=count,
        metavar="N",
        help="version in the catalog; the default is the newest",
    )


def _inspect_verbs(verbs: Verbs) -> None:
    listing = verb(
        verbs, "list", "executions, newest first", "noetl-ray list --status FAILED --limit 10"
    )
    listing.add_argument("--status", metavar="STATUS", help="only these, e.g. RUNNING")
    listing.add_argument("--path", metavar="PATH", help="only of this playbook path")
    listing.add_argument("--parent", type=execution_id, metavar="ID", help="only its children")
    listing.add_argument("--limit", type=count, default=20, metavar="N", help="default 20")
    status = verb(
        verbs, "status", "one execution: its steps and errors", "noetl-ray status 123456789"
    )
    status.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    events = verb(verbs, "events", "the log of one execution", "noetl-ray events 123 --follow")
    events.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    events.add_argument("--after", type=int, default=0, metavar="N", help="only after position N")
    logs = verb(verbs, "logs", "what the tasks printed", "noetl-ray logs 123 load --follow")
    logs.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    logs.add_argument("step", nargs="?", metavar="STEP", help="only of this step")
    for parser in (events, logs):
        parser.add_argument("--follow", "-f", action="store_true", help="go on until it ends")
    result = verb(verbs, "result", "what a step gave", "noetl-ray result 123 load")
    result.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    result.add_argument("step", metavar="STEP", help="step name")
    frames = verb(verbs, "frames", "the frames of its framed loops", "noetl-ray frames 123")
    frames.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    frames.add_argument("--status", metavar="STATUS", help="only these, e.g. RUNNING or FAILED")
    frames.add_argument("--limit", type=count, default=100, metavar="N", help="default 100")
    verb(verbs, "shards", "who owns which shard, and how far it is kept", "noetl-ray shards")
    again = verb(
        verbs,
        "replay",
        "fold an execution anew from the log and hold it against the read model",
        "noetl-ray replay 123",
    )
    again.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    moment = again.add_mutually_exclusive_group()
    moment.add_argument(
        "--as-of-position", type=count, metavar="N", help="as it was at this position"
    )
    moment.add_argument("--as-of-event", type=execution_id, metavar="ID", help="after this event")
    moment.add_argument("--as-of-time", metavar="TIME", help="as it was then, UTC in ISO form")
    objects = verb(
        verbs,
        "objects",
        "the business objects that results are about, or the history of one",
        "noetl-ray objects order 1042",
    )
    objects.add_argument("object_type", nargs="?", metavar="TYPE", help="only of this type")
    objects.add_argument("object_id", nargs="?", metavar="ID", help="this one, with its history")
    objects.add_argument("--status", metavar="STATUS", help="only with this status")
    objects.add_argument("--limit", type=count, default=100, metavar="N", help="default 100")


def _acting_verbs(verbs: Verbs) -> None:
    for name, text in (
        ("cancel", "ask an execution to stop"),
        ("pause", "begin nothing new of an execution; what runs finishes"),
        ("resume", "let a paused execution go on"),
        ("rerun", "run again with the same playbook and workload"),
    ):
        parser = verb(verbs, name, text, f"noetl-ray {name} 123456789")
        parser.add_argument("id", type=execution_id, metavar="ID", help="execution id")
        if name in ("cancel", "pause"):
            parser.add_argument("--reason", default=f"{name}, from the command line")
        if name == "cancel":
            parser.add_argument("--no-cascade", action="store_true", help="leave its children")
        if name == "rerun":
            parser.add_argument(
                "--from",
                dest="from_step",
                nargs="?",
                const="",
                metavar="STEP",
                help="go on there, with what was done before; without STEP where it failed",
            )
    answer = verb(
        verbs,
        "answer",
        "answer what a step waits for",
        "noetl-ray answer 123 approve --data true",
    )
    answer.add_argument("id", type=execution_id, metavar="ID", help="execution id")
    answer.add_argument("step", metavar="STEP", help="the step that waits")
    given = answer.add_mutually_exclusive_group()
    given.add_argument("--data", metavar="JSON", help="the answer; the default is {}")
    given.add_argument("--data-file", type=Path, metavar="FILE", help="a file with the answer")
    answer.add_argument("--index", type=int, metavar="N", help="which iteration of a loop")


def _lake_verbs(verbs: Verbs) -> None:
    lake = verb(
        verbs, "lake", "the history of all executions as Parquet tables", "noetl-ray lake build"
    )
    actions = lake.add_subparsers(dest="action", metavar="ACTION", required=True)
    build_lake = verb(
        actions, "build", "add what the log has since the last build", "noetl-ray lake build"
    )
    build_lake.add_argument(
        "--no-compact", action="store_true", help="leave small files as they are"
    )
    build_lake.add_argument(
        "--from-archive", action="store_true", help="an empty lake, with what was trimmed"
    )
    query = verb(
        actions,
        "query",
        "ask the lake in SQL, or by the name of a ready question",
        "noetl-ray lake query 'SELECT status, count(*) AS n FROM executions GROUP BY status'",
    )
    query.add_argument("sql", nargs="?", metavar="SQL", help="SQL, or the name of a ready question")
    query.add_argument("--spark", action="store_true", help="ask on Spark instead of in here")
    query.add_argument("--limit", type=count, default=100, metavar="N", help="default 100")
    audit = verb(
        actions,
        "audit",
        "fold every execution and hold it against the read model",
        "noetl-ray lake audit --from 2026-01-01",
    )
    archive = verb(
        actions,
        "archive",
        "put executions away that ended long ago, and trim what is put away",
        "noetl-ray lake archive --days 30 --trim",
    )
    archive.add_argument(
        "--days", type=_days, metavar="N", help="ended so long ago; the default is the setting"
    )
    archive.add_argument(
        "--trim", action="store_true", help="remove what is archived, whatever the setting"
    )
    for each in (audit, archive):
        each.add_argument("--from", dest="first", type=_day, metavar="DAY", help="made on or after")
        each.add_argument("--to", dest="last", type=_day, metavar="DAY", help="made on or before")
        each.add_argument("--tenant", metavar="NAME", help="only of this tenant")
        each.add_argument("--no-build", action="store_true", help="take the lake as it is")
    report = verb(
        actions, "report", "the ready questions as tables and a picture", "noetl-ray lake report"
    )
    report.add_argument(
        "--out", type=Path, default=Path("lake-report.png"), metavar="FILE", help="the picture"
    )


def _credential_verbs(verbs: Verbs) -> None:
    example = "noetl-ray credential add pg_main --type postgres --data-file pg.json"
    credential = verb(verbs, "credential", "keep secrets that playbooks use by name", example)
    actions = credential.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = verb(actions, "add", "add or replace a credential", example)
    add.add_argument("name", metavar="NAME")
    add.add_argument("--type", default="generic", metavar="TYPE", help="e.g. postgres, http, s3")
    add.add_argument("--description", default="", metavar="TEXT")
    add.add_argument(
        "--data-file",
        type=Path,
        metavar="FILE",
        help="mapping in JSON or YAML; without it the data are read from stdin",
    )
    verb(actions, "list", "names and fields, never values", "noetl-ray credential list")
    remove = verb(actions, "remove", "forget a credential", "noetl-ray credential remove pg_main")
    remove.add_argument("name", metavar="NAME")


def _days(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 36_500:
        msg = "must be from 0 to 36500"
        raise argparse.ArgumentTypeError(msg)
    return number


def _day(text: str) -> str:
    try:
        return f"{date.fromisoformat(text):%Y-%m-%d}"
    except ValueError:
        msg = f"{text!r} is no day such as 2026-01-31"
        raise argparse.ArgumentTypeError(msg) from None
