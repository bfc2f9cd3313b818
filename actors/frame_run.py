"""One frame from its offer to its end in the log: take rows, work them off, commit (FRM-6).

The worker interprets the loop's body itself, so a frame costs three events however many rows it
has: dispatched, started, committed. Its lease is kept by heartbeats from this process's event loop,
which user code cannot hold up; whoever took the frame away meanwhile has moved its version on, and
the next append here is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from actors.command_run import CommandRun
from actors.completion import bounded
from actors.cursor_rows import CursorRows
from actors.frame_rows import FrameRows, Kept
from actors.holding import subject_of
from actors.row_barrier import RowBarrier, finished
from actors.stamp import object_events
from noetl_ray.dsl.model import Task
from noetl_ray.engine.frames import FRAMES_MAX, frame_ordinal
from noetl_ray.engine.policy import FramePolicy, next_max_rows
from noetl_ray.errors import LogError, LogUnavailableError, NoetlError, ToolError
from noetl_ray.events.canonical import to_jsonable
from noetl_ray.events.types import EventType
from noetl_ray.locator.result import ResultName, frame_coordinate, step_coordinate
from noetl_ray.results.redact import has_credentials, mask
from noetl_ray.tools.meter import TaskMeter
from noetl_ray.tools.port import ToolContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.row_barrier import Told
    from noetl_ray.credentials.port import Credential
    from noetl_ray.dsl.model import Step
    from noetl_ray.engine.names import Names
    from noetl_ray.events.envelope import Event
    from noetl_ray.tools.business_object import BusinessObject
    from noetl_ray.tools.cursor import Claimed
    from noetl_ray.tools.keychain import Keychain
    from noetl_ray.tools.pipeline import ContextFactory

_log = logging.getLogger(__name__)

LOG_RETRY_S = 0.5
ROWS_LABEL = "rows"

End = tuple[EventType, dict[str, Any]]


class FrameRun(CommandRun):
    """One attempt at a frame."""

    async def run(self) -> None:
        """Take rows, work, commit; a frame that failed says why."""
        payload = self._offer.issued.payload
        self._policy = msgspec.convert(payload["frame_policy"], FramePolicy)
        self._appending = asyncio.Lock()
        self._lease_deadline = self._p.clock.monotonic() + self._policy.lease_seconds
        self._set: dict[str, Any] = {}
        self._objects: list[BusinessObject] = []
        self._barrier = RowBarrier(self._say_rows) if self._policy.row_barrier else None
        self._errors: list[dict[str, Any]] = []
        self._meter = TaskMeter()
        self._credentials: dict[str, Credential] = {}
        self._base |= {"slot": payload["slot"], "frame_index": payload["frame_index"]}
        try:
            end = await self._guarded()
        except asyncio.CancelledError:
            if self._offer.issued.command_id in self._nudged:
                error = {"kind": "cancelled", "message": "the execution was cancelled"}
                with contextlib.suppress(LogError):
                    await asyncio.shield(self._say(self._failure(error)))
            raise
        except LogError:
            # Taken away, or this worker is lost: the log has the truth.
            raise
        except NoetlError as failure:
            end = self._failure(self._error_of(failure))
        await self._say(*object_events(self._objects, self._base, None, self._shown()), end)
        await self._logbook.close()

    async def _guarded(self) -> End:
        """Work while a heartbeat keeps the lease; a refused heartbeat ends the work."""
        work = asyncio.ensure_future(self._attempt())
        beat = asyncio.ensure_future(self._keep_lease())
        try:
            await asyncio.wait({work, beat}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                beat.result()
            # A heartbeat on its way has moved the version on: let it arrive before the end goes.
            async with self._appending:
                beat.cancel()
            return await work
        finally:
            for task in (work, beat):
                task.cancel()
            await asyncio.gather(work, beat, return_exceptions=True)

    async def _attempt(self) -> End:
        if self._base["frame_index"] >= FRAMES_MAX:
            msg = f"a slot claimed {FRAMES_MAX} frames; does the claim of {self._step!r} run dry?"
            raise ToolError(msg, "unknown")
        program, context, steps = await self._patiently(self._load)
        ctx = dict(context.get("ctx", {}))
        names, keychain = self._names(program, context, ctx, steps)
        step = program.playbook.steps[self._step]
        started = self._p.clock.monotonic()
        claimed = await self._claimed(step, names, keychain)
        claim_s = self._p.clock.monotonic() - started
        failed = 0
        if claimed.rows:
            rows = CursorRows(self, step, names, ctx, keychain, claimed.rows)
            finished_before = await self._finished() if claimed.again else {}
            failed = await rows.work_off(finished_before)
        seconds = self._p.clock.monotonic() - started
        count = len(claimed.rows)
        metrics = {
            "rows_ok": count - failed,
            "rows_failed": failed,
            "bytes": claimed.size_bytes,
            "claim_ms": round(claim_s * 1000, 3),
            "work_ms": round((seconds - claim_s) * 1000, 3),
            "row_concurrency": self._policy.row_concurrency,
            **self._meter.told(),
        }
        end = self._base | {
            "attempt": self._offer.attempt,
            "row_count": count,
            "processed": count,
            "failed": failed,
            "next_max_rows": next_max_rows(self._policy, count, seconds, claimed.size_bytes),
            "cursor": {"metrics": metrics},
        }
        if self._errors:
            end["errors"] = self._errors
        if self._set:
            end["set"] = mask(self._shown().value(to_jsonable(self._set)))
        return EventType.FRAME_COMMITTED, end

    async def _claimed(self, step: Step, names: Names, keychain: Keychain) -> Claimed:
        """The rows of this frame, claimed as the loop's cursor says."""
        assert step.loop is not None
        assert step.loop.cursor is not None
        cursor = dict(step.loop.cursor)
        claim = cursor.pop("claim")
        task = Task(label="claim", kind=str(cursor.get("kind")), config=step.loop.cursor)
        await keychain.prepare(task, step)
        config = self._p.templates.value(cursor, names)

        def statement(rows_max: int) -> str:
            shown = names.with_locals({"__frame_max_rows": rows_max})
            return str(self._p.templates.text(claim, shown))

        rows = FrameRows(
            self._offer,
            self._policy,
            self._p.results,
            self._p.registry,
            self._p.clock,
            name=self._rows_name,
            started=self._started,
            starts=self._starts,
            may_log=self._may_log,
            may_act=self._may_act,
            patiently=self._patiently,
        )
        context = ToolContext(
            execution_id=self._offer.issued.execution_id,
            step=self._step,
            task="claim",
            attempt=self._offer.attempt,
            idempotency_key=f"{self._offer.issued.frame_id}/claim",
            timeout_s=None,
            credential=self._credential,
            log=self._logbook.writer("claim", self._offer.attempt),
        )
        return await rows.take(config, statement, context)

    def _rows_name(self, attempt: int) -> ResultName:
        ordinal = frame_ordinal(self._base["slot"], self._base["frame_index"])
        return replace(
            self._name(ROWS_LABEL, attempt),
            step=step_coordinate(self._step, ROWS_LABEL),
            frame=frame_coordinate(self._visit, ordinal),
        )

    async def _started(self, kept: Kept, attempt: int) -> None:
        told: dict[str, Any] = {
            "attempt": self._offer.attempt,
            "worker_id": self._me.worker_id,
            "row_count": len(kept["rows"]),
            "lease_until_ms": self._lease_until(),
        }
        if attempt == 0:
            told["claim"] = kept
        else:
            told["rows_ref"] = {
                "uri": self._rows_name(attempt).uri,
                "rows": len(kept["rows"]),
                "media_type": "application/json",
            }
        await self._say((EventType.FRAME_STARTED, self._base | told))

    async def _starts(self) -> list[Event]:
        """Starts of this frame that earlier holders recorded, and where they say rows lie."""
        return [e for e in await self._recorded_here() if e.event_type is EventType.FRAME_STARTED]

    async def _finished(self) -> dict[int, Told]:
        """The rows that earlier holders of this frame finished, as far as they told."""
        if self._barrier is None or not self._offer.version:
            return {}
        return finished(await self._recorded_here())

    async def _say_rows(self, rows: list[Told]) -> None:
        told = {"worker_id": self._me.worker_id, "attempt": self._offer.attempt, "rows": rows}
        await self._say((EventType.FRAME_ROWS_DONE, told | {"lease_until_ms": self._lease_until()}))

    async def _recorded_here(self) -> list[Event]:
        """What earlier holders recorded of this frame."""
        while True:
            try:
                return [
                    event
                    async for recorded in self._p.log.read(subject_of(self._offer))
                    for event in recorded.record.events
                ]
            except LogUnavailableError as error:
                _log.warning("%s waits: %s", self._offer.issued.command_id, error)
                await self._p.clock.sleep(LOG_RETRY_S)

    def _may_log(self, rows: Any) -> bool:
        return not has_credentials(rows) and self._shown().value(rows) == rows

    def _row_context(self, key: str, given: dict[str, Any]) -> ContextFactory:
        """Contexts of one row: its outside calls have keys that another attempt has too."""

        async def context_for(
            task: Task, attempt: int, turn: int, timeout_s: float | None, names: Mapping[str, Any]
        ) -> ToolContext:
            await self._may_act()
            call = f"{self._offer.issued.frame_id}/{key}/{task.label}/{turn}"
            return self._tool_context(task, attempt, timeout_s, names, call, given)

        return context_for

    async def _from_store(self, name: str) -> Credential:
        """Asked for once a frame: its rows would ask the store for the same again and again."""
        kept = self._credentials.get(name)
        if kept is None:
            kept = self._credentials[name] = await super()._from_store(name)
        return kept

    # The frame's subject

    async def _may_act(self) -> None:
        """Before touching the world: the worker's lease, and the frame's own (P22)."""
        await self._lease.ensure()
        if self._p.clock.monotonic() > self._lease_deadline:
            await self._beat()

    async def _keep_lease(self) -> None:
        while True:
            await self._p.clock.sleep(self._policy.heartbeat_seconds)
            await self._beat()

    async def _beat(self) -> None:
        told = {"worker_id": self._me.worker_id, "attempt": self._offer.attempt}
        until = {"lease_until_ms": self._lease_until()}
        await self._say((EventType.FRAME_HEARTBEAT, told | until))

    def _lease_until(self) -> int:
        return self._p.clock.now_ms() + int(self._policy.lease_seconds * 1000)

    async def _say(self, *said: End) -> None:
        """One append at a time (P2)."""
        async with self._appending:
            at = self._p.clock.monotonic()
            await self._holding.append([(kind, payload, None) for kind, payload in said])
            self._lease_deadline = at + self._policy.lease_seconds

    def _error_of(self, failure: NoetlError) -> dict[str, Any]:
        kind = failure.kind if isinstance(failure, ToolError) else failure.code
        error = {
            "kind": kind,
            "code": kind,
            "message": failure.message,
            "retryable": failure.retryable,
            "step": self._step,
        }
        return bounded(self._shown().value(error))

    def _failure(self, error: dict[str, Any]) -> End:
        """What an operator needs to find the work this frame leaves behind (FRM-14)."""
        return EventType.FRAME_FAILED, self._base | {
            "attempts": self._offer.attempt,
            "row_count": 0,
            "error": error,
            "frame_policy": msgspec.to_builtins(self._policy),
            "last_worker": self._me.worker_id,
        }
