"""The rows of one frame of a cursor loop: the body for each, or once for all of them.

A failed row is counted and neither stops nor fails the frame. With a row barrier each outcome is in
the log before the row counts as finished, and a row an earlier holder finished is left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from actors.completion import bounded, within_limits
from actors.row_barrier import objects_of, told_of
from noetl_ray.engine.loops import iteration_names
from noetl_ray.errors import ToolError
from noetl_ray.events.canonical import canonical_json, sha256_hex, to_jsonable
from noetl_ray.results.redact import secret_values
from noetl_ray.tools.pipeline import Pipeline

if TYPE_CHECKING:
    from actors.frame_run import FrameRun
    from actors.row_barrier import Told
    from noetl_ray.dsl.model import Step
    from noetl_ray.engine.names import Names
    from noetl_ray.tools.cursor import Row
    from noetl_ray.tools.keychain import Keychain
    from noetl_ray.tools.outcome import PipelineOutcome

ERRORS_KEPT = 5
"""Failed rows whose error is recorded with the frame; the others are counted."""
OBJECTS_MAX = 200
"""Business objects the rows of one frame may speak of, so that its end fits one record (P6)."""


class CursorRows:
    """The rows of one attempt at a frame."""

    def __init__(
        self,
        frame: FrameRun,
        step: Step,
        names: Names,
        ctx: dict[str, Any],
        keychain: Keychain,
        rows: list[Row],
    ) -> None:
        assert step.loop is not None
        self._frame = frame
        self._step = step
        self._names = names
        self._ctx = ctx
        self._keychain = keychain
        self._rows = rows
        self._iterator = step.loop.iterator
        self._shown = {
            "index": frame._base["frame_index"],
            "row_count": len(rows),
            "rows": rows,
            "policy": msgspec.to_builtins(frame._policy),
        }

    async def work_off(self, finished: dict[int, Told]) -> int:
        """Run the body; how many rows failed."""
        policy, rows = self._frame._policy, self._rows
        if policy.process == "frame":
            given = frame_names(self._iterator, rows, self._shown)
            outcome = await self._body(given, "frame")
            self._note(outcome, 0)
            return 0 if outcome.ok else len(rows)
        failed = sum(not told["ok"] for told in finished.values())
        for index, told in sorted(finished.items()):
            self._restore(index, told)
        left = [index for index in range(len(rows)) if index not in finished]
        if policy.row_concurrency == 1:
            return failed + sum([not await self._one(index) for index in left])
        room = asyncio.Semaphore(policy.row_concurrency)

        async def one(index: int) -> bool:
            async with room:
                return await self._one(index)

        tasks = [asyncio.create_task(one(index)) for index in left]
        try:
            return failed + sum(not ok for ok in await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, index: int) -> bool:
        row = self._rows[index]
        iteration = {"index": index, "total": len(self._rows), "iterator": self._iterator}
        given = iteration_names(iteration, row) | {"frame": self._shown}
        key = sha256_hex(canonical_json(to_jsonable(row)))[:20]
        outcome = await self._body(given, key)
        self._note(outcome, index)
        barrier = self._frame._barrier
        if barrier is not None:
            await barrier.done(told_of(index, key, outcome, self._frame._shown()))
        return outcome.ok

    async def _body(self, given: dict[str, Any], key: str) -> PipelineOutcome:
        frame, ports = self._frame, self._frame._p
        pipeline = Pipeline(
            self._step,
            self._names,
            self._ctx,
            registry=ports.registry,
            templates=ports.templates,
            clock=ports.clock,
            context_for=frame._row_context(key, given),
            iteration=given,
            prepare=self._keychain.prepare,
            meter=frame._meter,
        )
        return within_limits(await pipeline.run())

    def _note(self, outcome: PipelineOutcome, index: int) -> None:
        """Take along what a row leaves behind."""
        frame = self._frame
        if outcome.set or outcome.objects:
            # They lie in the log, so not even another name lets a secret of the result in.
            frame._shown_secrets |= secret_values(to_jsonable(outcome.value))
        frame._set |= outcome.set
        frame._objects += outcome.objects
        if len(frame._objects) > OBJECTS_MAX:
            msg = f"the rows of one frame speak of more than {OBJECTS_MAX} objects; lower max_rows"
            raise ToolError(msg, "schema")
        if not outcome.ok and len(frame._errors) < ERRORS_KEPT:
            error = bounded(frame._shown().value(outcome.error or {}))
            frame._errors.append({"row": index, "error": error})

    def _restore(self, index: int, told: Told) -> None:
        """Take along what a row left behind that an earlier holder finished."""
        self._frame._set |= told.get("set", {})
        self._frame._objects += objects_of(told)
        if not told["ok"] and len(self._frame._errors) < ERRORS_KEPT:
            self._frame._errors.append({"row": index, "error": told["error"]})


def frame_names(iterator: str, rows: list[Any], frame: dict[str, Any]) -> dict[str, Any]:
    """What the body can name when it runs once for the whole frame (FRM-5)."""
    inner = {iterator: rows, f"{iterator}_rows": rows, "index": frame["index"]}
    return {
        "iter": inner,
        iterator: rows,
        "frame": frame,
        "_index": frame["index"],
        "loop_index": frame["index"],
        "_total": len(rows),
    }
