"""How things look to a person: tables, lines, the live view. Takes mappings, decides nothing.

Tolerant of missing fields, because a newer or older gateway may answer; never shows markup that
came from data.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
_STYLES = {
    "COMPLETED": "green",
    "DONE": "green",
    "OK": "green",
    "UP": "green",
    "RUNNING": "cyan",
    "ACTIVE": "cyan",
    "WARN": "yellow",
    "PAUSED": "yellow",
    "CANCELLED": "yellow",
    "FAILED": "red",
    "FAIL": "red",
}
_CELL_MAX = 60
_ROWS_MAX = 20
_COLUMNS_MAX = 8


def is_terminal(status: Mapping[str, Any]) -> bool:
    """Whether an execution has ended."""
    return status_of(status) in TERMINAL


def status_of(status: Mapping[str, Any]) -> str:
    """The status word in capitals."""
    return str(status.get("status") or "UNKNOWN").upper()


def styled(word: object) -> Text:
    """A status word in its colour."""
    text = str(word)
    return Text(text, style=_STYLES.get(text.upper(), ""))


def executions_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Executions, one per row."""
    table = Table(box=None, pad_edge=False)
    for title in ("id", "status", "playbook", "started", "took"):
        table.add_column(title, no_wrap=title == "id")
    for row in rows:
        table.add_row(
            str(row.get("execution_id", "")),
            styled(status_of(row)),
            Text(str(row.get("path") or "-")),
            short_time(row.get("started_at")),
            took(row.get("started_at"), row.get("ended_at")),
        )
    return table


def status_view(status: Mapping[str, Any], elapsed_s: float | None = None) -> RenderableType:
    """One execution: a head line, its steps, its error."""
    head = Text.assemble(
        f"execution {status.get('execution_id', '')}  ",
        styled(status_of(status)),
        f"  {status.get('path') or ''}  ",
        (f"{elapsed_s:.1f} s" if elapsed_s is not None else _took(status)),
    )
    parts: list[RenderableType] = [head]
    steps = steps_of(status)
    if steps:
        table = Table(box=None, pad_edge=False, padding=(0, 2))
        for title in ("step", "status", "visits", "took", "note"):
            table.add_column(title)
        for name, step in steps.items():
            table.add_row(
                Text(name),
                styled(step.get("status", "")),
                str(step.get("visits", "")),
                took(step.get("entered_at"), step.get("exited_at")),
                Text(cut(error_text(step.get("error")) or waiting_text(step) or rows_text(step))),
            )
        parts.append(table)
    if status.get("parent_execution_id"):
        parts.append(Text(f"child of {status['parent_execution_id']}", style="dim"))
    if status.get("children"):
        parts += [Text("children:"), executions_table(status["children"])]
    counters = counters_text(status)
    if counters:
        parts.append(Text(counters, style="dim"))
    error = failure_text(status.get("error"))
    if error:
        parts.append(Text(f"error: {error}", style="red"))
    return Group(*parts)


