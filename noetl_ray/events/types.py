"""The closed set of event types, what aggregate each belongs to, and what its payload must hold.

Adding a type here is the only way to put a new kind of fact into the log; the envelope check
refuses everything else.
"""

from __future__ import annotations

from enum import StrEnum


class EventType(StrEnum):
    """Every event type the log may hold."""

    EXECUTION_REQUESTED = "execution.requested"
    EXECUTION_CANCEL_REQUESTED = "execution.cancel.requested"
    EXECUTION_CANCELLED = "execution.cancelled"
    EXECUTION_PAUSE_REQUESTED = "execution.pause.requested"
    EXECUTION_PAUSED = "execution.paused"
    EXECUTION_RESUME_REQUESTED = "execution.resume.requested"
    EXECUTION_RESUMED = "execution.resumed"
    PLAYBOOK_REGISTERED = "playbook.registered"
    PLAYBOOK_INITIALIZED = "playbook.initialized"
    PLAYBOOK_COMPLETED = "playbook.completed"
    PLAYBOOK_FAILED = "playbook.failed"

    STEP_ENTER = "step.enter"
    STEP_EXIT = "step.exit"
    STEP_DONE = "step.done"
    STEP_FAILED = "step.failed"

    COMMAND_ISSUED = "command.issued"
    COMMAND_CLAIMED = "command.claimed"
    COMMAND_STARTED = "command.started"
    COMMAND_RELEASED = "command.released"
    COMMAND_RESUMED = "command.resumed"
    COMMAND_COMPLETED = "command.completed"
    COMMAND_FAILED = "command.failed"
    COMMAND_CANCELLED = "command.cancelled"

    CALL_DONE = "call.done"
    CALL_ERROR = "call.error"

    TASK_ATTEMPT_FAILED = "task.attempt.failed"
    TASK_DONE = "task.done"
    TASK_FAILED = "task.failed"
    TASK_PARKED = "task.parked"

    CHILD_REQUESTED = "child.requested"
    CHILD_ENDED = "child.ended"

    LOOP_STARTED = "loop.started"
    LOOP_ITEM = "loop.item"
    LOOP_SHARD_DONE = "loop.shard.done"
    LOOP_FANIN_COMPLETED = "loop.fanin.completed"
    LOOP_DONE = "loop.done"

    STAGE_OPENED = "stage.opened"
    STAGE_CLOSED = "stage.closed"

    FRAME_DISPATCHED = "frame.dispatched"
    FRAME_STARTED = "frame.started"
    FRAME_HEARTBEAT = "frame.heartbeat"
    FRAME_ROWS_DONE = "frame.rows.done"
    FRAME_ABANDONED = "frame.abandoned"
    FRAME_COMMITTED = "frame.committed"
    FRAME_FAILED = "frame.failed"

    BATCH_ACCEPTED = "batch.accepted"
    BATCH_PROCESSING = "batch.processing"
    BATCH_COMPLETED = "batch.completed"
    BATCH_FAILED = "batch.failed"

    EXTERNAL_RECEIVED = "external.received"
    CALLBACK_RECEIVED = "callback.received"
    CALLBACK_IGNORED = "callback.ignored"

    BUSINESS_OBJECT_RECORDED = "business_object.recorded"

    CHECKPOINT_COMMITTED = "checkpoint.committed"

    SHARD_CLAIMED = "shard.claimed"
    SHARD_RELEASED = "shard.released"

    WORKER_JOINED = "worker.joined"
    WORKER_LEFT = "worker.left"
    WORKER_LOST = "worker.lost"


class AggregateType(StrEnum):
    """What a subject is about."""

    SUBMISSION = "submission"
    EXECUTION = "execution"
    INBOX = "inbox"
    COMMAND = "command"
    FRAME = "frame"
    PLAYBOOK = "playbook"
    WORKER = "worker"
    SHARD = "shard"
    BUSINESS_OBJECT = "business_object"


