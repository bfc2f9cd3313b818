"""The simulator has teeth: take one safeguard away and it says so within a few seeds.

Each safeguard is removed by patching the product, and a scenario that leans on it is run seed after
seed until an invariant breaks. The same seeds hold with the safeguard in place. Seeds that caught a
mutation when this was written stand beside it; the search goes on past them, since a change of
timing elsewhere moves which seed it is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from actors import deciding, dispatcher
from actors.barrier import Barrier
from actors.command_run import CommandRun
from actors.lease import WorkerLease
from actors.projector import Projector
from actors.worker import Worker
from noetl_ray.engine.inputs import Decision
from noetl_ray.wal.memory import MemoryLog
from tests.simulation.strains import crashed, doubled, doubled_frames, paused, retried, slow_acks

SEEDS_MAX = 40
"""Within so many seeds every mutation is found; none needs more than half of them today."""
SEEDS_HELD = 12

Scenario = Callable[[int], list[str]]


def caught_by(scenario: Scenario) -> int | None:
    """The first seed under which an invariant breaks."""
    return next((seed for seed in range(SEEDS_MAX) if scenario(seed)), None)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("scenario", [paused, retried, crashed, slow_acks, doubled, doubled_frames])
def test_the_seeds_hold_while_every_safeguard_is_there(scenario: Scenario) -> None:
    for seed in range(SEEDS_HELD):
        assert scenario(seed) == [], f"seed {seed}"


def _unversioned(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    real = MemoryLog.append

    async def append(self: Any, subject: str, record: Any, *, expected_version: Any) -> int:
        expected = None if part in subject else expected_version
        return await real(self, subject, record, expected_version=expected)

    monkeypatch.setattr(MemoryLog, "append", append)


def test_p3_an_append_to_control_without_its_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence. Caught by every seed."""
    _unversioned(monkeypatch, ".control")
    assert caught_by(slow_acks) is not None


def test_p16_a_completion_without_its_version_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version check. Caught by seeds 3, 4, 6, 13 …"""
    _unversioned(monkeypatch, ".cmd-")
    assert caught_by(paused) is not None


def test_p11_a_keyed_request_without_its_version_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dedup of requests. Caught by every seed."""
    _unversioned(monkeypatch, ".submit")
    assert caught_by(doubled) is not None


def test_p16_a_worker_that_forgets_what_it_was_offered_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dedup of hints. Caught by seeds 0, 1, 2, 3, 5 …"""
    monkeypatch.setattr(Worker, "_see", lambda _self, _command_id, _version: None)
    assert caught_by(doubled) is not None


def test_p30_a_projector_that_takes_what_it_has_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dedup of deliveries. Caught by seeds 1, 2, 5, 6, 7 …"""
    monkeypatch.setattr(Projector, "_is_due", lambda _self, _recorded: True)
    assert caught_by(doubled_frames) is not None


def test_p4_a_decision_that_forgets_a_position_it_consumed_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumed position. Caught by every seed."""
    real = deciding.decide

    def forgetful(*given: Any) -> Decision | None:
        made = real(*given)
        if made is None or not made.record.consumed:
            return made
        less = msgspec.structs.replace(made.record, consumed=made.record.consumed[:-1])
        return Decision(record=less, state=made.state, collections=made.collections)

    monkeypatch.setattr(deciding, "decide", forgetful)
    assert caught_by(slow_acks) is not None


def test_p19_a_barrier_that_never_adopts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The side-effect barrier. Caught by every seed."""

    async def adopt(_self: Barrier, _task: Any) -> None:
        return None

    monkeypatch.setattr(Barrier, "adopt", adopt)
    assert caught_by(crashed) is not None


def test_p22_a_worker_that_does_not_check_its_lease_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease check. Caught by seeds 3, 5, 6, 8, 9, 12, 17, 18 …"""

    async def ensure(_self: WorkerLease) -> None:
        return

    monkeypatch.setattr(WorkerLease, "ensure", ensure)
    assert caught_by(retried) is not None


def test_p16_an_offer_after_the_completion_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by seeds 0, 1, 2, 3, 5, 6, 7, 8 …

    The worker knows the version of its own completion too, so both have to look away.
    """
    real, see = dispatcher._returned, Worker._see

    def returned(state: Any, command: Any) -> bool:
        # Only the check in `offer` goes; the sweep keeps its own.
        return sys._getframe(1).f_code.co_name != "offer" and real(state, command)

    def of_offers(self: Worker, command_id: str, version: int) -> None:
        if sys._getframe(1).f_code.co_name != "advanced":
            see(self, command_id, version)

    monkeypatch.setattr(dispatcher, "_returned", returned)
    monkeypatch.setattr(Worker, "_see", of_offers)
    assert caught_by(slow_acks) is not None


def test_p18_a_holder_that_ignores_the_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caught by seeds 1, 2, 4, 6, 8 …"""

    async def recorded(_self: CommandRun) -> None:
        return None

    monkeypatch.setattr(CommandRun, "_recorded", recorded)
    assert caught_by(paused) is not None
