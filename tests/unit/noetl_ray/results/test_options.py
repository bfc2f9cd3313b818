"""What `output:` asks of storage, leniently read."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.results.options import NO_OPTIONS, SELECTED_BYTES_MAX, selected, storage_options


@pytest.mark.parametrize(
    ("outputs", "budget", "select"),
    [
        ([{}], None, ()),
        ([{"inline_max_bytes": 10}, {}], 10, ()),
        (
            [{"inline_max_bytes": 10}, {"output_select": ["a.b", "$.c"]}],
            None,
            (("a.b", "b"), ("c", "c")),
        ),
        ([{"select": [{"path": "data.x", "as": "y"}, {"path": ""}, 3]}], None, (("data.x", "y"),)),
        ([{"inline_max_bytes": "10", "output_select": {"strategy": "size"}}], None, ()),
        ([{"inline_max_bytes": True}], None, ()),
    ],
)
def test_options(outputs: list[Any], budget: Any, select: Any) -> None:
    found = storage_options(outputs)
    assert (found.inline_max_bytes, found.select) == (budget, select)


def test_no_output_asks_for_nothing() -> None:
    assert storage_options([]) is NO_OPTIONS


def test_selected_parts_are_bounded_together() -> None:
    value = {"a": "x" * (SELECTED_BYTES_MAX - 100), "b": "y" * 200, "rows": [{"id": 1}]}
    chosen = (("a", "a"), ("b", "b"))
    assert set(selected(value, chosen)) == {"a"}
    assert selected(value, (("rows.0.id", "id"), ("rows.9.id", "no"), ("data.b", "b"))) == {
        "id": 1,
        "b": "y" * 200,
    }
