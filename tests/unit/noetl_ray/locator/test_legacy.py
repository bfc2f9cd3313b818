"""Older names are read, told apart, and never raise where they are only counted."""

from __future__ import annotations

import pytest

from noetl_ray.errors import UsageError
from noetl_ray.locator.legacy import parse_legacy_uri, shape_of

OLD = "noetl://execution/99/result/load%3Arows/abc"
RUN = "noetl://execution/99/step/load/run/3/attempt/2"


def test_loc_7_both_older_shapes_are_read():
    named = parse_legacy_uri(OLD)
    assert (named.execution_id, named.name, named.id) == (99, "load:rows", "abc")
    assert named.in_project("t", "p") is None
    assert parse_legacy_uri(RUN).in_project("t", "p").uri == (
        "noetl://t/p/results/99/load/v3.f0/0/2@1"
    )


def test_loc_7_shapes_are_told_apart():
    assert shape_of("noetl://t/p/results/99/load/v1.f0/0/1@1") == "canonical"
    assert shape_of("noetl://tenant/t/org/o/payloads/sha256/" + "a" * 64) == "resource"
    assert shape_of(OLD) == shape_of(RUN) == "legacy"
    for bad in ("", "noetl://execution/x/result/a/b", "noetl://execution/1", "no", "\ud800"):
        assert shape_of(bad) == "invalid"


@pytest.mark.parametrize(
    "uri", ["noetl://execution/1/result/..", "noetl://execution/01/result/a/b"]
)
def test_what_is_neither_is_refused(uri):
    with pytest.raises(UsageError):
        parse_legacy_uri(uri)
