"""P7: what trimming leaves in the log says how an execution ended, and starts nothing anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_ray.engine.fold import fold
from noetl_ray.engine.state import ExecutionState, wants_decision
from noetl_ray.events.envelope import Record
from noetl_ray.replay import decode_history
from noetl_ray.wal.port import Recorded

GOLDEN = sorted(
    path.parent.name for path in (Path(__file__).parents[3] / "golden").glob("*/events.jsonl")
)


def history(name: str) -> list[Recorded]:
    path = Path(__file__).parents[3] / "golden" / name / "events.jsonl"
    found = [one for one in decode_history(path.read_bytes()) if one.record.events[0].execution_id]
    first = found[0].record.events[0].execution_id
    # A sub-playbook is an execution of its own.
    return [one for one in found if one.record.events[0].execution_id == first]


def folded(records: list[Recorded]) -> ExecutionState:
    state = None
    for recorded in records:
        state = fold(state, recorded)
    assert state is not None
    return state


@pytest.mark.parametrize("name", GOLDEN)
def test_p7_a_trimmed_execution_folds_to_its_end(name: str) -> None:
    records = history(name)
    whole = folded(records)
    last = {recorded.subject: recorded for recorded in records}
    left = folded(sorted(last.values(), key=lambda one: one.position))
    assert not whole.trimmed
    assert left.trimmed == (len(last) < len(records))
    assert (left.status, left.ended_at, left.error) == (whole.status, whole.ended_at, whole.error)
    assert (left.playbook, left.final_step) == (whole.playbook, whole.final_step)
    assert not wants_decision(left)
    assert not left.commands


def test_a_first_decision_that_ends_the_execution_is_no_remnant() -> None:
    records = history("unrouted_failure")
    request, *_, end = records
    consumed = Record(events=end.record.events, consumed=(request.position,))
    only = Recorded(position=end.position, subject=end.subject, time_ms=0, record=consumed)
    assert not folded([request, only]).trimmed
    assert folded([request, end]).trimmed
