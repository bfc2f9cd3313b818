"""Histories recorded once replay to the same states, and to the same decisions, for good."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl_ray.clock import parse_iso_utc
from noetl_ray.dsl.parse import parse_playbook
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.decide import decide
from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import Claim, Inputs, Program
from noetl_ray.engine.state import ExecutionState
from noetl_ray.errors import EnvelopeError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.events.envelope import Event, Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.replay import decode_history, encode_history, normalised, replay, state_checksum
from noetl_ray.wal.port import Recorded
from tests.golden.cases import CASES
from tests.golden.record import record

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/events.jsonl"))
each_case = pytest.mark.parametrize("name", NAMES)


@cache
def history(name: str) -> tuple[Recorded, ...]:
    return tuple(decode_history((FOLDER / name / "events.jsonl").read_bytes()))


@cache
def told(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name / "state.json").read_text())
    return found


def types(name: str) -> list[str]:
    return [event.event_type.value for r in history(name) for event in r.record.events]


# The files themselves


def test_every_case_is_there_and_none_is_forgotten() -> None:
    assert [case.name for case in CASES if case.name not in NAMES] == []
    manifest = json.loads((FOLDER / "MANIFEST.json").read_text())
    assert sorted(manifest) == NAMES


@each_case
def test_a_changed_history_is_noticed(name: str) -> None:
    manifest = json.loads((FOLDER / "MANIFEST.json").read_text())
    data = (FOLDER / name / "events.jsonl").read_bytes()
    assert sha256_hex(data) == manifest[name], f"{name}/events.jsonl is not the one recorded"


@each_case
def test_every_envelope_is_complete_and_reads_back_to_the_byte(name: str) -> None:
    data = (FOLDER / name / "events.jsonl").read_bytes()
    assert encode_history(decode_history(data)) == data


def test_a_line_that_was_tampered_with_is_refused() -> None:
    data = (FOLDER / "chain" / "events.jsonl").read_bytes()
    with pytest.raises(EnvelopeError, match="checksum of event"):
        decode_history(data.replace(b'"hello"', b'"hallo"'))
    with pytest.raises(EnvelopeError, match="line 1 is no record"):
        decode_history(b"{}\n" + data)


# Yesterday's histories under today's fold


@each_case
def test_the_fold_gives_the_pinned_states(name: str) -> None:
    states = replay(history(name))
    for execution_id, expected in told(name)["executions"].items():
        state = states[int(execution_id)]
        assert normalised(state) == expected["state"]
        assert state_checksum(state) == expected["checksum"]


@each_case
def test_invariant_7_every_prefix_gives_what_was_live_there(name: str) -> None:
    for position, expected in told(name)["prefixes"].items():
        states = replay(history(name), as_of=int(position))
        assert {str(i): state_checksum(s) for i, s in states.items()} == expected


@each_case
def test_a_history_delivered_twice_changes_nothing(name: str) -> None:
    doubled = [r for recorded in history(name) for r in (recorded, recorded)]
    assert replay(doubled) == replay(history(name))


@each_case
def test_p8_links_are_one_tree_with_one_root_and_one_end(name: str) -> None:
    events = [e for r in history(name) for e in r.record.events if e.execution_id]
    roots = [e for e in events if e.prev_event_id is None]
    assert {e.event_type for e in roots} == {EventType.EXECUTION_REQUESTED}
    # A sub-playbook is a tree of its own.
    assert len(roots) == len({e.execution_id for e in events})
    known = {(event.execution_id, event.event_id) for event in events}
    assert all((e.execution_id, e.prev_event_id) in known for e in events if e not in roots)
    by_subject: dict[str, int] = {}
    for event in events:
        before = by_subject.get(event.stream_id)
        assert before is None or event.prev_event_id == before
        by_subject[event.stream_id] = event.event_id


# Yesterday's facts under today's decisions


def recorded_inputs(record: Record) -> Inputs:
    """What the decision took from outside, as its own events say."""
    minted = [
        number
        for event in record.events
        for number in (event.payload.get("child_execution_id"), event.event_id)
        # The id of a child is minted by the decision that names it, and only repeated by others.
        if number is not None
        and (number == event.event_id or event.event_type is EventType.CHILD_REQUESTED)
    ]
    ids = iter(minted)
    claims = {e.command_id: e.payload.get("claim") for e in record.events if e.command_id}

    def assign(command_id: str) -> Claim | None:
        found = claims.get(command_id)
        return msgspec.convert(found, Claim) if found else None

    first = record.events[0]
    return Inputs(
        now_ms=parse_iso_utc(first.event_time),
        producer=first.producer,
        mint=lambda: next(ids, 1 << 62),
        assign=assign,
    )


def content(event: Event, keys: Any) -> dict[str, Any]:
    """What an event says, but for keys a later version may have added."""
    return {
        "type": event.event_type,
        "command_id": event.command_id,
        "idempotency_key": event.idempotency_key,
        "prev_event_id": event.prev_event_id,
        "causation_id": event.causation_id,
        "payload": {key: event.payload.get(key) for key in keys},
    }


@each_case
def test_decide_makes_the_recorded_decisions_again(name: str) -> None:
    source = (FOLDER / name / "playbook.yaml").read_text()
    program = Program(parse_playbook(source), Templates())
    states: dict[int, ExecutionState] = {}
    decisions = 0
    for recorded in history(name):
        record = recorded.record
        first = record.events[0]
        if not first.execution_id:
            continue
        state = states.get(first.execution_id)
        if first.aggregate_type is AggregateType.EXECUTION:
            assert state is not None
            # Facts that came after the conductor looked are not the decision's.
            seen = state.draft()
            seen.pending = {p: e for p, e in state.pending.items() if p in record.consumed}
            decision = decide(seen, program, recorded_inputs(record))
            assert decision is not None
            assert decision.record.consumed == record.consumed
            got = decision.record.events
            assert [e.event_type for e in got] == [e.event_type for e in record.events]
            for ours, theirs in zip(got, record.events, strict=True):
                assert content(ours, theirs.payload) == content(theirs, theirs.payload)
            decisions += 1
        states[first.execution_id] = fold(state, recorded)
    assert decisions


# The stories are what they claim to be


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_story_ends_as_it_says(case: Any) -> None:
    assert {state.status for state in replay(history(case.name)).values()} == {case.status}
    assert (FOLDER / case.name / "playbook.yaml").read_text() == case.playbook


def test_the_stories_show_what_they_are_named_after() -> None:
    (joined,) = replay(history("inclusive_join")).values()
    assert joined.steps["join"].visits == 1
    assert "never" not in joined.steps
    (merged,) = replay(history("exclusive_merge")).values()
    assert set(merged.steps) == {"start", "high", "merge"}
    (turned,) = replay(history("cycle_with_set")).values()
    assert (turned.steps["fetch"].visits, turned.ctx["last"]) == (3, 3)
    assert types("retry_then_handled").count("task.attempt.failed") == 2
    (handled,) = replay(history("retry_then_handled")).values()
    assert (handled.failures_handled, set(handled.steps)) == (1, {"call", "mend"})
    (failed,) = replay(history("unrouted_failure")).values()
    assert failed.steps["good"].status == "completed"
    assert "after" not in failed.steps
    assert types("cancel").count("command.cancelled") == 1
    assert [t for t in types("worker_lost") if t in ("worker.lost", "command.released")] == [
        "worker.lost",
        "command.released",
    ]
    assert types("keyed_submit").count("execution.requested") == 1
    parent, child = (s for _, s in sorted(replay(history("sub_playbook")).items()))
    assert (child.parent_execution_id, child.depth) == (parent.execution_id, 1)
    assert set(parent.steps) == {"start", "call"}
    assert types("sub_playbook").count("task.parked") == 1
    (large,) = replay(history("large_result")).values()
    assert large.steps["load"].result["reference"]["uri"].startswith("noetl://default/")


def test_a_recording_is_the_same_each_time() -> None:
    case = next(case for case in CASES if case.name == "worker_lost")
    one, two = (encode_history(record(case)[0]) for _ in range(2))
    assert one == two


def test_a_wrong_decision_would_be_noticed() -> None:
    """The re-driving test has teeth: another playbook does not make the recorded decisions."""
    history_ = history("chain")
    request = next(r for r in history_ if r.record.events[0].execution_id)
    book = parse_playbook((FOLDER / "cancel" / "playbook.yaml").read_text())
    program = Program(replace(book, entry="long"), Templates())
    control = history_[history_.index(request) + 1].record
    decision = decide(fold(None, request), program, recorded_inputs(control))
    assert decision is not None
    assert [e.event_type for e in decision.record.events] != [e.event_type for e in control.events]
