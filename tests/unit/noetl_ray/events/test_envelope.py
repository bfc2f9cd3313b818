"""The envelope: what is refused and how, what a checksum covers, and the limits of a record."""

from __future__ import annotations

import msgspec
import pytest

from noetl_ray.errors import EnvelopeError
from noetl_ray.events.canonical import canonical_json, sha256_hex
from noetl_ray.events.envelope import (
    BIGINT_MAX,
    EVENTS_PER_RECORD_MAX,
    RECORD_BYTES_MAX,
    Event,
    PayloadRef,
    Record,
    check_envelope,
    checksum_of,
    decode_record,
    encode_record,
    seal,
)
from noetl_ray.events.types import (
    NEEDS_COMMAND_ID,
    NEEDS_FRAME_ID,
    NEEDS_IDEMPOTENCY_KEY,
    REQUIRED_PAYLOAD,
    RESULT_BEARING,
    AggregateType,
    EventType,
)
from noetl_ray.testing.samples import sample_event, sample_record, sample_record_of_bytes

RESULT = {"status": "ok", "reference": None}


def complete(kind: EventType) -> Event:
    """An event of a kind with everything it needs."""
    payload = {key: RESULT if key == "result" else 1 for key in REQUIRED_PAYLOAD.get(kind, ())}
    return sample_event(
        event_type=kind,
        payload=payload,
        command_id="7-a-1",
        frame_id="7-a-1",
        stage_id="7-a",
        idempotency_key="7-a-1/x",
    )


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("event_id", 0, "step.enter refused: event_id must be a positive BIGINT"),
        ("event_id", -1, "step.enter refused: event_id must be a positive BIGINT"),
        ("event_id", BIGINT_MAX + 1, "step.enter refused: event_id must be a positive BIGINT"),
        ("execution_id", -1, "step.enter refused: execution_id must be a BIGINT"),
        ("execution_id", BIGINT_MAX + 1, "step.enter refused: execution_id must be a BIGINT"),
        ("tenant_id", "", "step.enter refused: tenant_id is required"),
        ("organization_id", "", "step.enter refused: organization_id is required"),
        ("stream_id", "", "step.enter refused: stream_id is required"),
        ("aggregate_id", "", "step.enter refused: aggregate_id is required"),
        ("producer", "", "step.enter refused: producer is required"),
        ("event_time", "", "step.enter refused: event_time must be UTC with milliseconds"),
        (
            "event_time",
            "2026-01-02T03:04:05Z",
            "step.enter refused: event_time must be UTC with milliseconds",
        ),
        (
            "event_time",
            "2026-01-02T03:04:05.678+01:00",
            "step.enter refused: event_time must be UTC with milliseconds",
        ),
        ("payload", {"visit": 1}, "step.enter refused: payload.step is required"),
        ("payload", {"step": "a"}, "step.enter refused: payload.visit is required"),
        (
            "payload_ref",
            PayloadRef(uri="file:///tmp/x", sha256="0", media_type="a/b"),
            "step.enter refused: payload_ref.uri must name a durable noetl:// object",
        ),
    ],
)
def test_an_incomplete_envelope_is_refused_by_field(field, value, message) -> None:
    with pytest.raises(EnvelopeError) as refused:
        sample_event(**{field: value})
    assert str(refused.value) == message


@pytest.mark.parametrize("kind", list(EventType))
def test_every_type_is_accepted_when_complete_and_refused_without_each_key(kind) -> None:
    event = complete(kind)
    check_envelope(event)
    for key in REQUIRED_PAYLOAD.get(kind, ()):
        payload = {k: v for k, v in event.payload.items() if k != key}
        with pytest.raises(EnvelopeError) as refused:
            seal(msgspec.structs.replace(event, payload=payload))
        assert str(refused.value) == f"{kind} refused: payload.{key} is required"
    bare_command = msgspec.structs.replace(event, command_id=None)
    bare_key = msgspec.structs.replace(event, idempotency_key=None)
    bare_frame = msgspec.structs.replace(event, frame_id=None)
    bare_stage = msgspec.structs.replace(event, stage_id=None)
    for needed, bare, name in (
        (kind in NEEDS_COMMAND_ID | NEEDS_FRAME_ID, bare_command, "command_id"),
        (kind in NEEDS_FRAME_ID, bare_frame, "frame_id"),
        (kind in NEEDS_FRAME_ID, bare_stage, "stage_id"),
        (kind in NEEDS_IDEMPOTENCY_KEY, bare_key, "idempotency_key"),
    ):
        if needed:
            with pytest.raises(EnvelopeError, match=f"{name} is required"):
                seal(bare)
        else:
            seal(bare)


