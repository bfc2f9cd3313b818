"""Workers that hold frames are killed: the rows they claimed are worked off, every one of them.

The frame is what is repeated after a crash, so a row may be done again, once for every time its
frame was abandoned and not oftener; no row is left out and none belongs to two frames.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path

import asyncpg
import pytest

from actors import state_file
from noetl_ray.events.types import FRAME_TERMINAL, EventType
from tests.chaos.conftest import Arena, demo_dsn
from tests.support.journal import fetch
from tests.support.patient import ask_patiently, check_execution, ended, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

ROWS = 160
FRAME_ROWS = 10
KILLS = ("noetl/worker/1", "noetl/hot/0", "noetl/worker/1", "noetl/conductor/1")
BOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: frames, path: tests/chaos/frames}
workload: {api_url: "", round: 0}
workflow:
  - step: work
    loop:
      cursor:
        kind: postgres
        auth: pg_local
        claim: |
          UPDATE frame_work SET claims = claims + 1, execution = {{ execution_id }}
          WHERE id IN (SELECT id FROM frame_work WHERE claims = 0 AND round = {{ workload.round }}
                       ORDER BY id LIMIT {{ __frame_max_rows }} FOR UPDATE SKIP LOCKED)
          RETURNING id
      iterator: job
      spec:
        mode: cursor
        max_in_flight: 4
        frame: {max_rows: 10, row_concurrency: 2, lease_seconds: 20, max_attempts: 20}
    tool:
      - name: pay
        kind: http
        method: POST
        url: "{{ workload.api_url }}/api/v1/effects"
        params: {delay_seconds: 0.2}
        json: {key: "frames-{{ workload.round }}-{{ iter.job.id }}"}
      - name: store
        kind: postgres
        auth: pg_local
        command: "UPDATE frame_work SET times = times + 1 WHERE id = {{ iter.job.id }}"
    next: {arcs: [{step: good, when: "{{ work.processed == 160 and work.failed == 0 }}"}]}
  - step: good
    tool: {kind: noop}
"""

THOUSAND = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: thousand, path: tests/chaos/thousand}
workflow:
  - step: work
    loop:
      in: "{{ range(1000) | list }}"
      spec: {mode: parallel, max_in_flight: 8, frame: {max_rows: 1}}
    tool: {kind: noop, result: "{{ iter.item }}"}
    next: {arcs: [{step: good, when: "{{ work.stats.success == 1000 and work.results[7] == 7 }}"}]}
  - step: good
"""


def prepare(arena: Arena, number: int) -> None:
    async def make() -> None:
        connection = await asyncpg.connect(demo_dsn(arena.running), timeout=30)
        try:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS frame_work (id serial PRIMARY KEY, round int,"
                " claims int DEFAULT 0, times int DEFAULT 0, execution bigint)"
            )
            await connection.execute(
                "INSERT INTO frame_work (round) SELECT $1 FROM generate_series(1, $2)", number, ROWS
            )
        finally:
            await connection.close()

    asyncio.run(make())


def done(arena: Arena, number: int) -> int:
    rows = fetch(
        demo_dsn(arena.running),
        "SELECT count(*) AS n FROM frame_work WHERE round = $1 AND times > 0",
        number,
    )
    return int(rows[0]["n"])


def nats_of(arena: Arena) -> int:
    record = state_file.read(Path(arena.running.data_dir))
    assert record is not None
    return next(ref.pid for ref in record.processes if ref.title == "nats")


def test_killed_workers_lose_no_row_and_repeat_no_more_than_their_frames(arena):
    prepare(arena, 1)
    workload = {"api_url": arena.api_url, "round": 1}
    started = ask_patiently(
        arena.running, lambda client: client.submit(playbook=BOOK, workload=workload)
    )
    for turn, host in enumerate(KILLS, 1):
        wanted = turn * ROWS // (len(KILLS) + 2)
        until(lambda wanted=wanted: done(arena, 1) >= wanted, f"{wanted} rows done", wait_s=120)
        os.kill(arena.ray.running(host)["pid"], signal.SIGKILL)
    assert ended(arena.running, started.execution_id, wait_s=240).status == "COMPLETED"

    state = check_execution(arena.running, started.execution_id)
    assert state.final_step == "good"
    events = arena.events(started.execution_id)
    abandoned = Counter(e.frame_id for e in events if e.event_type is EventType.FRAME_ABANDONED)
    assert abandoned, "no kill hit a worker that held a frame"
    assert not [e for e in events if e.event_type is EventType.FRAME_FAILED]
    committed = [e for e in events if e.event_type is EventType.FRAME_COMMITTED]
    assert sum(e.payload["row_count"] for e in committed) == ROWS

    rows = fetch(demo_dsn(arena.running), "SELECT * FROM frame_work WHERE round = 1 ORDER BY id")
    assert {row["claims"] for row in rows} == {1}
    assert all(row["times"] >= 1 for row in rows)
    repeated = sum(row["times"] - 1 for row in rows)
    assert repeated <= sum(abandoned.values()) * FRAME_ROWS
    paid = arena.effects()["counts"]
    assert all(paid[f"frames-1-{row['id']}"] >= 1 for row in rows)

    (stage,) = ask_patiently(arena.running, lambda client: client.stages(started.execution_id))
    assert stage["status"] == "COMPLETED"
    frames = ask_patiently(arena.running, lambda client: client.frames(started.execution_id))
    assert {frame["status"] for frame in frames} == {"COMMITTED"}
    assert sum(frame["row_count"] for frame in frames) == ROWS
    assert sum(frame["parent_frame_id"] is None for frame in frames) == 1
    assert max(frame["attempts"] for frame in frames) > 1


def test_a_frame_of_a_cancelled_execution_stops(arena):
    prepare(arena, 2)
    workload = {"api_url": arena.api_url, "round": 2}
    started = ask_patiently(
        arena.running, lambda client: client.submit(playbook=BOOK, workload=workload)
    )
    until(lambda: done(arena, 2) >= 5, "some rows", wait_s=60)
    ask_patiently(arena.running, lambda client: client.cancel(started.execution_id))
    assert ended(arena.running, started.execution_id).status == "CANCELLED"
    at_end = done(arena, 2)
    assert at_end < ROWS
    time.sleep(2.0)  # nothing can be waited for: that nothing more happens is what is looked at
    assert done(arena, 2) - at_end <= 4 * FRAME_ROWS


def test_nats_killed_in_the_middle_of_a_thousand_frames_loses_and_doubles_none(arena):
    started = ask_patiently(arena.running, lambda client: client.submit(playbook=THOUSAND))

    def committed() -> int:
        events = arena.events(started.execution_id)
        return sum(event.event_type is EventType.FRAME_COMMITTED for event in events)

    until(lambda: committed() >= 100, "100 frames", wait_s=120)
    committed_before = committed()
    server = nats_of(arena)
    os.kill(server, signal.SIGKILL)
    assert committed_before < 1_000
    assert ended(arena.running, started.execution_id, wait_s=300).status == "COMPLETED"
    assert nats_of(arena) != server
    state = check_execution(arena.running, started.execution_id)
    assert state.final_step == "good"
    events = arena.events(started.execution_id)
    terminal = Counter(e.frame_id for e in events if e.event_type in FRAME_TERMINAL)
    assert len(terminal) == 1_000
    assert set(terminal.values()) == {1}
    rows = [e.payload["range"] for e in events if e.event_type is EventType.FRAME_COMMITTED]
    assert sorted(first for first, _count in rows) == list(range(1_000))
