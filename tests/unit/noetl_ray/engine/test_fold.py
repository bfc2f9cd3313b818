"""The one reducer: what each record does to a state, and what it must not do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from noetl_ray.engine.fold import fold
from noetl_ray.engine.inputs import Claim
from noetl_ray.engine.state import ExecutionState, encode_state, parse_state, running_steps
from noetl_ray.engine.variables import assign
from noetl_ray.errors import InternalError
from noetl_ray.events.envelope import Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.subjects import command_subject
from tests.unit.noetl_ray.engine.rig import EXECUTION, SCOPE, Rig, playbook, step

CLAIM = Claim(worker_id="w1", incarnation="i1", lease_ms=1000)


def started(*steps: Any, claim: Claim | None = CLAIM) -> Rig:
    rig = Rig(playbook(*(steps or (step("a", "b"), step("b")))), claim=claim)
    rig.request()
    rig.settle()
    return rig


def on_command(rig: Rig, kind: EventType, payload: dict[str, Any]) -> None:
    command_id = f"{EXECUTION}-a-1"
    subject = command_subject(3, SCOPE, EXECUTION, command_id)
    rig.append(
        subject,
        rig.event(
            kind,
            payload,
            stream_id=subject,
            aggregate_type=AggregateType.COMMAND,
            command_id=command_id,
        ),
    )


def control(rig: Rig, kind: EventType, payload: dict[str, Any], position: int = 99) -> Recorded:
    event = rig.event(kind, payload, stream_id="c", aggregate_type=AggregateType.EXECUTION)
    return Recorded(position=position, subject="c", time_ms=0, record=Record(events=(event,)))


def states(rig: Rig) -> Iterator[ExecutionState]:
    """The state after each record."""
    state = None
    for recorded in rig.log:
        state = fold(state, recorded)
        yield state


def test_the_given_state_is_never_changed() -> None:
    rig = Rig(
        playbook(step("a", "b", "c", mode="inclusive"), step("b", "j"), step("c", "j"), step("j"))
    )
    rig.run({"a": {"v": [1]}})
    state = None
    for recorded in rig.log:
        kept = encode_state(state) if state else None
        after = fold(state, recorded)
        assert (encode_state(state) if state else None) == kept
        state = after


def test_invariant_3_a_record_seen_before_gives_the_state_back() -> None:
    rig = Rig(playbook(step("a", "b"), step("b")), claim=CLAIM)
    rig.run()
    for seen, state in enumerate(states(rig), start=1):
        for recorded in rig.log[:seen]:
            assert fold(state, recorded) is state


def test_a_request_waits_until_a_decision_takes_it() -> None:
    rig = Rig(playbook(step("a")))
    rig.request()
    assert rig.state.status == "PENDING"
    assert rig.state.playbook is None
    assert list(rig.state.pending) == [1]
    assert rig.state.root_event_id == rig.log[0].record.events[0].event_id
    rig.settle()
    assert rig.state.status == "RUNNING"
    assert rig.state.playbook.path == "p"
    assert not rig.state.pending


def test_a_decision_that_consumes_what_was_never_seen_is_our_bug() -> None:
    rig = started()
    recorded = control(rig, EventType.STEP_ENTER, {"step": "b", "visit": 1})
    broken = Recorded(
        position=99,
        subject="c",
        time_ms=0,
        record=msgspec.structs.replace(recorded.record, consumed=(55,)),
    )
    with pytest.raises(InternalError, match="consumed position 55 was never seen"):
        fold(rig.state, broken)


def test_a_record_of_another_execution_is_our_bug() -> None:
    rig = started()
    other = Recorded(position=99, subject="c", time_ms=0, record=Record(events=(sample_event(1),)))
    with pytest.raises(InternalError, match=f"record of execution 7 folded into {EXECUTION}"):
        fold(rig.state, other)


@pytest.mark.parametrize("kind", [EventType.WORKER_LEFT, EventType.BATCH_FAILED])
def test_what_does_not_belong_on_a_control_subject_is_refused(kind: EventType) -> None:
    rig = started()
    payload = {"worker_id": "w", "incarnation": "i"}
    with pytest.raises(InternalError, match="does not belong on a control subject"):
        fold(rig.state, control(rig, kind, payload))


@pytest.mark.parametrize(
    "kind", [AggregateType.PLAYBOOK, AggregateType.WORKER, AggregateType.SHARD]
)
def test_system_records_belong_to_no_execution(kind: AggregateType) -> None:
    rig = started()
    event = rig.event(EventType.STEP_DONE, {}, stream_id="c", aggregate_type=kind)
    recorded = Recorded(position=99, subject="c", time_ms=0, record=Record(events=(event,)))
    with pytest.raises(InternalError, match="belongs to no execution"):
        fold(rig.state, recorded)


# Commands and their holders


def test_p16_a_claim_in_the_decision_gives_version_0_to_expect() -> None:
    (command,) = started().state.commands.values()
    assert (command.worker_id, command.incarnation) == ("w1", "i1")
    assert (command.version, command.attempt, command.issued_position) == (0, 1, 2)


def test_p16_release_and_claim_move_the_version_and_the_holder() -> None:
    rig = started()
    on_command(rig, EventType.COMMAND_RELEASED, {"reason": "gone"})
    (command,) = rig.state.commands.values()
    assert (command.worker_id, command.incarnation, command.version) == (None, None, 3)
    on_command(
        rig, EventType.COMMAND_CLAIMED, {"worker_id": "w2", "incarnation": "i9", "attempt": 2}
    )
    (command,) = rig.state.commands.values()
    assert (command.worker_id, command.incarnation) == ("w2", "i9")
    assert (command.version, command.attempt) == (4, 2)
    assert command.last_event_id == rig.log[-1].record.events[-1].event_id
    assert not rig.state.pending


def test_a_completion_waits_and_moves_the_version() -> None:
    rig = started()
    rig.finish("a", {"v": 1})
    (command,) = rig.state.commands.values()
    assert command.version == 3
    assert list(rig.state.pending) == [3]
    rig.settle()
    assert f"{EXECUTION}-a-1" not in rig.state.commands
    assert rig.state.steps["a"].result["extracted"] == {"v": 1}


def test_news_of_a_command_that_ended_changes_nothing() -> None:
    rig = started()
    rig.finish("a")
    rig.settle()
    before = rig.state
    on_command(rig, EventType.COMMAND_RELEASED, {"reason": "late"})
    assert rig.state is before


def test_a_cancelled_command_is_no_result() -> None:
    rig = started()
    on_command(rig, EventType.COMMAND_CANCELLED, {"step": "a", "visit": 1})
    assert not rig.state.pending
    assert rig.state.steps["a"].result is None


def test_what_a_pipeline_set_is_applied_when_its_completion_is_consumed() -> None:
    rig = started()
    result = {"status": "ok", "tier": "inline", "reference": None, "extracted": {}}
    on_command(
        rig,
        EventType.CALL_DONE,
        {"step": "a", "visit": 1, "result": result, "set": {"x.y": 1, "x.z": 2}, "rows": 4},
    )
    assert rig.state.ctx == {}
    rig.settle()
    assert rig.state.ctx == {"x": {"y": 1, "z": 2}}
    assert rig.state.steps["a"].rows == 4


# Ends


def test_prj_12_a_late_event_never_moves_an_execution_out_of_its_end() -> None:
    rig = Rig(playbook(step("a")))
    rig.run()
    for kind, payload in (
        (EventType.STEP_ENTER, {"step": "a", "visit": 2}),
        (EventType.PLAYBOOK_FAILED, {"final_step": "a", "error": {"message": "late"}}),
        (EventType.EXECUTION_CANCELLED, {}),
    ):
        after = fold(rig.state, control(rig, kind, payload))
        assert after.status == "COMPLETED"
        assert after.error is None
        assert after.steps == rig.state.steps


def test_only_the_first_failure_nobody_took_is_the_executions() -> None:
    rig = started(step("a", "b", "c", mode="inclusive"), step("b"), step("c"))
    rig.finish("a")
    rig.settle()
    rig.finish("c", error={"kind": "unknown", "message": "first"})
    rig.settle()
    rig.finish("b", error={"kind": "unknown", "message": "second"})
    rig.settle()
    assert rig.state.status == "FAILED"
    assert rig.state.error["message"] == "first"
    assert rig.state.steps["b"].error["message"] == "second"
    assert rig.state.held == {}
    assert rig.state.ended_at is not None


def test_only_the_first_reason_of_several_cancels_counts() -> None:
    rig = started()
    rig.cancel("one")
    rig.cancel("two")
    rig.settle()
    assert rig.state.status == "CANCELLED"
    assert rig.state.cancel_reason == "one"
    assert rig.types().count("execution.cancelled") == 1


def test_a_step_keeps_its_last_result_while_it_runs_again() -> None:
    rig = started(step("a", ("a", "{{ a.n < 2 }}")))
    rig.finish("a", {"n": 1})
    rig.settle()
    assert running_steps(rig.state) == ["a"]
    assert rig.state.steps["a"].visits == 2
    assert rig.state.steps["a"].result["extracted"] == {"n": 1}


def test_counts_and_positions_follow_the_log() -> None:
    rig = Rig(playbook(step("a", "b"), step("b")))
    rig.run()
    events = [e for r in rig.log for e in r.record.events]
    assert rig.state.event_count == len(events)
    assert rig.state.position == rig.log[-1].position
    assert rig.state.last_event_id == events[-1].event_id


# The kept form


def test_every_state_on_the_way_has_bytes_and_comes_back_from_them() -> None:
    """Pending facts are keyed by position, which JSON cannot say without a turn to text."""
    rig = Rig(playbook(step("a", "b"), step("b")), claim=CLAIM)
    rig.run({"a": {"v": 1}})
    seen_pending = False
    for state in states(rig):
        seen_pending |= bool(state.pending)
        assert parse_state(encode_state(state)) == state
        assert encode_state(parse_state(encode_state(state))) == encode_state(state)
    assert seen_pending


def test_assign_copies_every_level_it_touches() -> None:
    inner = {"b": {"c": 1}, "k": 0}
    bag = {"a": inner}
    assign(bag, "a.b.d", 2)
    assert bag == {"a": {"b": {"c": 1, "d": 2}, "k": 0}}
    assert inner == {"b": {"c": 1}, "k": 0}
    assign(bag, "a.k.deep", 3)
    assert bag["a"]["k"] == {"deep": 3}


def test_a_record_that_begins_with_an_object_is_known_by_its_command() -> None:
    rig = started()
    command_id = f"{EXECUTION}-a-1"
    subject = command_subject(3, SCOPE, EXECUTION, command_id)
    about = rig.event(
        EventType.BUSINESS_OBJECT_RECORDED,
        {"type": "order", "id": "1", "step": "a", "visit": 1},
        stream_id=subject,
        aggregate_type=AggregateType.BUSINESS_OBJECT,
        command_id=command_id,
    )
    done = rig.event(
        EventType.CALL_DONE,
        {"step": "a", "visit": 1, "result": {"status": "ok", "reference": None}},
        stream_id=subject,
        aggregate_type=AggregateType.COMMAND,
        command_id=command_id,
    )
    rig.append(subject, about, done)
    recorded = rig.log[-1]
    rig.settle()
    state = None
    for each in rig.log:
        state = fold(state, each)
    assert state is not None
    assert fold(state, recorded) is state, "a second delivery, after it was consumed"
