"""What an answer's object becomes for Python and for the command line."""

from __future__ import annotations

from dataclasses import asdict

from noetl_ray.cli import render
from noetl_ray.client.values import Execution, read

WAIT = {"task": "ask_task", "kind": "callback", "until": "2026-01-01T00:10:00Z", "about": "pay?"}


def test_a_step_keeps_what_it_waits_for_and_what_its_frames_did() -> None:
    frames = {"done": 2, "open": 1, "failed": 0}
    steps = {
        "ask": {"status": "running", "visits": 1, "waiting": [WAIT]},
        "load": {"status": "running", "visits": 1, "frames": frames},
    }
    body = {"execution_id": "7", "status": "RUNNING", "steps": steps}
    shown = asdict(read(Execution, body))
    assert shown["execution_id"] == 7
    assert shown["steps"]["ask"]["waiting"] == (WAIT,)
    assert shown["steps"]["load"]["frames"] == frames
    before = {"steps": {"ask": {"status": "running", "visits": 1}}}
    told = render.step_lines(before, {"steps": {"ask": shown["steps"]["ask"]}})
    assert told == ["ask  running  waits for an answer (pay?) until 2026-01-01T00:10:00Z"]
