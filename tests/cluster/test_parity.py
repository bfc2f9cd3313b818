"""One playbook, two worlds: Ray, NATS and Postgres here, one process with memory adapters there.

Both must write the same events on the same subjects. What only says who, where and when is left
out: ids, times, names of workers and the terms of a claim. Branches end in any order, so the exits
that no other event separates are compared as a set.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl_ray.engine.state import ExecutionState
from noetl_ray.events.types import EventType
from noetl_ray.wal.port import Recorded
from noetl_ray.wal.subjects import parse_event_subject
from tests.simulation.invariants import check_records, fold_all, trace
from tests.support.journal import records_of
from tests.support.memory_set import running_memory_set
from tests.support.patient import ask, ended

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RUN_S = 60.0
CLAIM_KEYS = frozenset({"worker_id", "incarnation", "lease_ms", "distance"})
ASIDE = frozenset({EventType.CHECKPOINT_COMMITTED, EventType.FRAME_HEARTBEAT})

Told = dict[str, list[tuple[str, Any]]]


def on_memory(source: str) -> list[Recorded]:
    async def run() -> list[Recorded]:
        async with running_memory_set() as made:
            return await made.execute(source, RUN_S)

    return asyncio.run(run())


def on_ray(running, source: str, workload: dict[str, Any] | None = None) -> list[Recorded]:
    started = ask(running, lambda client: client.submit(playbook=source, workload=workload))
    ended(running, started.execution_id, RUN_S)
    return records_of(running, started.execution_id)


def told(records: list[Recorded]) -> Told:
    """Per subject of the execution, what was said, in order."""
    execution_id = records[0].record.events[0].execution_id
    found: Told = defaultdict(list)
    for recorded in records:
        subject = parse_event_subject(recorded.subject)
        assert subject is not None
        aggregate = subject.aggregate.replace(str(execution_id), "ID")
        for event in recorded.record.events:
            if event.event_type not in ASIDE:
                said = plain(msgspec.to_builtins(event.payload), str(execution_id))
                found[aggregate].append((event.event_type.value, said))
    found["control"] = in_any_order(found["control"])
    return dict(found)


def plain(value: Any, execution_id: str) -> Any:
    """A payload without what only says who and where."""
    if isinstance(value, dict):
        return {
            key: plain(item, execution_id) for key, item in value.items() if key not in CLAIM_KEYS
        }
    if isinstance(value, list | tuple):
        return [plain(item, execution_id) for item in value]
    if isinstance(value, str):
        return value.replace(execution_id, "ID")
    return value


def in_any_order(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Neighbouring exits by name of their step, and the sources of a join sorted."""
    ordered: list[tuple[str, Any]] = []
    for kind, run in groupby(events, key=lambda event: event[0]):
        items = list(run)
        if kind == EventType.STEP_EXIT:
            items.sort(key=lambda event: str(event[1]["step"]))
        ordered += items
    for _, payload in ordered:
        if "from" in payload:
            payload["from"] = sorted(payload["from"])
    return ordered


def state_of(records: list[Recorded]) -> ExecutionState:
    assert check_records(records) == []
    (state,) = fold_all(records).values()
    return state


def test_branches_and_a_join_write_the_same_events_in_both_worlds(shared_set, repository: Path):
    source = (repository / "examples" / "branches" / "playbook.yaml").read_text()
    memory, real = on_memory(source), on_ray(shared_set, source)
    assert trace(state_of(real)) == trace(state_of(memory))
    there, here = told(memory), told(real)
    assert set(here) == {
        "submit",
        "control",
        *(
            f"cmd-ID-{step}-1"
            for step in ("start", "sum_small", "sum_large", "audit", "join", "report_many")
        ),
    }
    assert set(here) == set(there)
    for subject, events in there.items():
        assert here[subject] == events, subject


FAILING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parity_failing}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      spec: {mode: inclusive}
      arcs: [{step: well}, {step: badly}]
  - step: well
    desc: Slow, so that the other branch fails first in both worlds.
    tool: {kind: python, code: "import time; time.sleep(0.7); result = {'n': 1}"}
    next: {arcs: [{step: join}]}
  - step: badly
    tool: {kind: python, code: "raise ValueError('on purpose')"}
    next: {arcs: [{step: join}]}
  - step: join
    tool: {kind: noop}
"""


def test_a_failing_branch_ends_the_same_way_in_both_worlds(shared_set):
    memory, real = on_memory(FAILING), on_ray(shared_set, FAILING)
    assert state_of(real).status == state_of(memory).status == "FAILED"
    assert told(real) == told(memory)
