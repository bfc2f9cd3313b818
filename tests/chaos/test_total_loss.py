"""What is derived may be lost, while work is under way: key-value buckets, Postgres, the cluster.

One log and one bucket stay; all else belongs to a set that is killed whole and made anew elsewhere.
The tests build on each other, in order: the executions of each are part of what the last one loses.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest

from actors import state_file
from actors.local import LocalSet, down, up
from actors.ray_head import forget, processes
from noetl_ray.cli.demo import fixture_api
from noetl_ray.config.settings import (
    CredentialSettings,
    EventStoreSettings,
    PayloadStoreSettings,
    ProjectionSettings,
    RaySettings,
    RuntimeSettings,
    Settings,
)
from noetl_ray.embedded.nats import start_nats, stop_nats
from noetl_ray.embedded.postgres import start_postgres, stop_postgres
from noetl_ray.events.types import EventType
from noetl_ray.replay.history import replay
from noetl_ray.wal.port import Recorded
from tests.cluster.test_parity import told
from tests.simulation.invariants import check_records
from tests.support.cli import processes_naming
from tests.support.journal import records_of
from tests.support.patient import ask_patiently, ended, until
from tests.support.ray_agent import RayAgent

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

TOKEN = "only-for-this-test"
BUCKETS = ("noetl_shards", "noetl_limits", "noetl_generators")
BOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: outlives, path: tests/outlives}
workload: {api_url: "", delay_s: 1.0}
workflow:
  - step: large
    tool:
      kind: python
      code: |
        result = {"rows": [{"n": n, "text": "x" * 40} for n in range(4000)]}
    next: pay_a
  - step: pay_a
    tool: &pay
      kind: http
      method: POST
      url: "{{ workload.api_url }}/api/v1/effects"
      params: {delay_seconds: "{{ workload.delay_s }}"}
    next: each
  - step: each
    loop: {in: "{{ [1, 2, 3] }}", iterator: item}
    tool: *pay
    next: pay_b
  - step: pay_b
    tool: *pay
    next: total
  - step: total
    tool:
      kind: python
      input: {rows: "{{ large.rows }}"}
      code: |
        result = {"total": sum(row["n"] for row in rows)}
"""
TOTAL = sum(range(4000))


@dataclass(kw_only=True)
class Place:
    """What outlives a cluster, and the cluster there is now."""

    folder: Path
    nats_url: str
    api_url: str
    key: str
    running: LocalSet = field(init=False)
    ids: list[int] = field(default_factory=list)

    def settings(self, name: str) -> Settings:
        return Settings(
            data_dir=str(self.folder / name),
            runtime=RuntimeSettings(conductors=2, workers=2),
            event_store=EventStoreSettings(url=self.nats_url, token=TOKEN),
            payload_store=PayloadStoreSettings(url=(self.folder / "bucket").as_uri()),
            projection_stores=ProjectionSettings(
                dsn=start_postgres(self.folder / f"postgres-{name}", detached=True).dsn
            ),
            credentials=CredentialSettings(key=self.key),
            ray=RaySettings(dashboard=False, num_cpus=2),
        )

    def submit(self, count: int, *, delay_s: float = 1.0) -> list[int]:
        workload = {"api_url": self.api_url, "delay_s": delay_s}
        made = [
            ask_patiently(self.running, lambda c: c.submit(playbook=BOOK, workload=workload))
            for _ in range(count)
        ]
        self.ids += [each.execution_id for each in made]
        return [each.execution_id for each in made]

    def counts(self) -> dict[str, int]:
        return dict(httpx.get(f"{self.api_url}/api/v1/effects", timeout=10).json()["counts"])

    def begun(self, execution_id: int, step: str) -> bool:
        keys = httpx.get(f"{self.api_url}/api/v1/effects", timeout=10).json()["begun"]
        return any(key.startswith(f"{execution_id}-{step}-") for key in keys)

    def check(self, execution_id: int) -> list[Recorded]:
        """The log is sound, effects happened as often as commands were given out."""
        records = records_of(self.running, execution_id)
        assert check_records(records) == []
        assert replay(records)[execution_id].status == "COMPLETED"
        counts = self.counts()
        keys = [key for key in counts if key.startswith(f"{execution_id}-")]
        assert len(keys) == 5, keys
        for key in keys:
            command = key.split("/")[0]
            again = sum(
                event.event_type is EventType.COMMAND_RELEASED and event.command_id == command
                for recorded in records
                for event in recorded.record.events
            )
            assert 1 <= counts[key] <= 1 + again, (key, counts[key], again)
        return records

    def parity(self, execution_id: int) -> dict[str, Any]:
        """The six checksums of the log and of the read model, once that has caught up."""

        def matches() -> dict[str, Any] | None:
            answer = httpx.get(
                f"{self.running.gateway_url}/api/replay/state",
                params={"execution_id": str(execution_id), "compare": True},
                timeout=30,
            )
            found = answer.json()
            is_same = answer.status_code == 200 and found["parity"]["matches"]
            return found if is_same and found["status"] == "COMPLETED" else None

        return dict(until(matches, f"the read model of {execution_id}", wait_s=90))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("outlives")
    server = start_nats(folder / "nats", token=TOKEN, durability="process", detached=False)
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    try:
        with fixture_api() as api_url:
            made = Place(folder=folder, nats_url=server.url, api_url=api_url, key=key)
            made.running = up(made.settings("one"))
            yield made
    finally:
        for name in ("one", "two"):
            with contextlib.suppress(Exception):
                down(folder / name)
                forget(folder / name)
            with contextlib.suppress(Exception):
                stop_postgres(folder / f"postgres-{name}")
        stop_nats(server)
    assert processes_naming(folder / "one") == []


