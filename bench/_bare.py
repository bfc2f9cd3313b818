"""The hot roles without Ray: a NATS server, one host in this process, and submits to its log.

What is left when everything around a step is taken away; for questions about the log itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from actors.assembly import open_host
from actors.options import HOT_ROLES
from noetl_ray.clock import SystemClock
from noetl_ray.config.settings import EventStoreSettings, Settings
from noetl_ray.embedded.nats import start_nats, stop_nats
from noetl_ray.events.types import EXECUTION_TERMINAL, EventType
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.payloads.fsspec_store import FsspecStore
from noetl_ray.scope import Scope
from noetl_ray.submit import Submission, SubmitPorts, register_playbook, submit_execution
from noetl_ray.wal.connection import connect
from noetl_ray.wal.generators import lease_generator
from noetl_ray.wal.jetstream import JetStreamLog

if TYPE_CHECKING:
    from types import TracebackType

TOKEN = "only-for-this-benchmark"
CONTROL = "noetl.events.*.*.*.*.control"
TURN_S = 10.0
STOP_S = 20.0


class BareSet:
    """A server of some durability with a log on it; ``begin`` adds the roles."""

    log: JetStreamLog
    submit: SubmitPorts

    def __init__(self, durability: Literal["process", "disk"]) -> None:
        self.durability = durability
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        stack = self._stack
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nb-")))
        server = await asyncio.to_thread(
            start_nats, folder / "nats", token=TOKEN, durability=self.durability, detached=False
        )
        stack.callback(stop_nats, server)
        store = EventStoreSettings(url=server.url, token=TOKEN, durability=self.durability)
        self._settings = Settings(data_dir=str(folder), event_store=store)
        connection = await connect(server.url, TOKEN)
        stack.push_async_callback(connection.close)
        self.log = await JetStreamLog.open(connection)
        stack.push_async_callback(self.log.close)
        generator = await lease_generator(connection, "bench")
        stack.push_async_callback(generator.close)
        clock = SystemClock()
        self.submit = SubmitPorts(
            log=self.log,
            objects=FsspecStore.open((folder / "objects").as_uri()),
            placement=Placement(),
            mint=SnowflakeIds(generator.number, clock).mint,
            clock=clock,
            producer="noetl://tenant/default/org/default/client/bench",
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def begin(self) -> None:
        """Start conductor, worker and keeper."""
        host = await open_host(
            self._settings,
            HOT_ROLES,
            host_name="hot/0",
            incarnation=f"bench-{self.durability}",
        )
        stopping = asyncio.Event()
        running = asyncio.create_task(host.run(stopping))

        async def stop() -> None:
            stopping.set()
            await asyncio.wait({running}, timeout=STOP_S)

        self._stack.push_async_callback(stop)

    async def run_s(self, source: str) -> float:
        """Seconds from a submit to the end of its execution, as the log says it."""
        await register_playbook(self.submit, Scope(), source)
        after = await self.log.last_position()
        ends = await self.log.subscribe([CONTROL], from_position=after + 1)
        try:
            began = time.perf_counter()
            started = await submit_execution(
                self.submit, Scope(), "default", Submission(source=source)
            )
            while True:
                for recorded in await ends.next_batch(500, TURN_S):
                    last = recorded.record.events[-1]
                    if last.execution_id == started.execution_id and (
                        last.event_type in EXECUTION_TERMINAL
                    ):
                        if last.event_type is not EventType.PLAYBOOK_COMPLETED:
                            msg = f"the execution ended with {last.event_type}: {last.payload}"
                            raise RuntimeError(msg)
                        return time.perf_counter() - began
        finally:
            await ends.close()