@pytest.mark.parametrize("kind", sorted(RESULT_BEARING))
@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("text", "payload.result must hold status and reference"),
        ({"status": "ok"}, "payload.result must hold status and reference"),
        ({"reference": None}, "payload.result must hold status and reference"),
        (
            {"status": "ok", "reference": {"shm": "x"}},
            "payload.result.reference an IPC hint alone is not durable",
        ),
    ],
)
def test_a_result_names_something_durable(kind, result, message) -> None:
    event = complete(kind)
    with pytest.raises(EnvelopeError) as refused:
        seal(msgspec.structs.replace(event, payload=event.payload | {"result": result}))
    assert str(refused.value) == f"{kind} refused: {message}"


def test_the_checksum_does_not_depend_on_who_wrote_it_or_when_it_arrived() -> None:
    event = sample_event()
    moved = msgspec.structs.replace(event, producer="other", ingest_time="2027-01-01T00:00:00.000Z")
    assert checksum_of(moved) == checksum_of(event) == event.envelope_checksum
    assert seal(event).envelope_checksum == event.envelope_checksum


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("event_id", 2),
        ("tenant_id", "t"),
        ("organization_id", "o"),
        ("execution_id", 8),
        ("stream_id", "s"),
        ("aggregate_id", "a"),
        ("aggregate_type", AggregateType.SHARD),
        ("event_type", EventType.STEP_DONE),
        ("event_time", "2026-01-02T03:04:05.679Z"),
        ("payload", {"step": "b", "visit": 1}),
        ("schema_version", 2),
        ("causation_id", 3),
        ("correlation_id", "c"),
        ("idempotency_key", "k"),
        ("prev_event_id", 4),
        ("stage_id", "g"),
        ("frame_id", "f"),
        ("command_id", "d"),
        ("payload_ref", PayloadRef(uri="noetl://x", sha256="0", media_type="a/b")),
        ("meta", {"m": 1}),
    ],
)
def test_the_checksum_covers_every_other_field(field, value) -> None:
    event = sample_event()
    assert checksum_of(msgspec.structs.replace(event, **{field: value})) != event.envelope_checksum


def test_the_checksum_of_yesterday_is_the_checksum_of_today() -> None:
    """Changing what it covers or how it is written would orphan every stored event."""
    pinned = "fd300346a9b176ae232cda55eca77d3a553d2b2c9d3eb5f1efb98544be24e84b"
    assert sample_event().envelope_checksum == pinned


def test_a_record_reads_back_as_it_was() -> None:
    record = sample_record(5, events=3, consumed=(1, 2))
    assert decode_record(encode_record(record)) == record
    assert encode_record(decode_record(encode_record(record))) == encode_record(record)


def test_p6_a_record_holds_1_to_256_events() -> None:
    encode_record(sample_record(1, events=EVENTS_PER_RECORD_MAX))
    with pytest.raises(EnvelopeError) as refused:
        encode_record(sample_record(1, events=EVENTS_PER_RECORD_MAX + 1))
    assert str(refused.value) == "a record holds 1..256 events, not 257"
    with pytest.raises(EnvelopeError, match=r"1\.\.256 events, not 0"):
        encode_record(Record(events=()))


def test_p6_a_record_stays_under_the_message_size() -> None:
    encode_record(sample_record_of_bytes(1, RECORD_BYTES_MAX - 2_000))
    with pytest.raises(
        EnvelopeError, match=f"is over {RECORD_BYTES_MAX}; bodies belong in the tier"
    ):
        encode_record(sample_record_of_bytes(1, RECORD_BYTES_MAX))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"events":[{}]}', b"\xff"])
def test_bytes_that_are_no_record_are_refused(data) -> None:
    with pytest.raises(EnvelopeError, match="not an event record"):
        decode_record(data)


def test_an_unknown_type_never_comes_out_of_the_log() -> None:
    data = encode_record(sample_record()).replace(b"step.enter", b"step.guess")
    with pytest.raises(EnvelopeError, match="not an event record"):
        decode_record(data)


@pytest.mark.parametrize("kind", [Event, PayloadRef, Record], ids=lambda kind: kind.__name__)
def test_ser_1_fields_are_declared_in_canonical_order(kind: type[msgspec.Struct]) -> None:
    assert list(kind.__struct_fields__) == sorted(kind.__struct_fields__)


def test_ser_1_what_needs_no_sorting_gives_the_canonical_bytes() -> None:
    reference = PayloadRef(uri="noetl://x", sha256="0" * 64, media_type="m", bytes=3)
    payload = {"z": {"b": 1, "a": [{"y": 1, "x": None}]}, "a": "é", "step": "s", "visit": 1}
    event = sample_event(1, payload=payload, payload_ref=reference, meta={"n": 1, "m": 2})
    record = Record(events=(event, sample_event(2)), consumed=(7, 3))
    assert encode_record(record) == canonical_json(record)
    bare = msgspec.structs.replace(event, envelope_checksum="", ingest_time=None, producer="")
    assert checksum_of(event) == sha256_hex(canonical_json(bare))
