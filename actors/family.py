"""Parents and children: the messages between executions, sent after the decision that causes them.

Owns the child's request, the parent's answer and the cancel that goes on to children. Each lies on
a subject of its own and expects version 0, so it may be sent again and again (P13). Nothing is kept
here that state and log do not have: after a crash everything is looked at anew.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.calls import workload_ref
from noetl_ray.errors import ConflictError, NoetlError, NotFoundError, VersionConflictError
from noetl_ray.events.types import EXECUTION_TERMINAL, AggregateType, EventType
from noetl_ray.submit import SubmitPorts, cancel_execution
from noetl_ray.tools.playbook import COMPLETED, STARTED, TIMED_OUT
from noetl_ray.wal.subjects import control_subject, keyed_inbox_subject, submit_subject

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl_ray.engine.state import ChildState, ExecutionState
    from noetl_ray.events.envelope import Event, PayloadRef

_log = logging.getLogger(__name__)

LOOK_FIRST_S = 3.0
LOOK_MAX_S = 60.0
AT_ONCE_MAX = 32
SAID_TO_FAMILY = frozenset({EventType.CHILD_REQUESTED, EventType.COMMAND_RESUMED})
"""Events of decisions that another execution may have to hear of."""
_STATUS = {
    EventType.PLAYBOOK_COMPLETED: COMPLETED,
    EventType.PLAYBOOK_FAILED: "FAILED",
    EventType.EXECUTION_CANCELLED: "CANCELLED",
}


@dataclass(slots=True)
class _Look:
    """When a relative was last looked at, and how long to wait before the next look."""

    at: float
    wait_s: float


class Family:
    """Parents and children of one conductor's executions."""

    def __init__(self, submit: SubmitPorts) -> None:
        self._p = submit
        self._looks: dict[tuple[int, int], _Look] = {}
        self._sent: set[int] = set()
        self._looking: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[None]] = set()

    async def decided(self, state: ExecutionState, event: Event) -> None:
        """Send what an event of an accepted decision causes; what fails here is sent again."""
        if event.event_type is EventType.CHILD_REQUESTED:
            child = state.children.get(str(event.payload["child_execution_id"]))
            if child is not None:
                await self._try(self._request(state, child))
        elif event.event_type is EventType.COMMAND_RESUMED:
            child_id = event.payload.get("child_execution_id", 0)
            self._looks.pop((state.execution_id, child_id), None)
            self._sent.discard(child_id)

    def ended(self, state: ExecutionState, end: Event) -> None:
        """An execution has ended: tell those it belongs to, without anybody waiting for it."""
        self._forget(state)
        if state.parent_execution_id is None and not state.children:
            return
        task = asyncio.create_task(self._tell(state, end))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, state: ExecutionState, end: Event) -> None:
        if end.event_type is EventType.EXECUTION_CANCELLED and state.cancel_cascade:
            for child in state.children.values():
                await self._try(self._cancel(state, child.execution_id, _cancelled_by(state)))
        if state.parent is not None:
            await self._try(self._answer_parent(state, end))

    def look_after(self, states: Iterable[ExecutionState]) -> None:
        """Look at every relation that is due, in the background; one look at a time."""
        if self._looking is not None and not self._looking.done():
            return
        due = [work for state in states for work in self._due(state)]
        if due:
            self._looking = asyncio.create_task(self._all(due))

    def _forget(self, state: ExecutionState) -> None:
        self._looks.pop((state.execution_id, state.parent_execution_id or 0), None)
        for child in state.children.values():
            self._looks.pop((state.execution_id, child.execution_id), None)
            self._sent.discard(child.execution_id)

    async def stop(self) -> None:
        """Let go; the log has everything."""
        tasks = [*self._telling, *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _due(self, state: ExecutionState) -> list[Any]:
        """What to look at now, as calls to make."""
        if not state.children and state.parent_execution_id is None:
            return []
        found: list[Any] = []
        for child in state.children.values():
            late = 0 < child.deadline_ms <= self._p.clock.now_ms()
            if late or self._is_due(state.execution_id, child.execution_id):
                found.append((self._child, state, child))
        if state.parent_execution_id is not None and self._is_due(
            state.execution_id, state.parent_execution_id
        ):
            found.append((self._parent, state, None))
        return found

    def _is_due(self, one: int, other: int) -> bool:
        now = self._p.clock.monotonic()
        look = self._looks.get((one, other))
        if look is None:
            # A decision of this process has just sent what was to be sent; after a restart this
            # process has sent nothing, and looks at once.
            self._looks[one, other] = _Look(at=now, wait_s=LOOK_FIRST_S)
            return other not in self._sent
        if now - look.at < look.wait_s:
            return False
        look.at, look.wait_s = now, min(look.wait_s * 2, LOOK_MAX_S)
        return True

    async def _all(self, due: list[Any]) -> None:
        gate = asyncio.Semaphore(AT_ONCE_MAX)

        async def one(call: Any, state: ExecutionState, child: ChildState | None) -> None:
            async with gate:
                await self._try(call(state, child) if child is not None else call(state))

        await asyncio.gather(*(one(*work) for work in due))

    async def _try(self, work: Any) -> None:
        try:
            await work
        except NoetlError as error:
            _log.info("a message between executions waits: %s", error)

    async def _child(self, state: ExecutionState, child: ChildState) -> None:
        """See that a child is asked for, and whether it has ended."""
        if child.execution_id not in self._sent:
            await self._request(state, child)
        shard = self._p.shard(state.scope, state.project_id, child.execution_id)
        last = await self._p.log.last(control_subject(shard, state.scope, child.execution_id))
        for event in last.record.events if last else ():
            if event.event_type in EXECUTION_TERMINAL:
                await self._answer(state, child, *_ended(event))
                return
        if 0 < child.deadline_ms <= self._p.clock.now_ms():
            await self._answer(state, child, {"status": TIMED_OUT}, None)
            reason = f"execution {state.execution_id} waited for it long enough"
            await self._cancel(state, child.execution_id, reason)

    async def _parent(self, state: ExecutionState) -> None:
        """A child whose parent was cancelled is cancelled too, whatever became of the message."""
        parent = state.parent_execution_id or 0
        shard = self._p.shard(state.scope, state.project_id, parent)
        last = await self._p.log.last(control_subject(shard, state.scope, parent))
        for event in last.record.events if last else ():
            cancelled = event.event_type is EventType.EXECUTION_CANCELLED
            if cancelled and event.payload.get("cascade", True):
                reason = f"its parent, execution {parent}, was cancelled"
                await self._cancel(state, state.execution_id, reason)

    async def _request(self, state: ExecutionState, child: ChildState) -> None:
        """Ask for a child: once, however often this is called."""
        asked = await self._p.log.get(child.asked)
        parked = next(
            event
            for event in (asked.record.events if asked else ())
            if event.event_type is EventType.TASK_PARKED
        )
        wait = parked.payload["wait"]
        scope, child_id = state.scope, child.execution_id
        subject = submit_subject(self._p.shard(scope, state.project_id, child_id), scope, child_id)
        reference = workload_ref(wait)
        record = self._p.record(
            scope,
            subject,
            EventType.EXECUTION_REQUESTED,
            {
                "playbook": wait["playbook"],
                "workload": wait["workload"],
                "project_id": state.project_id,
                "parent_execution_id": state.execution_id,
                "parent": {
                    "command_id": child.command_id,
                    "event_id": child.event_id,
                    "return_step": wait.get("return_step"),
                    "detached": bool(wait.get("detached")),
                },
                "depth": state.depth + 1,
            },
            aggregate=(AggregateType.SUBMISSION, f"submission/{child_id}"),
            idempotency_key=f"{child_id}/requested",
            execution_id=child_id,
            payload_ref=reference,
            meta={"workload_externalized": True} if reference is not None else None,
        )
        await self._once(subject, record)
        self._sent.add(child_id)
        if wait.get("detached"):
            await self._answer(state, child, {"status": STARTED}, None)

    async def _answer_parent(self, state: ExecutionState, end: Event) -> None:
        """Tell the parent how its child ended."""
        told = state.parent or {}
        if told.get("detached"):
            return
        parent_id = state.parent_execution_id or 0
        said, reference = _ended(end)
        await self._say(
            state, parent_id, state.execution_id, told["command_id"], told["event_id"], said,
            reference,
        )  # fmt: skip

    async def _answer(
        self,
        state: ExecutionState,
        child: ChildState,
        said: dict[str, Any],
        reference: PayloadRef | None,
    ) -> None:
        """The same, found out by the parent's own conductor."""
        await self._say(
            state, state.execution_id, child.execution_id, child.command_id, child.event_id, said,
            reference,
        )  # fmt: skip

    async def _say(
        self,
        state: ExecutionState,
        parent_id: int,
        child_id: int,
        command_id: str,
        prev_event_id: int,
        said: dict[str, Any],
        reference: PayloadRef | None,
    ) -> None:
        """Leave a child's end with its parent; the first word about it counts."""
        scope = state.scope
        shard = self._p.shard(scope, state.project_id, parent_id)
        subject = keyed_inbox_subject(shard, scope, parent_id, f"child/{child_id}")
        record = self._p.record(
            scope,
            subject,
            EventType.CHILD_ENDED,
            {"child_execution_id": child_id, "command_id": command_id, **said},
            aggregate=(AggregateType.INBOX, f"inbox/{parent_id}"),
            idempotency_key=f"{child_id}/ended",
            execution_id=parent_id,
            prev_event_id=prev_event_id,
            payload_ref=reference,
        )
        await self._once(subject, record)

    async def _once(self, subject: str, record: Any) -> None:
        try:
            await self._p.log.append(subject, record, expected_version=0)
        except VersionConflictError:
            _log.debug("%s has its message already", subject)

    async def _cancel(self, state: ExecutionState, execution_id: int, reason: str) -> None:
        try:
            await cancel_execution(
                self._p, state.scope, execution_id, reason, project_id=state.project_id
            )
        except (ConflictError, NotFoundError) as error:
            _log.debug("nothing to cancel: %s", error)


def _cancelled_by(state: ExecutionState) -> str:
    return f"its parent, execution {state.execution_id}, was cancelled"


def _ended(event: Event) -> tuple[dict[str, Any], PayloadRef | None]:
    """What a parent is told of the event that ended its child."""
    payload = event.payload
    said = {"status": _STATUS[event.event_type], "final_step": payload.get("final_step")}
    for key in ("error", "reason", "returned"):
        if payload.get(key) is not None:
            said[key] = payload[key]
    return said, event.payload_ref
