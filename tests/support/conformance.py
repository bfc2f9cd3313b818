"""Runs a playbook on the whole runtime in one process and tells what came of every step.

The roles live on an event loop of their own thread for the whole session, so that tests are plain
functions and share one warm pool of python processes.
"""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from noetl_ray.credentials.port import Credential
from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.envelope import Event
from noetl_ray.events.types import EventType
from noetl_ray.submit import register_playbook
from tests.simulation.invariants import check_records, fold_all
from tests.support.memory_set import MemorySet, running_memory_set

RUN_S = 40.0
START_S = 20.0

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """An execution that has ended: its state, its events and the value of every step."""

    state: ExecutionState
    events: list[Event]
    values: dict[str, Any]

    def __getitem__(self, step: str) -> Any:
        """The result of a step; KeyError when it has none."""
        return self.values[step]

    @property
    def status(self) -> str:
        """How it ended."""
        return self.state.status

    @property
    def ctx(self) -> dict[str, Any]:
        """The variables at the end."""
        return self.state.ctx

    @property
    def visits(self) -> dict[str, int]:
        """How often each step was entered."""
        return {name: step.visits for name, step in self.state.steps.items()}

    @property
    def error(self) -> dict[str, Any]:
        """Why it failed."""
        assert self.state.error is not None
        return self.state.error

    def of(self, kind: EventType, step: str | None = None) -> list[dict[str, Any]]:
        """The payloads of one type of event, of one step where it is named."""
        return [
            event.payload
            for event in self.events
            if event.event_type is kind and step in (None, event.payload.get("step"))
        ]

    def warnings(self, step: str) -> list[str]:
        """What was said about a step that had to be left out."""
        told = [*self.of(EventType.CALL_DONE, step), *self.of(EventType.STEP_EXIT, step)]
        return [text for payload in told for text in payload.get("warnings", [])]

    def completed(self) -> Ended:
        """The same, when it completed; else the test fails with the reason."""
        assert self.status == "COMPLETED", (self.status, self.state.error)
        return self

    def failed(self) -> Ended:
        """The same, when it failed."""
        assert self.status == "FAILED", self.status
        return self


class Runtime:
    """The set on its own loop, asked from plain functions."""

    def __init__(self, loop: asyncio.AbstractEventLoop, made: MemorySet) -> None:
        self._loop = loop
        self._set = made

    def run(self, source: str, workload: Mapping[str, Any] | None = None) -> Ended:
        """Run a whole playbook to its end."""
        return self._wait(self._run(source, dict(workload or {})))

    def flow(
        self,
        steps: str,
        *,
        head: str = "",
        payload: Mapping[str, Any] | None = None,
        path: str = "conformance/one",
    ) -> Ended:
        """Run a list of steps; ``head`` is what stands before ``workflow``."""
        return self.run(playbook(steps, head=head, path=path), payload)

    def credential(self, name: str, kind: str, data: dict[str, Any]) -> None:
        """Add a credential."""
        made = Credential(name=name, type=kind, data=data)
        self._wait(self._set.credentials.put(self._set.scope, made))

    def register(self, steps: str, path: str, *, head: str = "") -> None:
        """Register a list of steps as a playbook that others can call."""
        self.register_text(playbook(steps, head=head, path=path))

    def register_text(self, source: str) -> None:
        """Register a whole playbook."""
        ports, scope = self._set.submit_ports, self._set.scope
        self._wait(register_playbook(ports, scope, source))

    async def _run(self, source: str, workload: dict[str, Any]) -> Ended:
        found = await self._set.execute(source, RUN_S, workload)
        assert check_records(found) == []
        (state,) = fold_all(found).values()
        values = {
            name: await self._set.results.load(self._set.scope, step.result)
            for name, step in state.steps.items()
            if step.result is not None
        }
        events = [event for recorded in found for event in recorded.record.events]
        return Ended(state=state, events=events, values=values)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(RUN_S + 5)


def playbook(steps: str, *, head: str = "", path: str = "conformance/one") -> str:
    """The text of a playbook made of these steps."""
    return (
        "apiVersion: noetl.io/v2\nkind: Playbook\n"
        f"metadata: {{name: conformance, path: {path}}}\n"
        f"{textwrap.dedent(head).strip()}\n"
        f"workflow:\n{textwrap.indent(textwrap.dedent(steps).strip(), '  ')}\n"
    )


@contextmanager
def conformance_runtime(env: Mapping[str, str]) -> Iterator[Runtime]:
    """A running set, until the block ends."""
    ready = threading.Event()
    made: list[tuple[asyncio.AbstractEventLoop, MemorySet, asyncio.Event]] = []
    failures: list[BaseException] = []

    async def live() -> None:
        stop = asyncio.Event()
        async with running_memory_set(env) as running:
            made.append((asyncio.get_running_loop(), running, stop))
            ready.set()
            await stop.wait()

    def main() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=main, name="conformance", daemon=True)
    thread.start()
    assert ready.wait(START_S)
    assert not failures, failures
    loop, running, stop = made[0]
    try:
        yield Runtime(loop, running)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(START_S)
    assert not failures, failures
