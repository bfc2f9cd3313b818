"""Upcasters: what a registry refuses, what its digest covers, and that every reader lifts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl_ray.errors import EnvelopeError
from noetl_ray.events.canonical import canonical_json
from noetl_ray.events.envelope import checksum_of, decode_record, encode_record
from noetl_ray.events.types import EventType
from noetl_ray.events.upcast import (
    SCHEMA_NAME,
    SCHEMA_VERSION,
    Upcaster,
    UpcasterRegistry,
    install,
    raw_checksum,
)
from noetl_ray.replay import decode_history, replay
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.port import Recorded

GOLDEN = Path(__file__).resolve().parents[3] / "golden"


def renamed(raw: dict[str, Any]) -> dict[str, Any]:
    """As if ``step.enter`` had once been ``step.begin``, its step a ``node``."""
    if raw["event_type"] != "step.begin":
        return raw
    payload = dict(raw["payload"])
    payload["step"] = payload.pop("node")
    return raw | {"event_type": "step.enter", "payload": payload}


FROM_1 = Upcaster(schema_name=SCHEMA_NAME, from_version=1, to_version=2, lift=renamed)
FROM_2 = Upcaster(
    schema_name=SCHEMA_NAME,
    from_version=2,
    to_version=4,
    lift=lambda raw: raw | {"meta": raw["meta"] | {"lifted": True}},
)
BOTH = UpcasterRegistry([FROM_1, FROM_2])


def old_bytes() -> bytes:
    """A record of a version whose type the enum does not know."""
    raw = msgspec.json.decode(encode_record(sample_record()))
    event = raw["events"][0]
    event["event_type"] = "step.begin"
    event["payload"] = {"node": "load", "visit": 1}
    event["envelope_checksum"] = raw_checksum(event)
    return canonical_json(raw)


def test_upc_1_an_old_event_is_lifted_over_several_versions_and_sealed_anew() -> None:
    with pytest.raises(EnvelopeError, match="not an event record"):
        decode_record(old_bytes())
    (event,) = decode_record(old_bytes(), BOTH).events
    assert event.event_type is EventType.STEP_ENTER
    assert (event.schema_version, event.payload["step"]) == (4, "load")
    assert event.meta["lifted"] is True
    assert event.envelope_checksum == checksum_of(event)


def test_upc_1_old_events_without_a_version_are_the_first_one() -> None:
    raw = msgspec.json.decode(old_bytes())
    for name in ("schema_name", "schema_version"):
        del raw["events"][0][name]
    raw["events"][0]["envelope_checksum"] = ""
    (event,) = decode_record(canonical_json(raw), BOTH).events
    assert (event.schema_version, event.payload["step"]) == (4, "load")


def test_upc_1_lifting_does_not_hide_that_an_event_was_changed() -> None:
    with pytest.raises(EnvelopeError, match="checksum of event"):
        decode_record(old_bytes().replace(b'"load"', b'"lord"'), BOTH)


@pytest.mark.parametrize("to_version", [1, 0])
def test_upc_1_an_upcaster_that_does_not_raise_the_version_is_refused(to_version: int) -> None:
    with pytest.raises(EnvelopeError, match="must raise the version"):
        UpcasterRegistry(
            [Upcaster(schema_name="x", from_version=1, to_version=to_version, lift=renamed)]
        )


def test_upc_1_two_ways_up_from_one_version_are_refused() -> None:
    other = Upcaster(schema_name=SCHEMA_NAME, from_version=1, to_version=3, lift=renamed)
    with pytest.raises(EnvelopeError, match=r"two upcasters start from noetl\.event v1"):
        UpcasterRegistry([FROM_1, other])


def test_upc_1_a_gap_and_an_event_of_the_future_are_refused() -> None:
    with pytest.raises(EnvelopeError, match=r"no upcaster leads up from noetl\.event v1"):
        decode_record(old_bytes(), UpcasterRegistry([FROM_2]))
    future = encode_record(sample_record(schema_version=SCHEMA_VERSION + 1))
    with pytest.raises(EnvelopeError, match=r"newer version of noetl-ray: upgrade"):
        decode_record(future)
    foreign = encode_record(sample_record(schema_name="other.event"))
    with pytest.raises(EnvelopeError, match=r"other\.event v1 was written by a newer"):
        decode_record(foreign)


def test_upc_2_the_digest_covers_what_is_registered_not_the_order() -> None:
    assert UpcasterRegistry([FROM_2, FROM_1]).digest == BOTH.digest
    revised = Upcaster(
        schema_name=SCHEMA_NAME, from_version=1, to_version=2, lift=renamed, revision="2"
    )
    digests = {
        each.digest
        for each in (
            BOTH,
            UpcasterRegistry(),
            UpcasterRegistry([FROM_1]),
            UpcasterRegistry([revised, FROM_2]),
        )
    }
    assert len(digests) == 4
    assert all(len(each) == 64 for each in digests)


def test_what_is_newest_is_read_as_it_is() -> None:
    data = encode_record(sample_record())
    assert encode_record(decode_record(data)) == data


def test_upc_2_a_registry_of_the_process_lifts_what_the_log_reader_gives() -> None:
    stored = Recorded(position=1, subject="s", time_ms=0, data=encode_record(sample_record()))
    marks = Upcaster(
        schema_name=SCHEMA_NAME,
        from_version=1,
        to_version=2,
        lift=lambda raw: raw | {"meta": {"lifted": True}},
    )
    before = install(UpcasterRegistry([marks]))
    try:
        assert [event.meta for event in stored.record.events] == [{"lifted": True}]
    finally:
        assert install(before) is not before


@pytest.mark.parametrize("name", ["chain", "worker_lost"])
def test_golden_histories_fold_the_same_when_lifted(name: str) -> None:
    data = (GOLDEN / name / "events.jsonl").read_bytes()
    lifted = decode_history(data, BOTH)
    assert {e.schema_version for r in lifted for e in r.record.events} == {4}
    assert replay(lifted).keys() == replay(decode_history(data)).keys()
    for state, plain in zip(
        replay(lifted).values(), replay(decode_history(data)).values(), strict=True
    ):
        assert (state.status, state.steps.keys()) == (plain.status, plain.steps.keys())
