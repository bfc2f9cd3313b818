"""Scopes: names that are safe in subjects, keys and paths, and nothing else."""

from __future__ import annotations

import pytest

from noetl_ray.errors import UsageError
from noetl_ray.scope import Scope


@pytest.mark.parametrize("name", ["default", "a", "A-1_b", "0", "x" * 63])
def test_plain_names_are_allowed(name: str) -> None:
    assert Scope(tenant_id=name, organization_id=name).tenant_id == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a.b",
        "a/b",
        "..",
        "a b",
        "*",
        ">",
        "-a",
        "_a",
        "é",
        "x" * 64,
        "a\n",
        "tenant",
        "execution",
    ],
)
def test_names_that_could_leave_their_segment_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"tenant .* is not allowed"):
        Scope(tenant_id=name)
    with pytest.raises(UsageError, match=r"organization .* is not allowed"):
        Scope(organization_id=name)


def test_a_scope_is_a_value() -> None:
    assert Scope() == Scope(tenant_id="default", organization_id="default")
    assert len({Scope(), Scope(), Scope(tenant_id="other")}) == 2