EXECUTION_TERMINAL = frozenset(
    {
        EventType.PLAYBOOK_COMPLETED,
        EventType.PLAYBOOK_FAILED,
        EventType.EXECUTION_CANCELLED,
    }
)
"""Exactly one of these ends an execution."""

TAKEN_WHEN_PAUSED = frozenset(
    {
        EventType.EXECUTION_CANCEL_REQUESTED,
        EventType.EXECUTION_PAUSE_REQUESTED,
        EventType.EXECUTION_RESUME_REQUESTED,
    }
)
"""Facts that a decision about a paused execution takes; all others wait."""

INBOX_FACTS = TAKEN_WHEN_PAUSED | {EventType.CALLBACK_RECEIVED}
"""What decisions take from an execution's inbox; the rest of it is only kept."""

COMMAND_TERMINAL = frozenset(
    {EventType.COMMAND_COMPLETED, EventType.COMMAND_FAILED, EventType.COMMAND_CANCELLED}
)
"""Exactly one of these ends a command."""

TASK_RECORDS = frozenset({EventType.TASK_DONE, EventType.TASK_FAILED, EventType.TASK_PARKED})
"""Where a pipeline stands, on its command's subject; a later holder goes on from there (P18)."""

FRAME_TERMINAL = frozenset({EventType.FRAME_COMMITTED, EventType.FRAME_FAILED})
"""Exactly one of these ends a frame (FRM-10)."""

RESULT_BEARING = frozenset(
    {
        EventType.CALL_DONE,
        EventType.CALL_ERROR,
        EventType.STEP_EXIT,
        EventType.LOOP_ITEM,
        EventType.LOOP_SHARD_DONE,
        EventType.LOOP_FANIN_COMPLETED,
    }
)
"""These carry ``payload.result`` (ENV-7)."""

REQUIRED_PAYLOAD: dict[EventType, tuple[str, ...]] = {
    EventType.EXECUTION_REQUESTED: ("playbook", "workload", "project_id"),
    EventType.EXECUTION_CANCEL_REQUESTED: ("reason",),
    EventType.EXECUTION_PAUSE_REQUESTED: ("reason",),
    EventType.EXECUTION_PAUSED: ("reason",),
    EventType.PLAYBOOK_REGISTERED: ("path", "version", "digest"),
    EventType.PLAYBOOK_INITIALIZED: ("playbook",),
    EventType.PLAYBOOK_COMPLETED: ("final_step",),
    EventType.PLAYBOOK_FAILED: ("final_step", "error"),
    EventType.LOOP_STARTED: ("step", "visit", "total"),
    EventType.LOOP_DONE: ("step", "visit", "stats"),
    EventType.STEP_ENTER: ("step", "visit"),
    EventType.STEP_EXIT: ("step", "visit", "status"),
    EventType.COMMAND_ISSUED: ("step", "visit", "playbook_digest"),
    EventType.COMMAND_CLAIMED: ("worker_id", "incarnation"),
    EventType.COMMAND_RELEASED: ("reason",),
    EventType.CALL_DONE: ("step", "visit", "result"),
    EventType.CALL_ERROR: ("step", "visit", "result", "error"),
    EventType.COMMAND_FAILED: ("error",),
    EventType.TASK_DONE: ("step", "visit", "task", "next"),
    EventType.TASK_FAILED: ("step", "visit", "task", "next", "error"),
    EventType.TASK_PARKED: ("step", "visit", "task", "next", "wait"),
    EventType.COMMAND_RESUMED: ("step", "visit", "answer"),
    EventType.CALLBACK_RECEIVED: ("key", "command_id"),
    EventType.CALLBACK_IGNORED: ("key", "command_id", "reason"),
    EventType.CHILD_REQUESTED: ("step", "visit", "child_execution_id", "playbook", "asked"),
    EventType.CHILD_ENDED: ("child_execution_id", "command_id", "status"),
    EventType.BUSINESS_OBJECT_RECORDED: ("type", "id"),
    EventType.EXTERNAL_RECEIVED: ("name", "data"),
    EventType.BATCH_ACCEPTED: ("batch_id", "count"),
    EventType.BATCH_COMPLETED: ("batch_id", "count"),
    EventType.STAGE_OPENED: ("step", "visit", "kind", "frame_policy"),
    EventType.STAGE_CLOSED: ("step", "visit", "status", "stats"),
    EventType.FRAME_DISPATCHED: ("step", "visit", "attempt", "lease_until_ms"),
    EventType.FRAME_STARTED: ("step", "visit", "row_count", "lease_until_ms"),
    EventType.FRAME_HEARTBEAT: ("lease_until_ms",),
    EventType.FRAME_ROWS_DONE: ("rows", "lease_until_ms"),
    EventType.FRAME_ABANDONED: ("reason", "attempt", "retry_mode"),
    EventType.FRAME_COMMITTED: ("step", "visit", "slot", "row_count", "processed", "failed"),
    EventType.FRAME_FAILED: ("step", "visit", "slot", "error", "frame_policy"),
    EventType.CHECKPOINT_COMMITTED: ("shard", "position"),
    EventType.SHARD_CLAIMED: ("shard", "owner", "incarnation", "epoch", "lease_ms", "reason"),
    EventType.SHARD_RELEASED: ("shard", "owner", "incarnation", "epoch", "reason"),
    EventType.WORKER_JOINED: ("worker_id", "incarnation", "slots"),
    EventType.WORKER_LEFT: ("worker_id", "incarnation"),
    EventType.WORKER_LOST: ("worker_id", "incarnation", "reason"),
}
"""Payload keys without which an event is refused."""

