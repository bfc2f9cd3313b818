from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.dsl.merge import PROTECTED, merge_workload, seed_variables
from noetl_ray.errors import UsageError


def test_mappings_merge_and_the_rest_is_replaced() -> None:
    defaults = {"a": {"x": 1, "y": {"z": 1}}, "b": [1, 2], "c": 1, "d": {"k": 1}}
    payload = {"a": {"y": {"w": 2}, "n": 3}, "b": [3], "d": None, "e": {"new": True}}
    assert merge_workload(defaults, payload) == {
        "a": {"x": 1, "y": {"z": 1, "w": 2}, "n": 3},
        "b": [3],
        "c": 1,
        "d": None,
        "e": {"new": True},
    }


def test_nothing_is_shared_and_order_is_kept() -> None:
    defaults: dict[str, Any] = {"a": {"x": [1]}, "b": [{}], "c": 1}
    payload: dict[str, Any] = {"z": {"q": []}, "b": [{"k": 1}]}
    made = merge_workload(defaults, payload)
    assert list(made) == ["a", "b", "c", "z"]
    made["a"]["x"].append(2)
    made["b"][0]["k"] = 9
    made["z"]["q"].append(1)
    assert defaults == {"a": {"x": [1]}, "b": [{}], "c": 1}
    assert payload == {"z": {"q": []}, "b": [{"k": 1}]}


def test_protected_keys_stay_in_the_workload() -> None:
    made = merge_workload({"execution_id": "mine"}, {"job": {"uuid": "x"}})
    assert made == {"execution_id": "mine", "job": {"uuid": "x"}}
    assert sorted(PROTECTED) == ["catalog_id", "execution_id", "job"]


def test_variables_start_with_what_a_ctx_mapping_puts_over_the_workload() -> None:
    workload = {"a": {"x": 1}, "c": 4, "ctx": {"a": {"y": 2}, "b": 3}}
    assert seed_variables(workload) == {"a": {"x": 1, "y": 2}, "b": 3}
    assert seed_variables({"ctx": 5, "a": [1]}) == {}


def test_depth_is_bounded() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = {"k": deep}
    for arguments in ((deep, {}), ({}, deep), (deep, deep)):
        with pytest.raises(UsageError, match="nested deeper than 100 levels"):
            merge_workload(*arguments)


_DATA = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner)),
)


@given(_DATA, _DATA)
def test_the_payload_always_wins(defaults: dict[str, Any], payload: dict[str, Any]) -> None:
    made = merge_workload(defaults, payload)
    assert set(made) == set(defaults) | set(payload)
    assert merge_workload(made, payload) == made
    assert merge_workload({}, payload) == payload
    assert merge_workload(defaults, {}) == defaults
