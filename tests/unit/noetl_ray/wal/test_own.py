"""Own records come back as they were made, and nothing else does."""

from __future__ import annotations

from noetl_ray.events.envelope import Record, encode_record
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal import own
from noetl_ray.wal.own import OwnRecords


def appended(number, **more):
    record = Record(events=(sample_event(number, **more),))
    return record, encode_record(record)


def test_equal_bytes_on_the_same_subject_give_the_record():
    known = OwnRecords()
    record, data = appended(1)
    other, other_data = appended(2)
    known.note("a", data, record)
    assert known.record_of("a", bytes(data)) is record
    assert known.record_of("b", data) is None
    assert known.record_of("a", other_data) is None, "another writer was first"
    known.note("a", other_data, other)
    assert known.record_of("a", data) is None
    assert known.record_of("a", other_data) is other


def test_it_is_bounded_in_number_and_size(monkeypatch):
    monkeypatch.setattr(own, "RECORDS_MAX", 3)
    known = OwnRecords()
    made = {f"s{n}": appended(n) for n in range(1, 6)}
    for subject, (record, data) in made.items():
        known.note(subject, data, record)
    found = [s for s, (_, data) in made.items() if known.record_of(s, data) is not None]
    assert found == ["s3", "s4", "s5"]
    large, data = appended(9, meta={"text": "x" * own.BYTES_MAX})
    known.note("large", data, large)
    assert known.record_of("large", data) is None
