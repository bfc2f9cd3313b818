"""One frame of a loop over a collection: read a range, run the body for its items, commit.

Owns the rules of section 9 inside a frame: items start in order, as many at once as the frame may;
after a failed one none begins; each has its own `iter`, and sees what an earlier one wrote to `ctx`
only when the loop is sequential. A frame that hits a bound of its policy commits the items it has
begun and gives the rest back.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from actors.completion import SET_BYTES_MAX, bounded, within_limits
from actors.cursor_rows import frame_names
from actors.frame_run import End, FrameRun
from actors.row_barrier import objects_of, told_of
from noetl_ray.engine.fold_loops import RESULTS_LABEL
from noetl_ray.engine.loops import iteration_names
from noetl_ray.engine.policy import rows_that_fit
from noetl_ray.engine.ranges import halved_to
from noetl_ray.engine.variables import assign_variable
from noetl_ray.errors import ToolError
from noetl_ray.events.canonical import canonical_json, sha256_hex, to_jsonable
from noetl_ray.events.envelope import PayloadRef
from noetl_ray.events.types import EventType
from noetl_ray.locator.keys import result_key
from noetl_ray.locator.result import ResultName, frame_coordinate, step_coordinate
from noetl_ray.results.manifest import part_bytes, part_name
from noetl_ray.results.options import StorageOptions, storage_options
from noetl_ray.results.redact import mask, secret_values
from noetl_ray.tools.pipeline import Pipeline

if TYPE_CHECKING:
    from actors.row_barrier import Told
    from noetl_ray.dsl.model import Step
    from noetl_ray.engine.names import Names
    from noetl_ray.tools.keychain import Keychain
    from noetl_ray.tools.outcome import PipelineOutcome

ROW_BYTES_MAX = 16_384
"""A larger result of one item lies in an object of its own."""
OBJECTS_BOUND = 100
"""Business objects after which a frame begins no further item, so that its end fits one record."""
WARNINGS_KEPT = 20
ALWAYS_STORED = StorageOptions(inline_max_bytes=0)
TURN_S = 0.02
"""How long items that never wait may keep the event loop."""


class CollectionFrameRun(FrameRun):
    """One attempt at a frame over a range of a collection."""

    async def _attempt(self) -> End:
        payload = self._offer.issued.payload
        self._first, self._count = payload["range"]
        self._values: dict[int, bytes] = {}
        self._stored: dict[int, dict[str, Any]] = {}
        self._size = 0
        self._begun = 0
        self._failed = 0
        self._error: dict[str, Any] | None = None
        self._warnings: list[str] = []
        self._finished_before: dict[int, Told] = {}
        self._began_at = self._p.clock.monotonic()
        program, context, steps = await self._patiently(self._load)
        ctx = dict(context.get("ctx", {}))
        names, keychain = self._names(program, context, ctx, steps)
        step = program.playbook.steps[self._step]
        self._storage = storage_options(task.output for task in step.tasks)
        ref = msgspec.convert(payload["items_ref"], PayloadRef)
        items = await self._patiently(
            lambda: self._p.collections.read(self._scope, ref, self._first, self._count)
        )
        if self._is_whole:
            items = fitting(items, self._policy.max_bytes)
        await self._say((EventType.FRAME_STARTED, self._base | self._told(len(items))))
        self._restore(await self._finished(), names, ctx)
        work = _Rows(self, step, names, ctx, keychain, items)
        at_once = min(int(payload["row_concurrency"]), len(items))
        if self._is_whole:
            await work.whole()
        elif at_once == 1:
            await work.lane()
        else:
            await _together([work.lane() for _ in range(at_once)])
        return await self._committed()

    def _told(self, rows: int) -> dict[str, Any]:
        return {
            "attempt": self._offer.attempt,
            "worker_id": self._me.worker_id,
            "row_count": rows,
            "lease_until_ms": self._lease_until(),
        }

    @property
    def _is_whole(self) -> bool:
        """Whether it is a partition of a fan-out, for which the body runs once."""
        return "partition" in self._offer.issued.payload and self._policy.process == "frame"

    def keep_whole(self, rows: int) -> None:
        """The one value kept stands for so many items."""
        self._begun = rows
        self._failed *= rows

    def next_item(self) -> int | None:
        """The offset of the next item to begin; None when this frame begins no more."""
        while self._begun in self._finished_before:
            self._begun += 1
        if self._failed or self._begun >= self._count:
            return None
        if self._begun and self._is_full() and self._begun > max(self._finished_before, default=0):
            return None
        self._begun += 1
        return self._begun - 1

    def _restore(self, told: dict[int, Told], names: Names, ctx: dict[str, Any]) -> None:
        """Take along what earlier holders finished."""
        self._finished_before = {row - self._first: each for row, each in sorted(told.items())}
        for offset, each in self._finished_before.items():
            if "stored" in each:
                self._stored[offset] = each["stored"]
            data = self._values[offset] = canonical_json(each.get("value"))
            self._size += len(data)
            for key, written in each.get("set", {}).items():
                self._set[key] = written
                # A sequential loop's later items see it.
                assign_variable(ctx, names.seed, key, written)
            self._objects += objects_of(each)
            if not each["ok"]:
                self._note_failure(offset, each["error"])

    def _is_full(self) -> bool:
        """Whether a bound of the policy is hit, whichever is first (FRM-4)."""
        elapsed = self._p.clock.monotonic() - self._began_at
        return (
            elapsed > self._policy.max_seconds
            or self._size > self._policy.max_bytes
            or len(self._objects) >= OBJECTS_BOUND
        )

    async def keep(self, offset: int, outcome: PipelineOutcome) -> None:
        """Take along what an item gives and leaves behind."""
        value = self._redactor().value(to_jsonable(outcome.value))
        try:
            data = canonical_json(value)
        except (ValueError, RecursionError, TypeError, OverflowError):
            msg = f"the result of item {self._first + offset} has no JSON form"
            raise ToolError(msg, "schema") from None
        wanted = self._storage.inline_max_bytes
        limit = ROW_BYTES_MAX if wanted is None else min(wanted, ROW_BYTES_MAX)
        if len(data) > limit:
            name = replace(self._name(None, self._offer.attempt), row=self._first + offset)
            options = replace(self._storage, inline_max_bytes=limit)
            self._stored[offset] = await self._persist(name, value, options, ok=outcome.ok)
            data = b"null"
        self._values[offset] = data
        self._size += len(data)
        if outcome.set or outcome.objects:
            # They lie in the log, so not even another name lets a secret of the result in.
            self._shown_secrets |= secret_values(to_jsonable(outcome.value))
        for key, written in outcome.set.items():
            # The last writer comes last, also among deep keys of one variable.
            self._set.pop(key, None)
            self._set[key] = written
        self._objects += outcome.objects
        self._warnings += outcome.warnings
        if not outcome.ok:
            self._note_failure(offset, bounded(self._shown().value(outcome.error or {})))
        if self._barrier is not None:
            row = self._first + offset
            told = told_of(row, str(row), outcome, self._shown())
            given = {"value": value} if offset not in self._stored else {}
            if given and not self._may_log(value):
                # What looks like a secret is in no event: it lies in an object of its own (P28).
                name = replace(self._name(None, self._offer.attempt), row=row)
                self._stored[offset] = await self._persist(name, value, ALWAYS_STORED)
                self._values[offset], given = b"null", {}
            if offset in self._stored:
                given = {"stored": self._stored[offset]}
            await self._barrier.done(told | given)

    def _note_failure(self, offset: int, error: dict[str, Any]) -> None:
        self._failed += 1
        self._error = self._error or error
        self._errors.append({"row": self._first + offset, "error": error})

    async def _committed(self) -> End:
        """What the range gave is durable, then the frame's end says so."""
        rows = self._begun
        given = [self._values[each] for each in sorted(self._values) if each < rows]
        data = part_bytes(given, {k: v for k, v in self._stored.items() if k < rows})
        name = part_name(self._results_base(), self._first, self._offer.attempt)
        key = result_key(self._p.results.placement, name, "json")
        await self._patiently(lambda: self._p.results.objects.put(key, data))
        seconds = self._p.clock.monotonic() - self._began_at
        fit = rows_that_fit(self._policy, rows, seconds, self._size)
        end = self._base | {
            "attempt": self._offer.attempt,
            "range": [self._first, self._count],
            "row_count": rows,
            "processed": rows,
            "failed": self._failed,
            "next_max_rows": halved_to(self._policy.max_rows, fit),
            "output_ref": {
                "uri": name.uri,
                "sha256": sha256_hex(data),
                "bytes": len(data),
                "rows": rows,
                "media_type": "application/json",
            },
            "cursor": {
                "range": [self._first, rows],
                "metrics": {
                    "rows_ok": rows - self._failed,
                    "rows_failed": self._failed,
                    "bytes": self._size,
                    "work_ms": round(seconds * 1000, 3),
                    **self._meter.told(),
                },
            },
        }
        if self._errors:
            end |= {"errors": self._errors[:5], "error": self._error}
        if self._warnings:
            end["warnings"] = self._shown().value(self._warnings[:WARNINGS_KEPT])
        if self._set:
            end["set"] = self._written()
        return EventType.FRAME_COMMITTED, end

    def _written(self) -> dict[str, Any]:
        given = mask(self._shown().value(to_jsonable(self._set)))
        size = len(canonical_json(given))
        if size > SET_BYTES_MAX:
            msg = (
                f"the items of one frame write {size} bytes of variables, at most {SET_BYTES_MAX}; "
                "write less, or lower frame.max_rows of the loop"
            )
            raise ToolError(msg, "schema")
        written: dict[str, Any] = given
        return written

    def _results_base(self) -> ResultName:
        return replace(
            self._name(None, 1),
            step=step_coordinate(self._step, RESULTS_LABEL),
            frame=frame_coordinate(self._visit),
            row=0,
        )


