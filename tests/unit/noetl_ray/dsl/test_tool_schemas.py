"""Every kind says what it takes, what it needs and what it gives."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.language import CONFIG, KINDS
from noetl_ray.dsl.tool_schemas import OUTSIDE_KINDS, SCHEMAS, installed_kinds, missing_needs


@pytest.mark.parametrize("kind", sorted(KINDS & set(SCHEMAS)))
def test_each_key_of_a_kind_is_explained(kind: str) -> None:
    schema = SCHEMAS[kind]
    assert schema.text
    if schema.keys:
        assert set(schema.keys) == set(CONFIG[kind])
    for group in schema.needs:
        assert set(group) - {"auth", "sql", "name"} <= set(CONFIG[kind])


def test_every_kind_has_a_schema() -> None:
    assert set(SCHEMAS) >= KINDS
    assert not KINDS & OUTSIDE_KINDS
    assert installed_kinds() >= KINDS


def test_what_is_missing() -> None:
    assert missing_needs("http", frozenset({"method"})) == [("url", "endpoint")]
    assert missing_needs("http", frozenset({"endpoint"})) == []
    assert missing_needs("unheard", frozenset()) == []
