"""Lines survive the encoding; bytes that are no lines are nothing."""

from __future__ import annotations

from noetl_ray.testing.contract_tasklog import sample_line
from noetl_ray.wal.tasklog_batches import BATCH_BYTES_MAX, decode_batch, encode_batches


def test_lines_come_back() -> None:
    lines = [sample_line("a"), sample_line('ü "quoted"\n', stream="stderr", visit=3)]
    (batch,) = encode_batches(lines)
    assert list(decode_batch(batch)) == lines


def test_no_lines_make_no_message() -> None:
    assert list(encode_batches([])) == []


def test_messages_stay_small() -> None:
    lines = [sample_line("x" * 60_000) for _ in range(40)]
    batches = list(encode_batches(lines))
    assert len(batches) > 1
    assert all(len(batch) <= BATCH_BYTES_MAX + 1_000 for batch in batches)
    assert [line for batch in batches for line in decode_batch(batch)] == lines


def test_foreign_bytes_are_no_lines() -> None:
    assert decode_batch(b"not json") == ()
    assert decode_batch(b'[{"text": 1}]') == ()
