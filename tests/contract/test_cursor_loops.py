"""Cursor loops over a real Postgres, with the whole runtime in one process."""

from __future__ import annotations

from collections import Counter

import asyncpg
import pytest
import pytest_asyncio

from noetl_ray.credentials.port import Credential
from tests.simulation.invariants import check_records, fold_all
from tests.support.memory_set import running_memory_set

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

HEAD = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: cursor}
workload: {limit: 5}
workflow:
  - step: start
    loop:
      cursor:
        kind: postgres
        auth: pg
        claim: |
          UPDATE work SET state = 'claimed' WHERE id IN (
            SELECT id FROM work WHERE state = 'new' ORDER BY id
            LIMIT {{ __frame_max_rows | default(1) | int }} FOR UPDATE SKIP LOCKED
          ) RETURNING id, page
      iterator: job
"""


class Run:
    """Runs playbooks over one table of work."""

    def __init__(self, made, dsn) -> None:
        self.made = made
        self.dsn = dsn

    async def sql(self, text):
        connection = await asyncpg.connect(self.dsn)
        try:
            return await connection.fetch(text)
        finally:
            await connection.close()

    async def book(self, rest: str):
        given = await self.made.execute(HEAD + rest, wait_s=60)
        assert check_records(given) == []
        state = next(iter(fold_all(given).values()))
        events = [event for recorded in given for event in recorded.record.events]
        return state, Counter(event.event_type.value for event in events), events


@pytest_asyncio.fixture
async def run(empty_postgres_dsn):
    async with running_memory_set() as made:
        pg = Credential(name="pg", type="postgres", data={"dsn": empty_postgres_dsn})
        await made.credentials.put(made.scope, pg)
        run = Run(made, empty_postgres_dsn)
        await run.sql(
            "CREATE TABLE work (id serial PRIMARY KEY, state text DEFAULT 'new', page int)"
        )
        await run.sql("INSERT INTO work (page) SELECT 1 FROM generate_series(1, 23)")
        yield run


async def test_each_row_once_and_three_events_a_frame(run):
    state, counts, events = await run.book("""
      spec: {mode: cursor, max_in_flight: 2, frame: {max_rows: 5}}
    tool:
      kind: postgres
      auth: pg
      command: "UPDATE work SET state = 'done' WHERE id = {{ iter.job.id }} AND state = 'claimed'"
    next:
      arcs:
        - {step: good, when: "{{ event.name == 'loop.done' and start.processed == 23 }}"}
  - step: good
    tool: {kind: noop}
""")
    assert state.status == "COMPLETED", state.error
    assert state.final_step == "good"
    assert await run.sql("SELECT state, count(*) FROM work GROUP BY 1") == [("done", 23)]
    value = state.steps["start"].result["extracted"]
    assert (value["status"], value["processed"], value["failed"]) == ("ok", 23, 0)
    frames = counts["frame.committed"]
    with_rows = value["frame_count"]
    assert with_rows >= 5
    assert frames == counts["frame.dispatched"] == with_rows + 2
    assert counts["frame.started"] == with_rows
    assert (counts["stage.opened"], counts["stage.closed"]) == (1, 1)
    assert counts["command.issued"] == 1  # the step `good`, and none for a row
    minted = [e for e in events if e.event_type.value == "frame.dispatched"]
    assert sum(e.payload["parent_frame_id"] is None for e in minted) == 1
    assert all(e.command_id and e.stage_id and e.frame_id for e in minted)


async def test_work_that_bodies_enqueue_is_claimed_too(run):
    state, _, _ = await run.book("""
      spec: {mode: cursor, frame: {max_rows: 10, row_concurrency: 4}}
    tool:
      - name: more
        kind: postgres
        auth: pg
        command: |
          INSERT INTO work (page) SELECT {{ iter.job.page }} + 1 WHERE {{ iter.job.page }} < 3;
          UPDATE work SET state = 'done' WHERE id = {{ iter.job.id }}
""")
    assert state.status == "COMPLETED", state.error
    found = await run.sql("SELECT page, state, count(*) FROM work GROUP BY 1, 2 ORDER BY 1")
    assert found == [(1, "done", 23), (2, "done", 23), (3, "done", 23)]
    assert state.steps["start"].result["extracted"]["processed"] == 69


async def test_a_frame_can_be_worked_off_as_one(run):
    state, _, _ = await run.book("""
      spec: {mode: cursor, frame: {max_rows: 10, process: frame}}
    tool:
      kind: postgres
      auth: pg
      command: |
        UPDATE work SET state = 'done-{{ frame.row_count }}', page = {{ frame.index }}
        WHERE id IN ({% for r in iter.job_rows %}{{ r.id }}{{ ',' if not loop.last }}{% endfor %})
