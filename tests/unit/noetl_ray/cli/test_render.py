"""What a person sees: steps, errors, rows; odd shapes break nothing, markup in data is text."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from noetl_ray.cli import render
from noetl_ray.client import Execution

STATUS: dict[str, Any] = {
    "execution_id": "42",
    "status": "FAILED",
    "path": "examples/demo",
    "started_at": "2026-01-02T03:04:05.000Z",
    "ended_at": "2026-01-02T03:05:35.000Z",
    "steps": {
        "load": {
            "status": "DONE",
            "visits": 2,
            "entered_at": "2026-01-02T03:04:05.000Z",
            "exited_at": "2026-01-02T03:04:06.500Z",
            "rows": 7,
        },
        "save": {"status": "FAILED", "error": {"kind": "pg", "message": "no [bold]table[/bold]"}},
    },
    "counters": {"frames": 3, "retries": 0},
    "error": {"message": "step save failed"},
}


def shown(thing: Any, width: int = 100) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()


def test_the_status_view_says_it_all() -> None:
    text = shown(render.status_view(STATUS))
    for part in ("42", "FAILED", "examples/demo", "1 min 30 s", "1.50 s", "7 rows", "frames 3"):
        assert part in text
    assert "no [bold]table[/bold]" in text
    assert "error: step save failed" in text
    assert "retries" not in text


def test_step_lines_show_only_what_changed() -> None:
    before = {"steps": {"load": {"status": "RUNNING", "visits": 1}}}
    after = {"steps": {"load": {"status": "RUNNING", "visits": 1}, "save": {"status": "RUNNING"}}}
    assert render.step_lines(None, before) == ["load  RUNNING"]
    assert render.step_lines(before, after) == ["save  RUNNING"]
    assert render.step_lines(after, after) == []


@pytest.mark.parametrize("status", [{}, {"steps": None}, {"steps": {}}, {"status": None}])
def test_thin_answers_do_not_break_the_view(status: dict[str, Any]) -> None:
    assert "UNKNOWN" in shown(render.status_view(status))
    assert render.is_terminal(status) is False


def test_steps_stand_in_the_order_they_were_entered() -> None:
    steps = {"b": {"entered_at": "2"}, "a": {"entered_at": "3"}, "c": {}, "d": {"entered_at": "1"}}
    assert list(render.steps_of({"steps": steps})) == ["d", "b", "a", "c"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        ({"kind": "http", "message": "503"}, "http: 503"),
        ({"code": "x"}, "x"),
        ({"other": 1}, '{"other": 1}'),
    ],
)
def test_error_text(error: Any, text: str) -> None:
    assert render.error_text(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        ({"message": "bad"}, "bad"),
        ({"step": "load", "task": "get", "message": "bad"}, "step load, task get: bad"),
        (
            {"step": "load", "kind": "template", "message": "bad", "template": "{{ a }}"},
            "step load: template: bad, in {{ a }}",
        ),
    ],
)
def test_failure_text(error: Any, text: str) -> None:
    assert render.failure_text(error) == text


def test_an_event_in_one_line() -> None:
    event = {
        "position": 7,
        "event_type": "step.done",
        "event_time": "2026-01-02T03:04:05.678Z",
        "payload": {"step": "load", "error": {"message": "bad"}},
    }
    line = render.event_line(event)
    assert line.split() == ["7", "2026-01-02", "03:04:05", "step.done", "load", "bad"]


def test_a_printed_line() -> None:
    line = {"step": "load", "task": "fetch", "stream": "stdout", "text": "hello"}
    assert render.log_line(line) == "load/fetch | hello"
    assert render.log_line({**line, "stream": "stderr"}) == "load/fetch ! hello"


def test_problem_lines() -> None:
    problem = {"severity": "error", "line": 3, "column": 5, "message": "no step", "hint": "add it"}
    assert render.problem_line(problem, "p.yaml") == "p.yaml:3:5: error: no step (add it)"
    assert render.problem_line({"message": "just text"}) == "just text"


def test_ids_leave_as_text() -> None:
    found = render.plain(Execution(execution_id=2**60, status="RUNNING"))
    assert found["execution_id"] == str(2**60)
    assert found["parent_execution_id"] is None


def test_rows_become_a_table() -> None:
    text = shown(render.data_table([{"a": 1, "b": None}, {"a": "[red]x", "c": {"d": 2}}]))
    assert text.split() == ["a", "b", "c", "1", "[red]x", '{"d":', "2}"]
    assert render.data_table({"rows": [{"a": 1}]}) is not None
    many = shown(render.data_table([{"n": n} for n in range(30)]))
    assert "10 more rows" in many


@pytest.mark.parametrize("data", [None, 5, [], {}, [1], {"rows": 3}, "text"])
def test_what_is_not_rows_is_no_table(data: Any) -> None:
    assert render.data_table(data) is None


def test_times() -> None:
    assert render.took("2026-01-01T00:00:00Z", "2026-01-01T00:00:01.25Z") == "1.25 s"
    assert render.took("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z") == "0.00 s"
    assert render.took(None, "2026-01-01T00:00:00Z") == ""
    assert render.short_time("no time") == "-"
    assert render.cut("a\n b" + "c" * 100).startswith("a bccc")


def test_executions() -> None:
    text = shown(render.executions_table([STATUS, {"execution_id": 1}]))
    assert "examples/demo" in text
    assert "2026-01-02 03:04:05" in text
