"""The closed set of event types: adding or renaming one is a decision, not an accident."""

from __future__ import annotations

from noetl_ray.events.types import (
    COMMAND_TERMINAL,
    EXECUTION_TERMINAL,
    NEEDS_COMMAND_ID,
    NEEDS_IDEMPOTENCY_KEY,
    REQUIRED_PAYLOAD,
    RESULT_BEARING,
    AggregateType,
    EventType,
)

NAMES = """
batch.accepted batch.completed batch.failed batch.processing business_object.recorded call.done
call.error checkpoint.committed child.ended child.requested command.cancelled command.claimed
command.completed command.failed command.issued command.released command.resumed command.started
execution.cancel.requested execution.cancelled execution.pause.requested execution.paused
execution.requested execution.resume.requested execution.resumed external.received
frame.abandoned frame.committed frame.dispatched frame.failed frame.heartbeat frame.rows.done
frame.started loop.done loop.fanin.completed loop.item loop.shard.done loop.started
playbook.completed playbook.failed playbook.initialized playbook.registered shard.claimed
shard.released stage.closed stage.opened step.done step.enter step.exit step.failed
task.attempt.failed task.done task.failed task.parked worker.joined worker.left worker.lost
callback.ignored callback.received
"""


def test_the_set_is_closed() -> None:
    assert sorted(kind.value for kind in EventType) == sorted(NAMES.split())


def test_aggregates_are_closed_too() -> None:
    assert {kind.value for kind in AggregateType} == {
        "submission",
        "execution",
        "inbox",
        "command",
        "frame",
        "playbook",
        "worker",
        "shard",
        "business_object",
    }


def test_an_execution_and_a_command_end_in_one_of_three_ways() -> None:
    assert {kind.value for kind in EXECUTION_TERMINAL} == {
        "playbook.completed",
        "playbook.failed",
        "execution.cancelled",
    }
    assert {kind.value for kind in COMMAND_TERMINAL} == {
        "command.completed",
        "command.failed",
        "command.cancelled",
    }
    assert COMMAND_TERMINAL <= NEEDS_COMMAND_ID


def test_results_of_calls_are_obligatory() -> None:
    for kind in (EventType.CALL_DONE, EventType.CALL_ERROR):
        assert kind in RESULT_BEARING
        assert "result" in REQUIRED_PAYLOAD[kind]
        assert kind in NEEDS_COMMAND_ID & NEEDS_IDEMPOTENCY_KEY
