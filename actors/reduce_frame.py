"""One frame of a reduce: take partitions of a fan-out in, in their order, and say what came of it.

As a stream the body runs once per partition and its result is what the next one begins with; else
it runs once over all of them. What a frame gives is durable before its end says so, and the next
frame goes on from it, so a crash costs the partitions of one frame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from actors.completion import bounded, within_limits
from actors.frame_run import End, FrameRun
from noetl_ray.engine.fold_loops import RESULTS_LABEL
from noetl_ray.engine.ranges import parts_of
from noetl_ray.events.canonical import canonical_json, sha256_hex, to_jsonable
from noetl_ray.events.types import EventType
from noetl_ray.locator.keys import result_key
from noetl_ray.locator.result import frame_coordinate, step_coordinate
from noetl_ray.results.manifest import part_name
from noetl_ray.results.options import storage_options
from noetl_ray.results.redact import mask, secret_values
from noetl_ray.tools.pipeline import Pipeline

if TYPE_CHECKING:
    from noetl_ray.dsl.model import Reduce, Step
    from noetl_ray.engine.names import Names
    from noetl_ray.engine.ranges import Part
    from noetl_ray.tools.keychain import Keychain

REDUCE_LABEL = "reduce"


class ReduceFrameRun(FrameRun):
    """One attempt at a frame of a reduce."""

    async def _attempt(self) -> End:
        self._began_at = self._p.clock.monotonic()
        self._asked: dict[str, Any] = self._offer.issued.payload["reduce"]
        program, context, steps = await self._patiently(self._load)
        names, keychain = self._names(program, context, dict(context.get("ctx", {})), steps)
        step = program.playbook.steps[self._step]
        assert step.loop is not None
        assert step.loop.reduce is not None
        reduce = step.loop.reduce
        self._storage = storage_options(task.output for task in reduce.tasks)
        parts = list(parts_of(self._asked["parts"]))
        so_far = await self._so_far(reduce, names)
        told = {"worker_id": self._me.worker_id, "attempt": self._offer.attempt}
        told |= {"row_count": len(parts), "lease_until_ms": self._lease_until()}
        await self._say((EventType.FRAME_STARTED, self._base | told))
        self._done, self._reduced_to = 0, int(self._asked["from"])
        body = _Body(self, replace(step, tasks=reduce.tasks, loop=None), reduce, names, keychain)
        if not self._asked["stream"]:
            values = [await self._value(part) for part in parts]
            error, so_far = await body.run(values, None, 0)
            self._took(parts)
            return await self._reduced(so_far, error)
        error = None
        for part in parts:
            if self._done and self._is_late():
                break
            place = int(self._asked["taken"]) + self._done
            error, given = await body.run(await self._value(part), so_far, place)
            if error is not None:
                break
            so_far = given
            self._took([part])
        return await self._reduced(so_far, error)

    def _took(self, parts: list[Part]) -> None:
        self._done += len(parts)
        for first, count, _attempt in parts:
            self._reduced_to = first + count

    def _is_late(self) -> bool:
        return self._p.clock.monotonic() - self._began_at > self._policy.max_seconds

    async def _so_far(self, reduce: Reduce, names: Names) -> Any:
        """What the frame before gave; at first what the playbook says."""
        block = self._asked["so_far"]
        if block is None:
            return self._p.templates.value(reduce.initial, names, coerce=True)
        return await self._loaded(block)

    async def _loaded(self, block: dict[str, Any]) -> Any:
        return await self._patiently(lambda: self._p.results.load(self._scope, block))

    async def _value(self, part: Part) -> Any:
        """What a partition gave: one value, or one per item."""
        first, _count, attempt = part
        base = replace(
            self._name(None, 1),
            step=step_coordinate(self._step, RESULTS_LABEL),
            frame=frame_coordinate(self._visit),
            row=0,
        )
        key = result_key(self._p.results.placement, part_name(base, first, attempt), "json")
        data = await self._patiently(lambda: self._p.results.objects.get(key))
        found = msgspec.json.decode(data)
        values: list[Any] = found["values"]
        for offset, block in found["stored"].items():
            values[int(offset)] = await self._loaded(block)
        return values[0] if self._asked["process"] == "frame" else values

    async def _reduced(self, value: Any, error: dict[str, Any] | None) -> End:
        """What came of it is durable, then the frame's end says so."""
        seconds = self._p.clock.monotonic() - self._began_at
        end = self._base | {
            "attempt": self._offer.attempt,
            "row_count": self._done,
            "processed": self._done,
            "failed": int(error is not None),
            "cursor": {"metrics": {"work_ms": round(seconds * 1000, 3), **self._meter.told()}},
        }
        if error is not None:
            shown = bounded(self._shown().value(error))
            return EventType.FRAME_COMMITTED, end | {"error": shown, "errors": [{"error": shown}]}
        name = replace(
            self._name(None, self._offer.attempt),
            step=step_coordinate(self._step, REDUCE_LABEL),
            frame=frame_coordinate(self._visit, int(self._base["frame_index"])),
        )
        value = self._redactor().value(to_jsonable(value))
        end |= {
            "reduced_to": self._reduced_to,
            "partitions": self._done,
            "result": await self._persist(name, value, self._storage),
            "value_sha256": sha256_hex(canonical_json(value)),
        }
        if self._set:
            end["set"] = mask(self._shown().value(to_jsonable(self._set)))
        return EventType.FRAME_COMMITTED, end


class _Body:
    """The tasks of a reduce over one partition, or over all of them."""

    def __init__(
        self, frame: ReduceFrameRun, step: Step, reduce: Reduce, names: Names, keychain: Keychain
    ) -> None:
        self._frame = frame
        self._step = step
        self._reduce = reduce
        self._names = names
        self._keychain = keychain

    async def run(self, value: Any, so_far: Any, place: int) -> tuple[dict[str, Any] | None, Any]:
        """Its error, and what it gave."""
        frame, ports = self._frame, self._frame._p
        name = self._reduce.iterator
        given: dict[str, Any] = {
            "iter": {name: value, "acc": so_far, "index": place, "_index": place},
            name: value,
            "acc": so_far,
            "_index": place,
            "loop_index": place,
        }
        pipeline = Pipeline(
            self._step,
            self._names,
            {},
            registry=ports.registry,
            templates=ports.templates,
            clock=ports.clock,
            context_for=frame._row_context(f"reduce-{place}", given),
            iteration=given,
            prepare=self._keychain.prepare,
            meter=frame._meter,
        )
        outcome = within_limits(await pipeline.run())
        if outcome.set or outcome.objects:
            # They lie in the log, so not even another name lets a secret of the result in.
            frame._shown_secrets |= secret_values(to_jsonable(outcome.value))
        frame._set |= outcome.set
        frame._objects += outcome.objects
        return (None, outcome.value) if outcome.ok else (outcome.error or {}, None)