def step_lines(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> list[str]:
    """What changed between two looks at an execution, one line per step, for plain terminals."""
    old = steps_of(before or {})
    lines = []
    for name, step in steps_of(now).items():
        was = old.get(name, {})
        if _looks(was) == _looks(step):
            continue
        note = error_text(step.get("error")) or waiting_text(step) or rows_text(step)
        span = took(step.get("entered_at"), step.get("exited_at"))
        words = (name, str(step.get("status", "")), span, cut(note))
        lines.append("  ".join(word for word in words if word))
    return lines


def _looks(step: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must change about a step before it is told again."""
    return step.get("status"), step.get("visits"), waiting_text(step)


def steps_of(status: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Steps by name in the order they were entered."""
    found = (status.get("steps") or {}).items()
    return dict(sorted(found, key=lambda item: str(item[1].get("entered_at") or "~")))


def counters_text(status: Mapping[str, Any]) -> str:
    """Counters above zero in one line."""
    counters = status.get("counters") or {}
    return "  ".join(f"{name} {value}" for name, value in counters.items() if value)


def waiting_text(step: Mapping[str, Any]) -> str:
    """What a step waits for and until when."""
    waits = step.get("waiting") or ()
    if not waits or step.get("status") != "running":
        return ""
    first = waits[0]
    what = {"callback": "an answer", "retry": "the next try"}.get(first["kind"], "its time")
    about = f" ({first['about']})" if first.get("about") else ""
    more = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
    return f"waits for {what}{about} until {first['until']}{more}"


def rows_text(step: Mapping[str, Any]) -> str:
    """How much a step gave, when that is known."""
    rows, loop = step.get("rows"), step.get("loop")
    parts = []
    if loop:
        done = loop.get("done", loop.get("success", 0))
        parts.append(f"{done} of {loop.get('total', 0)} items")
        if loop.get("failed"):
            parts.append(f"{loop['failed']} failed")
    if rows is not None:
        parts.append(f"{rows} rows")
    frames = step.get("frames")
    if frames:
        parts.append(f"{frames['done']} frames done, {frames['open']} under way")
        if frames.get("failed"):
            parts.append(f"{frames['failed']} rows failed")
    return ", ".join(parts)


def error_text(error: Any) -> str:
    """The message in an error, whatever shape it has."""
    if not error:
        return ""
    if isinstance(error, dict):
        kind, message = error.get("kind") or error.get("code"), error.get("message")
        if kind == "unknown" and message:
            kind = None  # It would say nothing the message does not.
        return ": ".join(str(part) for part in (kind, message) if part) or json.dumps(error)
    return str(error)


def failure_text(error: Any) -> str:
    """The message in an error, and where it happened as far as the error tells."""
    text = error_text(error)
    if not isinstance(error, dict) or not text:
        return text
    if error.get("template"):
        text = f"{text}, in {cut(str(error['template']))}"
    place = ", ".join(f"{name} {error[name]}" for name in ("step", "task") if error.get(name))
    return f"{place}: {text}" if place else text


def event_line(event: Mapping[str, Any]) -> str:
    """One event: position, time, type and what it is about."""
    payload = event.get("payload") or {}
    about = [str(payload["step"])] if payload.get("step") else []
    about += [str(event[key]) for key in ("command_id", "frame_id") if event.get(key)]
    error = error_text(payload.get("error"))
    words = [
        str(event.get("position", "")).rjust(7),
        short_time(event.get("event_time")),
        str(event.get("event_type", "")).ljust(26),
        " ".join(about),
        error,
    ]
    return "  ".join(word for word in words if word).rstrip()


def log_line(line: Mapping[str, Any]) -> str:
    """One printed line with where it came from."""
    where = "/".join(str(line[key]) for key in ("step", "task") if line.get(key))
    mark = "!" if line.get("stream") == "stderr" else "|"
    return f"{where} {mark} {line.get('text', '')}"


def problem_line(problem: Mapping[str, Any], source: str = "") -> str:
    """A finding of the playbook check as ``file:line:column: severity: message``."""
    place = [source] if source else []
    place += [str(problem[key]) for key in ("line", "column") if problem.get(key)]
    words = [":".join(place), str(problem.get("severity") or ""), str(problem.get("message"))]
    advice = f" ({problem['hint']})" if problem.get("hint") else ""
    return ": ".join(word for word in words if word) + advice


def plain(value: Any) -> dict[str, Any]:
    """A value of the client as a mapping; ids are text, because programs in between lose digits."""
    found = dataclasses.asdict(value)
    return {
        name: str(item) if name.endswith("_id") and isinstance(item, int) else item
        for name, item in found.items()
    }


def data_table(data: Any) -> RenderableType | None:
    """The first rows as a table when the data are rows, else None."""
    rows = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return None
    columns = list(dict.fromkeys(key for row in rows for key in row))[:_COLUMNS_MAX]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(Text(str(column)))
    for row in rows[:_ROWS_MAX]:
        table.add_row(*(Text(cut(_cell(row.get(column)))) for column in columns))
    if len(rows) <= _ROWS_MAX:
        return table
    return Group(table, Text(f"… and {len(rows) - _ROWS_MAX} more rows", style="dim"))


def cut(text: str) -> str:
    """One line, not longer than a cell may be."""
    line = " ".join(text.split())
    return line if len(line) <= _CELL_MAX else line[: _CELL_MAX - 1] + "…"


def short_time(text: Any) -> str:
    """The time of day of an ISO time, in UTC; the date too when it is not today's."""
    moment = _moment(text)
    if moment is None:
        return "-"
    same_day = moment.date() == datetime.now(UTC).date()
    return f"{moment:%H:%M:%S}" if same_day else f"{moment:%Y-%m-%d %H:%M:%S}"


def took(start: Any, end: Any) -> str:
    """The time between two ISO times."""
    first, last = _moment(start), _moment(end)
    if first is None or last is None:
        return ""
    seconds = max(0.0, (last - first).total_seconds())
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _took(status: Mapping[str, Any]) -> str:
    return took(status.get("started_at"), status.get("ended_at"))


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.astimezone(UTC)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)
