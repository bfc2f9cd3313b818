"""Whole executions written to a log as the roles would write them, for tests of whoever reads it.

Owns the order of records of a small run: request, decision, claim, completion, end. Refuses to
decide anything: the story is fixed, only its names and numbers may be chosen.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from noetl_ray.events.envelope import Event, Record
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.scope import Scope
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.subjects import (
    catalog_subject,
    command_subject,
    control_subject,
    submit_subject,
    worker_subject,
)

if TYPE_CHECKING:
    from noetl_ray.wal.port import Log

PLAYBOOK = {"path": "demo/hello", "version": 1, "digest": "d" * 64}


class HistoryWriter:
    """Appends the records of executions to a log; event ids count up over all of them."""

    def __init__(
        self, log: Log, *, scope: Scope | None = None, shard: int = 0, first_event_id: int = 1
    ) -> None:
        self._log = log
        self._ids = itertools.count(first_event_id)
        self.scope = scope or Scope()
        self.shard = shard

    async def request(self, execution_id: int) -> int:
        """Somebody asks for an execution."""
        event = self._event(
            execution_id,
            EventType.EXECUTION_REQUESTED,
            AggregateType.SUBMISSION,
            {"playbook": PLAYBOOK, "workload": {"n": 1}, "project_id": "default"},
            idempotency_key=f"request-{execution_id}",
        )
        return await self._append(submit_subject(self.shard, self.scope, execution_id), event)

    async def begin(self, execution_id: int, *consumed: int) -> int:
        """The conductor starts it: one step, one command."""
        make = self._control(execution_id)
        return await self._append(
            control_subject(self.shard, self.scope, execution_id),
            make(EventType.PLAYBOOK_INITIALIZED, {"playbook": PLAYBOOK}),
            make(EventType.STEP_ENTER, {"step": "start", "visit": 1}),
            make(
                EventType.COMMAND_ISSUED,
                {"step": "start", "visit": 1, "playbook_digest": "d" * 64},
                command_id=f"{execution_id}:start:1",
                idempotency_key=f"{execution_id}:start:1",
            ),
            consumed=consumed,
        )

    async def claim(self, execution_id: int, worker_id: str = "w1") -> int:
        """A worker takes the command."""
        return await self._command(
            execution_id,
            EventType.COMMAND_CLAIMED,
            {"worker_id": worker_id, "incarnation": "i1"},
        )

    async def complete(self, execution_id: int) -> int:
        """The worker is done."""
        result = {"status": "ok", "reference": None, "context": {"rows": 3}}
        payload = {"step": "start", "visit": 1, "result": result}
        return await self._command(execution_id, EventType.CALL_DONE, payload)

    async def finish(self, execution_id: int, *consumed: int) -> int:
        """The conductor takes the completion and ends the execution."""
        make = self._control(execution_id)
        return await self._append(
            control_subject(self.shard, self.scope, execution_id),
            make(EventType.STEP_EXIT, {"step": "start", "visit": 1, "status": "completed"}),
            make(EventType.PLAYBOOK_COMPLETED, {"final_step": "start"}),
            consumed=consumed,
        )

    async def run(self, execution_id: int) -> int:
        """A whole execution; returns its last position."""
        await self.begin(execution_id, await self.request(execution_id))
        await self.claim(execution_id)
        return await self.finish(execution_id, await self.complete(execution_id))

    async def loop_item(self, execution_id: int, frame: int, index: int) -> int:
        """One row of a loop, on the subject of the open command: others are not folded."""
        command_id = f"{execution_id}:start:1"
        event = self._event(
            execution_id,
            EventType.LOOP_ITEM,
            AggregateType.COMMAND,
            {"step": "loop", "index": index},
            frame_id=f"f{frame}",
            command_id=command_id,
        )
        subject = command_subject(self.shard, self.scope, execution_id, command_id)
        return await self._append(subject, event)

    async def register(self, path: str, version: int) -> int:
        """A playbook enters the catalog."""
        event = self._event(
            0,
            EventType.PLAYBOOK_REGISTERED,
            AggregateType.PLAYBOOK,
            {"path": path, "version": version, "digest": f"{version}" * 64, "source": "kind: x"},
            idempotency_key=f"{path}@{version}",
        )
        return await self._append(catalog_subject(self.scope, path), event)

    async def worker(self, worker_id: str, event_type: EventType, **payload: Any) -> int:
        """A worker comes or goes."""
        event = self._event(
            0,
            event_type,
            AggregateType.WORKER,
            {"worker_id": worker_id, "incarnation": "i1"} | payload,
        )
        return await self._append(worker_subject(worker_id), event)

    def _control(self, execution_id: int) -> Any:
        def make(kind: EventType, payload: dict[str, Any], **more: Any) -> Event:
            return self._event(execution_id, kind, AggregateType.EXECUTION, payload, **more)

        return make

    async def _command(self, execution_id: int, kind: EventType, payload: dict[str, Any]) -> int:
        command_id = f"{execution_id}:start:1"
        event = self._event(
            execution_id,
            kind,
            AggregateType.COMMAND,
            payload,
            command_id=command_id,
            idempotency_key=f"{command_id}:{kind}",
        )
        subject = command_subject(self.shard, self.scope, execution_id, command_id)
        return await self._append(subject, event)

    def _event(
        self,
        execution_id: int,
        kind: EventType,
        aggregate: AggregateType,
        payload: dict[str, Any],
        **more: Any,
    ) -> Event:
        return sample_event(
            next(self._ids),
            tenant_id=self.scope.tenant_id,
            organization_id=self.scope.organization_id,
            execution_id=execution_id,
            stream_id=f"execution-{execution_id}",
            aggregate_id=str(execution_id),
            aggregate_type=aggregate,
            event_type=kind,
            payload=payload,
            **more,
        )

    async def _append(self, subject: str, *events: Event, consumed: tuple[int, ...] = ()) -> int:
        record = Record(events=events, consumed=consumed)
        return await self._log.append(subject, record, expected_version=None)
