"""Saves become messages and messages become states again; what does not fit is not used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.upcast import Upcaster, UpcasterRegistry, install
from noetl_ray.shards import checkpoint
from noetl_ray.shards.checkpoint import Save, encode_save, encode_state, read_chain
from noetl_ray.shards.port import MESSAGE_BYTES_MAX, Stored


def state(number: int, **more: Any) -> ExecutionState:
    return ExecutionState(
        execution_id=number, tenant_id="t", organization_id="o", shard=1, status="RUNNING", **more
    )


class Chain:
    """Messages as a store would keep them."""

    def __init__(self) -> None:
        self.messages: list[Stored] = []

    def save(self, *, keep: int | None = None, **given: Any) -> None:
        made = Save(**({"shard": 1, "epoch": 1, "base": False, "owner": "a"} | given))
        for data in encode_save(made)[:keep]:
            self.messages.append(Stored(len(self.messages) + 1, data))

    def read(self) -> checkpoint.Checkpoint:
        return read_chain(1, self.messages)


@pytest.fixture
def chain() -> Chain:
    made = Chain()
    made.save(base=True, position=10, states=[encode_state(state(1)), encode_state(state(2))])
    return made


def test_p25_a_base_and_its_changes_give_the_newest_states(chain: Chain) -> None:
    changed = state(2, ctx={"n": 2**60, "text": "ü\0"})
    chain.save(position=12, states=[encode_state(changed), encode_state(state(3))], ended=[1])
    found = chain.read()
    assert found.refused == ""
    assert found.position == 12
    assert found.states == {2: changed, 3: state(3)}
    assert (found.version, found.base_version, found.changes) == (2, 1, 1)


def test_an_empty_chain_is_no_checkpoint_and_no_trouble() -> None:
    found = read_chain(1, [])
    assert (found.position, found.version, found.refused, found.states) == (0, 0, "", {})


def test_a_save_larger_than_a_message_comes_in_pieces(chain: Chain) -> None:
    large = state(4, ctx={"blob": "x" * (2 * MESSAGE_BYTES_MAX)})
    chain.save(position=20, states=[encode_state(large)])
    assert len(chain.messages) == 4
    assert all(len(each.data) <= MESSAGE_BYTES_MAX for each in chain.messages)
    assert chain.read().states[4] == large


def test_a_writer_that_died_in_the_middle_left_nothing(chain: Chain) -> None:
    large = state(1, ctx={"blob": "x" * (2 * MESSAGE_BYTES_MAX)})
    chain.save(keep=2, position=20, base=True, states=[encode_state(large)])
    found = chain.read()
    assert (found.position, found.states) == (10, {1: state(1), 2: state(2)})
    assert found.version == 3
    chain.save(base=True, position=30, epoch=2, states=[])
    assert (chain.read().position, chain.read().states) == (30, {})


def test_p3_what_an_earlier_owner_writes_late_does_not_count(chain: Chain) -> None:
    chain.save(epoch=3, owner="b", position=30, ended=[1])
    chain.save(epoch=1, owner="a", position=15, states=[encode_state(state(9))])
    found = chain.read()
    assert (found.position, set(found.states), found.epoch) == (30, {2}, 3)


@pytest.fixture
def another_registry() -> Iterator[None]:
    lift = Upcaster(schema_name="noetl.event", from_version=1, to_version=2, lift=lambda raw: raw)
    before = install(UpcasterRegistry([lift]))
    yield
    install(before)


@pytest.mark.usefixtures("another_registry")
def test_p25_a_checkpoint_of_another_registry_is_not_used(request: Any) -> None:
    install(UpcasterRegistry())
    made = Chain()
    made.save(base=True, position=10, states=[encode_state(state(1))])
    assert not made.read().refused
    lift = Upcaster(schema_name="noetl.event", from_version=1, to_version=2, lift=lambda raw: raw)
    install(UpcasterRegistry([lift]))
    found = made.read()
    assert "registry" in found.refused
    assert (found.states, found.position) == ({}, 0)
    assert found.version == 1


def test_p25_a_checkpoint_of_other_code_is_not_used(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "code_version", lambda: "another")
    found = chain.read()
    assert "another version of this program" in found.refused
    assert found.states == {}


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([Stored(1, b"junk")], "cannot be read"),
        ([Stored(1, b"")], "cannot be read"),
    ],
)
def test_a_damaged_chain_is_refused_and_says_so(messages: list[Stored], why: str) -> None:
    found = read_chain(1, messages)
    assert why in found.refused
    assert found.version == 1


def test_a_flipped_byte_is_noticed(chain: Chain) -> None:
    data = bytearray(chain.messages[0].data)
    data[len(data) // 2] ^= 1
    found = read_chain(1, [Stored(1, bytes(data))])
    assert found.refused
    assert found.states == {}


def test_a_chain_without_a_base_or_of_another_shard_is_refused(chain: Chain) -> None:
    chain.save(position=11)
    assert "no whole base" in read_chain(1, chain.messages[1:]).refused
    assert "shard 1" in read_chain(2, chain.messages).refused