NEEDS_COMMAND_ID = frozenset(
    {
        EventType.COMMAND_ISSUED,
        EventType.COMMAND_CLAIMED,
        EventType.COMMAND_STARTED,
        EventType.COMMAND_RELEASED,
        EventType.COMMAND_COMPLETED,
        EventType.COMMAND_FAILED,
        EventType.COMMAND_CANCELLED,
        EventType.CALL_DONE,
        EventType.CALL_ERROR,
        EventType.TASK_DONE,
        EventType.TASK_FAILED,
        EventType.TASK_PARKED,
        EventType.COMMAND_RESUMED,
        EventType.CHILD_REQUESTED,
    }
)
"""Events that are lost without the command they speak of (ENV-13)."""

NEEDS_FRAME_ID = frozenset(
    {
        EventType.FRAME_DISPATCHED,
        EventType.FRAME_STARTED,
        EventType.FRAME_HEARTBEAT,
        EventType.FRAME_ABANDONED,
        EventType.FRAME_COMMITTED,
        EventType.FRAME_FAILED,
    }
)
"""Events that are lost without the frame they speak of, its stage and its command (FRM-3)."""

NEEDS_IDEMPOTENCY_KEY = frozenset(
    {
        EventType.EXECUTION_REQUESTED,
        EventType.EXECUTION_CANCEL_REQUESTED,
        EventType.EXECUTION_PAUSE_REQUESTED,
        EventType.EXECUTION_RESUME_REQUESTED,
        EventType.PLAYBOOK_REGISTERED,
        EventType.COMMAND_ISSUED,
        EventType.COMMAND_CLAIMED,
        EventType.COMMAND_RELEASED,
        EventType.COMMAND_COMPLETED,
        EventType.COMMAND_FAILED,
        EventType.CALL_DONE,
        EventType.CALL_ERROR,
        EventType.BUSINESS_OBJECT_RECORDED,
        EventType.EXTERNAL_RECEIVED,
        EventType.CALLBACK_RECEIVED,
        EventType.CHILD_ENDED,
        EventType.BATCH_ACCEPTED,
        EventType.BATCH_COMPLETED,
        EventType.FRAME_DISPATCHED,
        EventType.FRAME_COMMITTED,
        EventType.FRAME_FAILED,
    }
)
"""Transitions an outside party may retry (ENV-4)."""
