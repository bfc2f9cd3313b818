"""Rows out of events: commands, playbooks, workers."""

from __future__ import annotations

import pytest

from noetl_ray.events.envelope import PayloadRef
from noetl_ray.events.types import NEEDS_COMMAND_ID, TASK_RECORDS, EventType
from noetl_ray.readmodel.records import CommandRow, WorkerRow
from noetl_ray.readmodel.rows import (
    command_row,
    fold_commands,
    merge_command,
    merge_worker,
    playbook_row,
    worker_row,
)
from noetl_ray.testing.samples import SAMPLE_TIME, sample_event

RESULT = {"status": "ok", "reference": None}


def command_event(event_id, kind, payload):
    return sample_event(
        event_id, event_type=kind, payload=payload, command_id="c1", idempotency_key="k"
    )


def issued(**more):
    payload = {"step": "start", "visit": 2, "playbook_digest": "d"} | more
    return command_event(1, EventType.COMMAND_ISSUED, payload)


def test_an_issue_names_step_and_visit():
    row = command_row(issued(), 5)
    assert (row.step, row.visit, row.status, row.issued_event_id) == ("start", 2, "ISSUED", 1)
    assert row.claimed_event_id is None


def test_p16_an_issue_with_an_offer_is_already_a_claim():
    row = command_row(issued(claim={"worker_id": "w1", "incarnation": "i"}), 5)
    assert (row.status, row.worker_id, row.claimed_event_id) == ("CLAIMED", "w1", 1)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (EventType.CALL_DONE, "COMPLETED"),
        (EventType.CALL_ERROR, "FAILED"),
        (EventType.COMMAND_CANCELLED, "CANCELLED"),
    ],
)
def test_an_end_is_stamped(kind, status):
    payload = {"step": "start", "visit": 2, "result": RESULT, "error": "text is kept too"}
    row = command_row(command_event(9, kind, payload), 6)
    assert (row.status, row.terminal_event_id, row.ended_at) == (status, 9, SAMPLE_TIME)
    assert row.error == {"message": "text is kept too"}


@pytest.mark.parametrize("kind", sorted(NEEDS_COMMAND_ID - TASK_RECORDS))
def test_every_event_about_a_command_changes_its_row(kind):
    payload = {
        "step": "s", "visit": 1, "playbook_digest": "d", "worker_id": "w", "incarnation": "i",
        "reason": "r", "result": RESULT, "error": {"message": "m"}, "answer": 3, "asked": 2,
        "child_execution_id": 4, "playbook": {},
    }  # fmt: skip
    assert command_row(command_event(1, kind, payload), 1) is not None


def test_other_events_make_no_rows():
    event = sample_event(1)
    assert command_row(event, 1) is None
    assert playbook_row(event, 1) is None
    assert worker_row(event, 1) is None


def test_a_batch_gives_one_row_per_command():
    claim = command_event(
        2, EventType.COMMAND_CLAIMED, {"worker_id": "w", "incarnation": "i", "attempt": 3}
    )
    released = command_event(3, EventType.COMMAND_RELEASED, {"reason": "drain"})
    rows = [command_row(issued(), 5), command_row(claim, 6), command_row(released, 7)]
    (row,) = fold_commands(rows)
    assert (row.status, row.step, row.worker_id, row.attempt) == ("RELEASED", "start", "w", 3)
    assert (row.position, row.issued_event_id, row.claimed_event_id) == (7, 1, 2)


def test_the_first_end_stays():
    def end(position, status, error=None):
        return CommandRow(
            tenant_id="t", organization_id="o", execution_id=1, command_id="c",
            position=position, status=status, error=error, terminal_event_id=position,
        )  # fmt: skip

    merged = merge_command(end(1, "COMPLETED"), end(2, "FAILED", {"message": "late"}))
    assert (merged.status, merged.error, merged.terminal_event_id) == ("COMPLETED", None, 1)


def test_a_registration_knows_its_size():
    payload = {"path": "a/b", "version": 3, "digest": "d", "source": "ü"}
    event = sample_event(
        1, event_type=EventType.PLAYBOOK_REGISTERED, payload=payload, idempotency_key="k"
    )
    row = playbook_row(event, 4)
    assert (row.path, row.version, row.size_bytes, row.source) == ("a/b", 3, 2, "ü")
    reference = PayloadRef(uri="noetl://x", sha256="a" * 64, media_type="text/yaml", bytes=99)
    del payload["source"]
    event = sample_event(
        1,
        event_type=EventType.PLAYBOOK_REGISTERED,
        payload=payload,
        idempotency_key="k",
        payload_ref=reference,
    )
    row = playbook_row(event, 4)
    assert (row.size_bytes, row.source, row.source_ref["uri"]) == (99, None, "noetl://x")


def test_an_end_of_another_incarnation_says_nothing_about_the_old_one():
    old = WorkerRow(worker_id="w", incarnation="1", status="up", position=1, slots=4)
    new = WorkerRow(worker_id="w", incarnation="2", status="left", position=2)
    assert merge_worker(old, new) == new
