"""Subjects: one per aggregate, shard first, any name safe in a token."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.scope import Scope
from noetl_ray.wal.matching import matches
from noetl_ray.wal.subjects import (
    catalog_subject,
    command_subject,
    control_subject,
    inbox_subject,
    keyed_submit_subject,
    parse_event_subject,
    shard_filter,
    submit_subject,
    token,
    untoken,
    worker_subject,
)

SCOPE = Scope(tenant_id="acme", organization_id="ops")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def test_the_grammar_is_pinned() -> None:
    assert control_subject(3, SCOPE, 7) == "noetl.events.3.acme.ops.7.control"
    assert inbox_subject(3, SCOPE, 7) == "noetl.events.3.acme.ops.7.inbox"
    assert submit_subject(3, SCOPE, 7) == "noetl.events.3.acme.ops.7.submit"
    assert command_subject(3, SCOPE, 7, "7-a-1") == "noetl.events.3.acme.ops.7.cmd-7-a-1"
    assert worker_subject("local/hot/0") == "noetl.system.worker.local%2Fhot%2F0"
    assert catalog_subject(SCOPE, "a/b.c") == "noetl.system.catalog.acme.ops.a%2Fb%2Ec"


@given(TEXT)
def test_any_text_is_one_token_and_reads_back(text: str) -> None:
    made = token(text)
    assert untoken(made) == text
    assert not re.search(r"[.*>\s]", made)


def test_p11_a_keyed_submit_is_named_by_its_key_alone() -> None:
    one = keyed_submit_subject(2, SCOPE, "order 7")
    assert one == keyed_submit_subject(2, SCOPE, "order 7")
    assert one != keyed_submit_subject(2, SCOPE, "order 8")
    parsed = parse_event_subject(one)
    assert parsed is not None
    assert re.fullmatch(r"key-[0-9a-f]{40}", parsed.execution)
    assert "order" not in one


def test_a_subject_reads_back() -> None:
    parsed = parse_event_subject(command_subject(3, SCOPE, 7, "7-a-1"))
    assert parsed is not None
    assert (parsed.shard, parsed.scope) == (3, SCOPE)
    assert (parsed.execution, parsed.aggregate) == ("7", "cmd-7-a-1")
    assert parse_event_subject(worker_subject("w")) is None
    assert parse_event_subject("noetl.events.3") is None


def test_a_shard_filter_takes_its_shard_and_no_other() -> None:
    for subject in (
        control_subject(1, SCOPE, 7),
        keyed_submit_subject(1, SCOPE, "k"),
        command_subject(1, SCOPE, 7, "any step.name"),
    ):
        assert matches(shard_filter(1), subject)
        assert not matches(shard_filter(11), subject)
        assert not matches(shard_filter(2), subject)
