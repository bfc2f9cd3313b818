"""Business objects from events: the fold is the newest statement, whatever the order."""

from __future__ import annotations

import random

from noetl_ray.events.envelope import EVENTS_PER_RECORD_MAX
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.readmodel.objects import newest_objects, object_row, version_of
from noetl_ray.testing.contract_business_objects import stated
from noetl_ray.testing.samples import sample_event


def test_rpl_3_a_statement_becomes_a_row_with_its_refs() -> None:
    event = sample_event(
        9,
        event_type=EventType.BUSINESS_OBJECT_RECORDED,
        aggregate_type=AggregateType.BUSINESS_OBJECT,
        command_id="7:pay:1",
        idempotency_key="k",
        payload={
            "type": "order", "id": "o-1", "status": "paid", "attributes": {"n": 1},
            "step": "pay", "visit": 2, "task": "charge", "reference": {"uri": "noetl://r"},
        },
    )  # fmt: skip
    row = object_row(event, 5, 3)
    assert row is not None
    assert (row.object_type, row.object_id, row.status) == ("order", "o-1", "paid")
    assert row.version == version_of(5, 3)
    assert (row.execution_id, row.command_id, row.event_id) == (7, "7:pay:1", 9)
    assert (row.step, row.visit, row.task) == ("pay", 2, "charge")
    assert row.reference == {"uri": "noetl://r"}
    assert object_row(sample_event(1), 5, 0) is None


def test_versions_follow_the_log() -> None:
    last_of_record = version_of(5, EVENTS_PER_RECORD_MAX - 1)
    assert version_of(5, 0) < last_of_record < version_of(6, 0)


def test_the_order_of_arrival_does_not_matter() -> None:
    rows = [stated(n, object_id=str(n % 3), status=str(n)) for n in range(1, 20)]
    wanted = {row.object_id: row.status for row in newest_objects(rows)}
    assert wanted == {"0": "18", "1": "19", "2": "17"}
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        assert {row.object_id: row.status for row in newest_objects(rows)} == wanted