""")
    assert state.status == "COMPLETED", state.error
    found = await run.sql("SELECT state, page, count(*) FROM work GROUP BY 1, 2 ORDER BY 2")
    assert found == [("done-10", 0, 10), ("done-10", 1, 10), ("done-3", 2, 3)]


async def test_a_poison_row_stays_claimed_and_stops_nobody(run):
    state, counts, events = await run.book("""
      spec: {mode: cursor, frame: {max_rows: 8}}
    tool:
      kind: postgres
      auth: pg
      command: "UPDATE work SET state = 'done' WHERE id = {{ iter.job.id }} AND 1 / (id - 7) < 9"
""")
    assert state.status == "COMPLETED", state.error
    found = await run.sql("SELECT state, count(*), min(id) FROM work GROUP BY 1 ORDER BY 1")
    assert found == [("claimed", 1, 7), ("done", 22, 1)]
    value = state.steps["start"].result["extracted"]
    assert (value["status"], value["processed"], value["failed"]) == ("partial", 23, 1)
    errors = [e.payload["errors"] for e in events if "errors" in e.payload]
    assert "division by zero" in errors[0][0]["error"]["message"]
    assert counts["frame.failed"] == 0


async def test_variables_a_body_sets_reach_later_steps(run):
    state, _, _ = await run.book("""
      spec: {mode: cursor, frame: {max_rows: 50}}
    tool:
      kind: postgres
      auth: pg
      command: "UPDATE work SET state = 'done' WHERE id = {{ iter.job.id }}"
      spec:
        policy: {rules: [{then: {do: continue, set: {ctx.last: "{{ iter.job.id }}"}}}]}
""")
    assert state.status == "COMPLETED", state.error
    assert state.ctx["last"] == 23


async def test_a_claim_that_fails_fails_the_step_with_its_reason(run):
    await run.sql("DROP TABLE work")
    state, counts, events = await run.book("""
      spec: {mode: cursor, max_in_flight: 3}
    tool: {kind: noop}
    next: {arcs: [{step: sorry, when: "{{ event.name == 'call.error' }}"}]}
  - step: sorry
    tool: {kind: noop}
""")
    assert state.status == "COMPLETED"
    assert state.failures_handled == 1
    assert "work" in state.steps["start"].error["message"]
    failed = next(e for e in events if e.event_type.value == "frame.failed")
    assert failed.payload["frame_policy"]["max_attempts"] == 3
    assert counts["stage.closed"] == 1


async def test_a_policy_out_of_range_fails_the_step_before_any_claim(run):
    state, counts, _ = await run.book("""
      spec: {mode: cursor, frame: {max_rows: "{{ workload.limit - 9 }}"}}
    tool: {kind: noop}
""")
    assert state.status == "FAILED"
    assert "frame.max_rows of 'start' is -4" in state.error["message"]
    assert counts["frame.dispatched"] == 0


async def test_a_claim_that_finds_nothing_ends_the_loop(run):
    await run.sql("DELETE FROM work")
    state, counts, _ = await run.book("""
      spec: {mode: cursor, max_in_flight: 3}
    tool: {kind: noop}
    next: {arcs: [{step: after, when: "{{ start.processed == 0 and start.status == 'ok' }}"}]}
  - step: after
""")
    assert (state.status, state.final_step) == ("COMPLETED", "after")
    assert counts["frame.committed"] == 3
    assert counts["frame.started"] == 0


async def test_a_claim_that_gives_rows_twice_runs_each_as_often_as_it_came(run):
    await run.sql("CREATE TABLE seen (id int)")
    twice = ") RETURNING id, page) SELECT f.* FROM found f, (VALUES (1), (2)) t"
    book = HEAD.replace("UPDATE work SET", "WITH found AS (UPDATE work SET")
    book = book.replace(") RETURNING id, page", twice)
    given = await run.made.execute(
        book
        + """
      spec: {mode: cursor, frame: {max_rows: 10, row_concurrency: 3}}
    tool: {kind: postgres, auth: pg, command: "INSERT INTO seen VALUES ({{ iter.job.id }})"}
""",
        wait_s=60,
    )
    assert check_records(given) == []
    state = next(iter(fold_all(given).values()))
    assert state.status == "COMPLETED", state.error
    assert state.steps["start"].result["extracted"]["processed"] == 46
    assert await run.sql("SELECT count(*), count(DISTINCT id) FROM seen") == [(46, 23)]


async def test_a_body_that_sleeps_beyond_its_lease_keeps_its_frame(run):
    state, counts, _ = await run.book("""
      spec:
        mode: cursor
        frame: {max_rows: 50, lease_seconds: 2, heartbeat_seconds: 1, process: frame}
    tool: {kind: python, code: "import time; time.sleep(5); result = 1"}
""")
    assert state.status == "COMPLETED", state.error
    assert counts["frame.abandoned"] == 0
    assert counts["frame.heartbeat"] >= 2
    assert state.steps["start"].result["extracted"]["processed"] == 23
