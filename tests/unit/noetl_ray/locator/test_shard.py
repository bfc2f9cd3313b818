"""The shard function against published and pinned vectors."""

from __future__ import annotations

from collections import Counter

import pytest

from noetl_ray.locator.shard import fnv1a64, shard_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
    ],
)
def test_loc_3_hash_agrees_with_the_published_vectors(data, expected):
    assert fnv1a64(data) == expected


@pytest.mark.parametrize(
    ("tenant", "project", "execution", "whole", "shard"),
    [
        ("default", "default", 1, 0xEB3C81FCCBBA4150, 0),
        ("acme", "billing", 241234567890123456, 0xBB7C001985C3D674, 4),
        ("tenant-a", "проект", "7", 0xF0B9A1AC996A6F72, 2),
        ("", "", "", 0x07D69907B49D2E23, 3),
    ],
)
def test_loc_3_pinned_vectors(tenant, project, execution, whole, shard):
    assert fnv1a64(f"{tenant}/{project}/{execution}".encode()) == whole
    assert shard_of(tenant, project, execution) == shard == whole % 16
    assert shard_of(tenant, project, execution, 1_000_003) == whole % 1_000_003


def test_tn_2_number_and_text_of_an_execution_share_a_shard():
    assert shard_of("t", "p", 42) == shard_of("t", "p", "42")


def test_prj_5_executions_spread_over_all_shards():
    counts = Counter(shard_of("t", "p", number << 12) for number in range(4_000))
    assert set(counts) == set(range(16))
    assert max(counts.values()) < 2 * min(counts.values())


def test_shard_count_must_be_positive():
    with pytest.raises(ValueError, match="not positive"):
        shard_of("t", "p", 1, 0)
