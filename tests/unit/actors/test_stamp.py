"""Envelopes roles append outside decisions."""

from __future__ import annotations

import pytest

from actors.stamp import command_event, object_events, system_event
from noetl_ray.errors import EnvelopeError
from noetl_ray.events.envelope import check_envelope, checksum_of
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.results.redact import Redactor
from noetl_ray.scope import Scope
from noetl_ray.tools.business_object import BusinessObject


def test_an_event_about_a_worker_belongs_to_no_execution() -> None:
    payload = {"worker_id": "l/w 1", "incarnation": "i1", "slots": 2}
    event = system_event(
        EventType.WORKER_JOINED,
        "l/w 1",
        payload,
        event_id=5,
        now_ms=1_767_323_045_678,
        producer="p",
        prev_event_id=4,
    )
    check_envelope(event)
    assert checksum_of(event) == event.envelope_checksum
    assert (event.execution_id, event.aggregate_type) == (0, AggregateType.WORKER)
    assert event.stream_id == "noetl.system.worker.l%2Fw%201"
    assert (event.prev_event_id, event.correlation_id) == (4, "i1")
    assert event.event_time == "2026-01-02T03:04:05.678Z"


def test_an_event_of_a_command_stands_on_the_commands_subject() -> None:
    event = command_event(
        EventType.COMMAND_RELEASED,
        {"reason": "gone"},
        scope=Scope(tenant_id="t", organization_id="o"),
        shard=3,
        execution_id=7,
        command_id="7-a-1",
        attempt=2,
        event_id=9,
        now_ms=0,
        producer="p",
        prev_event_id=8,
        causation_id=6,
    )
    check_envelope(event)
    assert event.stream_id == "noetl.events.3.t.o.7.cmd-7-a-1"
    assert (event.tenant_id, event.organization_id) == ("t", "o")
    assert event.idempotency_key == "7-a-1/2/command.released"
    assert (event.correlation_id, event.causation_id, event.prev_event_id) == ("7", 6, 8)


def test_an_incomplete_one_is_refused_before_the_log() -> None:
    with pytest.raises(EnvelopeError, match=r"worker\.lost refused: payload\.reason is required"):
        system_event(
            EventType.WORKER_LOST,
            "w",
            {"worker_id": "w", "incarnation": "i"},
            event_id=1,
            now_ms=0,
            producer="p",
        )


def test_sec_1_no_secret_enters_the_event() -> None:
    found = BusinessObject(
        type="login",
        id="for swordfish-42",
        task="t",
        status="swordfish-42",
        attributes={"password": "other", "note": "say swordfish-42"},
    )
    ((kind, payload),) = object_events(
        [found], {"step": "s", "visit": 1}, None, Redactor(["swordfish-42"])
    )
    assert kind is EventType.BUSINESS_OBJECT_RECORDED
    assert payload == {
        "step": "s", "visit": 1, "type": "login", "id": "for ***", "status": "***",
        "attributes": {"password": "***", "note": "say ***"}, "task": "t", "ordinal": 0,
        "reference": None,
    }  # fmt: skip
