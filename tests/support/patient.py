"""Questions to a set whose gateway may be away for a while, and what to check of an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from actors.local import LocalSet
from noetl_ray.client import Client, Execution
from noetl_ray.engine.state import ExecutionState, encode_state
from noetl_ray.errors import LogUnavailableError, NotFoundError, StoreUnavailableError
from noetl_ray.events.canonical import sha256_hex
from tests.simulation.invariants import check_records, fold_all
from tests.support.journal import records_of

T = TypeVar("T")

POLL_S = 0.1
CALL_S = 30.0
ENDED_S = 90.0


def ask(running: LocalSet, question: Callable[[Client], Awaitable[T]]) -> T:
    """One question to a gateway that is there."""

    async def call() -> T:
        async with Client(running.gateway_url, token=running.token or None) as client:
            return await question(client)

    return asyncio.run(asyncio.wait_for(call(), CALL_S))


def ask_patiently(
    running: LocalSet, question: Callable[[Client], Awaitable[T]], wait_s: float = ENDED_S
) -> T:
    """The same while hosts come and go."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return ask(running, question)
        except (LogUnavailableError, StoreUnavailableError, NotFoundError, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def ended(running: LocalSet, execution_id: int, wait_s: float = ENDED_S) -> Execution:
    """An execution once it has ended."""
    deadline = time.monotonic() + wait_s
    while True:
        found = ask_patiently(running, lambda client: client.execution(execution_id), wait_s)
        if found.ended:
            return found
        assert time.monotonic() < deadline, f"not ended within {wait_s} s: {found}"
        time.sleep(POLL_S)


def until(holds: Callable[[], Any], what: str, wait_s: float = 30.0) -> Any:
    """The first true answer of a condition."""
    deadline = time.monotonic() + wait_s
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {wait_s} s: {what}"
        time.sleep(POLL_S / 4)


def check_execution(running: LocalSet, execution_id: int) -> ExecutionState:
    """The log of an ended execution is sound, and the read model is a fold of it."""
    records = records_of(running, execution_id)
    assert check_records(records) == []
    state = fold_all(records)[execution_id]

    def caught_up() -> Execution | None:
        row = ask_patiently(running, lambda client: client.execution(execution_id))
        return row if row.last_position >= state.position else None

    row = until(caught_up, f"the read model at {state.position} of {execution_id}")
    assert (row.status, row.event_count, row.last_position, row.final_step) == (
        state.status,
        state.event_count,
        state.position,
        state.final_step,
    )
    assert row.checksum == sha256_hex(encode_state(state))
    return state