class _Rows:
    """The items of one frame, worked off by one or more lanes."""

    def __init__(
        self,
        frame: CollectionFrameRun,
        step: Step,
        names: Names,
        ctx: dict[str, Any],
        keychain: Keychain,
        items: list[Any],
    ) -> None:
        loop = step.loop
        assert loop is not None
        self._frame = frame
        self._step = step
        self._names = names
        self._ctx = ctx
        self._keychain = keychain
        self._items = items
        self._iterator = loop.iterator
        self._shared = loop.mode == "sequential"
        self._turn_at = 0.0

    async def lane(self) -> None:
        """Run one item after the other while the frame begins more."""
        clock = self._frame._p.clock
        while (offset := self._frame.next_item()) is not None:
            await self._frame.keep(offset, within_limits(await self._run(offset)))
            now = clock.monotonic()
            if now - self._turn_at > TURN_S:
                await asyncio.sleep(0)
                self._turn_at = clock.monotonic()

    async def whole(self) -> None:
        """Run once, for all items together."""
        first, items = self._frame._first, self._items
        frame = {
            "index": first,
            "base_index": first,
            "row_count": len(items),
            "rows": items,
            "policy": msgspec.to_builtins(self._frame._policy),
        }
        given = frame_names(self._iterator, items, frame)
        await self._frame.keep(0, within_limits(await self._body(given, str(first))))
        self._frame.keep_whole(len(items))

    async def _run(self, offset: int) -> PipelineOutcome:
        index = self._frame._first + offset
        payload = self._frame._offer.issued.payload
        iteration = {"index": index, "total": payload["total"], "iterator": self._iterator}
        return await self._body(iteration_names(iteration, self._items[offset]), str(index))

    async def _body(self, given: dict[str, Any], key: str) -> PipelineOutcome:
        frame, ports = self._frame, self._frame._p
        names, ctx = self._names, self._ctx
        if not self._shared:
            # Items of a parallel loop do not see what the others write.
            ctx = dict(ctx)
            names = names.with_ctx(ctx)
        pipeline = Pipeline(
            self._step,
            names,
            ctx,
            registry=ports.registry,
            templates=ports.templates,
            clock=ports.clock,
            context_for=frame._row_context(key, given),
            iteration=given,
            prepare=self._keychain.prepare,
            meter=frame._meter,
        )
        return await pipeline.run()


def fitting(items: list[Any], size_max: int) -> list[Any]:
    """The first items that are not larger than so many bytes together; one at least."""
    size = 0
    for number, item in enumerate(items):
        size += len(canonical_json(item))
        if number and size > size_max:
            return items[:number]
    return items


async def _together(lanes: list[Any]) -> None:
    """All lanes to their end; one that breaks takes the others with it."""
    tasks = [asyncio.create_task(lane) for lane in lanes]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
