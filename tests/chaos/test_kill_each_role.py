"""Every role's process is killed in the middle of runs: nothing is lost and nothing done twice.

A payment waits before it counts, so a worker killed meanwhile has not paid; the payment is then
made once, by whoever takes the command over. Where kills fall at random, a payment whose completion
never reached the log may be repeated, once per time its command was given out, and never after it
was recorded.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from noetl_ray.events.types import EventType
from tests.chaos.conftest import PAYMENTS, ROWS, Arena, payment_key
from tests.support.patient import ask_patiently, check_execution, ended, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

HOSTS = {
    "noetl/hot/0": ["conductor", "worker", "keeper"],
    "noetl/views/0": ["projector", "materializer", "gateway"],
    "noetl/conductor/1": ["conductor"],
    "noetl/worker/1": ["worker"],
}
WAIT_S = 2.0
"""How long a payment waits before it counts; the kill must fall into it."""
TRIES = 4


def kill(arena: Arena, host: str) -> str:
    """Kill -9 of a host's process; its incarnation."""
    health = arena.ray.running(host)
    os.kill(health["pid"], signal.SIGKILL)
    return str(health["incarnation"])


def remove(arena: Arena, host: str) -> str:
    """Take a host away from Ray for good: only its peers can bring it back."""
    health = arena.ray.running(host)
    arena.ray.remove(host)
    return str(health["incarnation"])


def strike(arena: Arena, host: str, how, at: tuple[str, ...]) -> list[int]:
    """Runs, and a kill while all their payments ``at`` wait; again when the moment was missed."""
    for _ in range(TRIES):
        arena.ray.running(host)
        ids = arena.submit_to_all(delay_s=WAIT_S)
        keys = {payment_key(each, step) for each in ids for step in at}

        def all_wait(keys=keys):
            return keys <= arena.effects()["begun"].keys()

        until(all_wait, f"payments {at} of {ids}", wait_s=60)
        before = how(arena, host)
        in_time = not keys & arena.effects()["counts"].keys()
        for execution_id in ids:
            assert ended(arena.running, execution_id).status == "COMPLETED"
        after = arena.ray.running(host, other_than=before)
        assert after["roles"] == HOSTS[host]
        if in_time and ("worker" not in HOSTS[host] or released(arena, ids, before)):
            return ids
    return pytest.fail(f"never killed {host} in time")


def released(arena: Arena, ids: list[int], incarnation: str) -> list[str]:
    """Commands that were taken from a worker's dead incarnation."""
    return [
        str(event.command_id)
        for each in ids
        for event in arena.events(each)
        if event.event_type is EventType.COMMAND_RELEASED
        and event.payload["incarnation"] == incarnation
    ]


def check_exactly_once(arena: Arena, execution_id: int) -> None:
    counts = arena.effects()["counts"]
    assert {step: counts[payment_key(execution_id, step)] for step in PAYMENTS} == dict.fromkeys(
        PAYMENTS, 1
    )
    assert arena.rows(execution_id) == dict.fromkeys(ROWS, 1)
    found = ask_patiently(arena.running, lambda client: client.result(execution_id, "finish"))
    assert found["rows"] == [{"rows_stored": 2, "amount": 19}]


@pytest.mark.parametrize("host", HOSTS)
def test_a_killed_process_loses_and_repeats_nothing(arena, host):
    for execution_id in strike(arena, host, kill, ("pay_a", "pay_b")):
        check_exactly_once(arena, execution_id)
        state = check_execution(arena.running, execution_id)
        assert {step.status for step in state.steps.values()} == {"completed"}
        assert len(state.steps) == 8


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_removed_from_ray_loses_and_repeats_nothing(arena, host):
    for execution_id in strike(arena, host, remove, ("pay_c",)):
        check_exactly_once(arena, execution_id)
        check_execution(arena.running, execution_id)


def test_all_processes_killed_at_once(arena):
    ids = arena.submit(3, delay_s=WAIT_S)
    keys = {payment_key(each, step) for each in ids for step in ("pay_a", "pay_b")}
    until(lambda: keys <= arena.effects()["begun"].keys(), "all payments begun", wait_s=60)
    before = {host: kill(arena, host) for host in HOSTS}
    for execution_id in ids:
        assert ended(arena.running, execution_id).status == "COMPLETED"
        check_at_most_once_per_attempt(arena, execution_id)
        check_execution(arena.running, execution_id)
    for host, incarnation in before.items():
        arena.ray.running(host, other_than=incarnation)


def test_a_storm_of_kills_over_many_runs(arena):
    """No moment is chosen: decisions, claims, effects and completions are all cut somewhere."""
    chance = random.Random(7)
    ids = arena.submit(12, delay_s=0.2)
    for host in chance.sample(list(HOSTS), len(HOSTS)):
        time.sleep(chance.uniform(0.0, 1.5))
        kill(arena, host)
        ids += arena.submit(2, delay_s=0.2)
    for execution_id in ids:
        assert ended(arena.running, execution_id).status == "COMPLETED"
    for execution_id in ids:
        check_at_most_once_per_attempt(arena, execution_id)
        check_execution(arena.running, execution_id)


def check_at_most_once_per_attempt(arena: Arena, execution_id: int) -> None:
    """Everything happened, and nothing oftener than its command was handed out."""
    counts, attempts, rows = (
        arena.effects()["counts"],
        arena.attempts(execution_id),
        arena.rows(execution_id),
    )
    for step in PAYMENTS:
        assert 1 <= counts[payment_key(execution_id, step)] <= attempts[step], step
    for step in ROWS:
        assert 1 <= rows[step] <= attempts[step], step
