"""Filters match as the server's do, and overlapping ones are reduced."""

from __future__ import annotations

import pytest

from noetl_ray.wal.matching import is_exact, matches, reduce_filters


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.b", "a.b.c", False),
        ("a.b.c", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a.b", True),
        ("a.>", "a.>", True),
        ("a.*", "a.>", False),
        ("a.>", "a.*.c", True),
        ("a.*.c", "a.*.c", True),
        ("a.b.c", "a.*.c", False),
    ],
)
def test_matches(pattern: str, subject: str, expected: bool) -> None:
    assert matches(pattern, subject) is expected


def test_is_exact() -> None:
    assert is_exact("a.b*c.d")
    assert not is_exact("a.*")
    assert not is_exact("a.>")


def test_reduce_filters_keeps_what_covers_the_rest() -> None:
    assert reduce_filters(["a.b", "a.>", "a.*", "b.c", "b.c"]) == ["a.>", "b.c"]
    assert reduce_filters(["a.b", "a.c"]) == ["a.b", "a.c"]
    assert reduce_filters([]) == []