def run(place: Place, at: str, disturb: Any) -> tuple[int, list[Recorded]]:
    """One execution with something done to it while a payment waits; its records."""
    (execution_id,) = place.submit(1)
    until(lambda: place.begun(execution_id, at), f"{at} of {execution_id}", wait_s=60)
    disturb()
    ended(place.running, execution_id)
    return execution_id, place.check(execution_id)


def shape(records: list[Recorded]) -> dict[str, list[tuple[str, Any, Any]]]:
    """Per subject what happened to which step, in order; parallel iterations end in any order."""
    found: dict[str, list[tuple[str, Any, Any]]] = {}
    for aggregate, said in told(records).items():
        found[aggregate] = [(kind, p.get("step"), p.get("attempt")) for kind, p in said]
    decided = found["control"]
    found["control"] = sorted(decided, key=repr) if len(decided) > 1 else decided
    return found


def test_tn_12_buckets_wiped_in_the_middle_change_no_event(place: Place) -> None:
    async def wipe() -> None:
        client = await nats.connect(place.nats_url, token=TOKEN)
        for bucket in BUCKETS:
            with contextlib.suppress(nats.js.errors.NotFoundError):
                await client.jetstream().delete_key_value(bucket)
        await client.jetstream().delete_stream("noetl_checkpoints")
        await client.close()

    _, undisturbed = run(place, "pay_a", lambda: None)
    _, wiped = run(place, "pay_a", lambda: asyncio.run(wipe()))
    assert shape(wiped) == shape(undisturbed)
    assert set(place.counts().values()) == {1}


def test_prin_1_postgres_is_expendable(place: Place) -> None:
    """Gone in the middle, executions go on and new ones start; an empty one is filled again."""
    folder = place.folder / "postgres-one"
    (before,) = place.submit(1)
    until(lambda: place.begun(before, "pay_a"), "the first payment", wait_s=60)
    stop_postgres(folder)
    shutil.rmtree(folder)
    workload = {"api_url": place.api_url, "delay_s": 0.2}
    answer = httpx.post(
        f"{place.running.gateway_url}/api/execute",
        json={"playbook": BOOK, "workload": workload},
        timeout=30,
    )
    assert answer.status_code < 300, answer.text
    during = int(answer.json()["execution_id"])
    place.ids.append(during)
    for execution_id in (before, during):

        def over(each: int = execution_id) -> bool:
            state = replay(records_of(place.running, each)).get(each)
            return state is not None and state.terminal

        until(over, f"the end of {execution_id} without Postgres", wait_s=90)
        place.check(execution_id)
    assert start_postgres(folder, detached=True).dsn == place.running.postgres_dsn
    for execution_id in place.ids:
        place.parity(execution_id)


def test_prj_6_shards_of_a_killed_conductor_are_owned_again(place: Place) -> None:
    """By the survivor, which is told of the death, or by the new process; then evenly again."""

    def owners() -> dict[int, str]:
        rows = ask_patiently(place.running, lambda client: client.shards())
        return {row["shard_id"]: row["live"]["owner"] for row in rows if row["live"]}

    def even() -> bool:
        held = list(owners().values())
        return len(held) == 16 and sorted(map(held.count, set(held))) == [8, 8]

    until(even, "eight shards each", wait_s=60)
    agent = RayAgent(place.running)
    try:
        health = agent.running("noetl/conductor/1")
        dead = f"local/conductor/1/{health['incarnation']}"
        (running,) = place.submit(1)
        assert dead in owners().values()
        os.kill(health["pid"], signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: len(owners()) == 16 and dead not in owners().values(), "owners", wait_s=60)
        print(f"owned again {time.monotonic() - killed:.1f} s after the kill")
        agent.running("noetl/conductor/1", other_than=health["incarnation"])
        until(even, "eight shards each again", wait_s=60)
        ended(place.running, running)
        place.check(running)
    finally:
        agent.close()


def test_a_fresh_cluster_with_an_empty_postgres_continues_everything(place: Place) -> None:
    running = place.submit(4, delay_s=2.0)
    for execution_id in running:
        until(lambda each=execution_id: place.begun(each, "pay_a"), "payments begun", wait_s=60)
    kill_whole(place.folder / "one")
    stop_postgres(place.folder / "postgres-one")
    shutil.rmtree(place.folder / "postgres-one")
    shutil.rmtree(place.folder / "one", ignore_errors=True)
    place.running = up(place.settings("two"))
    is_up = time.monotonic()
    until(lambda: any(place.begun(each, "each") for each in running), "progress", wait_s=120)
    print(f"progress {time.monotonic() - is_up:.1f} s after everything was up")
    for execution_id in running:
        ended(place.running, execution_id)
        place.check(execution_id)
        found = ask_patiently(place.running, lambda c, e=execution_id: c.result(e, "total"))
        assert found == {"total": TOTAL}
    for execution_id in place.ids:
        place.parity(execution_id)


def kill_whole(data_dir: Path) -> None:
    """SIGKILL of everything a set runs, all at once."""
    record = state_file.read(data_dir)
    assert record is not None
    refs = {*record.processes, *processes(record.set_id)}
    for ref in refs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(ref.pid, signal.SIGKILL)
    until(lambda: not processes(record.set_id), "the end of the set")
