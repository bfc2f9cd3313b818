"""Frames claimed, kept and ended over HTTP, beside a live conductor: the fallback (FRM-7 to 10)."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from noetl_ray.config.settings import RuntimeSettings, Settings
from noetl_ray.errors import ConflictError
from noetl_ray.events.types import FRAME_TERMINAL, EventType
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.replay import replay
from noetl_ray.submit.frames import beat_frame, claim_frames
from noetl_ray.web import GatewayDeps, create_app
from tests.unit.actors.rig import SHARDS, Rig, simulated

CURSOR = """
workflow:
  - step: rows
    loop:
      cursor: {kind: postgres, auth: pg, claim: "SELECT 1"}
      iterator: row
      spec:
        mode: cursor
        max_in_flight: 2
        frame: {max_rows: 5, lease_seconds: 80000, max_attempts: 2}
    tool: {kind: noop}
"""
MANY = """
workflow:
  - step: items
    loop: {in: "{{ range(6) | list }}", spec: {frame: {max_rows: 6, lease_seconds: 80000}}}
    tool: {kind: noop}
"""


class Asking:
    """Somebody with HTTP and nothing else."""

    def __init__(self, rig: Rig) -> None:
        deps = GatewayDeps(
            settings=Settings(runtime=RuntimeSettings(shard_count=SHARDS)),
            submit=rig.submit_ports,
            queries=MemoryReadModel(),
            results=rig.results,
            credentials=rig.credentials,
            clock=rig.clock,
        )
        transport = httpx.ASGITransport(app=create_app(deps))
        self._http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def post(self, path: str, wanted: int = 200, **body: Any) -> dict[str, Any]:
        answer = await self._http.post(path, json=body)
        assert answer.status_code == wanted, answer.text
        return dict(answer.json())

    async def post_any(self, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
        answer = await self._http.post(path, json=body)
        return answer.status_code, dict(answer.json())

    async def claim(self, stage_id: str, worker: str, count: int = 1, **more: Any) -> list[Any]:
        path = f"/api/stages/{stage_id}/frames/claim"
        given = await self.post(path, worker_id=worker, requested_count=count, **more)
        return list(given["frames"])


async def _opened(rig: Rig, text: str) -> tuple[int, str]:
    rig.start("c", rig.conductor())
    execution_id = await rig.submit(text)
    await rig.until(lambda: rig.events(EventType.FRAME_DISPATCHED))
    (opened,) = rig.events(EventType.STAGE_OPENED)
    return execution_id, str(opened.stage_id)


@simulated
async def test_frm_7_a_cursor_loop_can_be_worked_off_by_http_alone(rig: Rig) -> None:
    execution_id, stage_id = await _opened(rig, CURSOR)
    asking = Asking(rig)
    one, two = await asking.claim(stage_id, "outside", 5, lease_seconds=86_400)
    assert {one["cursor"]["slot"], two["cursor"]["slot"]} == {0, 1}
    assert one["frame_policy"]["max_rows"] == one["cursor"]["max_rows"] == 5
    assert await asking.claim(stage_id, "other", 5) == []
    for frame, rows in ((one, 5), (two, 0)):
        path = f"/api/frames/{frame['frame_id']}"
        await asking.post(f"{path}/heartbeat", worker_id="outside", row_count=rows)
        await asking.post(f"{path}/heartbeat", worker_id="outside")
        done = await asking.post(f"{path}/commit", worker_id="outside", row_count=rows)
        assert (done["ok"], done["next_action"]) == (True, "claim")
    # The first slot had rows, so it goes on; the second ended.
    await rig.until(lambda: len(_minted(rig)) == 3)
    (third,) = await asking.claim(stage_id, "outside")
    await asking.post(f"/api/frames/{third['frame_id']}/commit", worker_id="outside")
    assert (await rig.ended(execution_id)).status == "COMPLETED"
    assert (
        len(rig.events(EventType.FRAME_STARTED)) == len(rig.events(EventType.FRAME_HEARTBEAT)) == 2
    )
    value = (await rig.ended(execution_id)).steps["rows"].result
    assert value is not None
    assert value["extracted"]["processed"] == 5


def _minted(rig: Rig) -> list[Any]:
    return [e for e in rig.events(EventType.FRAME_DISPATCHED) if "parent_frame_id" in e.payload]


@simulated
async def test_frm_10_a_frame_has_one_end_however_often_it_is_committed(rig: Rig) -> None:
    _execution, stage_id = await _opened(rig, CURSOR)
    asking = Asking(rig)
    (frame,) = await asking.claim(stage_id, "outside")
    path = f"/api/frames/{frame['frame_id']}"
    commits = [
        asyncio.create_task(asking.post_any(f"{path}/commit", worker_id="outside", row_count=1))
        for _ in range(4)
    ]
    answers = await asyncio.gather(*commits)
    assert sorted(status for status, _ in answers) == [200, 409, 409, 409]
    ended = [e for kind in FRAME_TERMINAL for e in rig.events(kind)]
    assert len(ended) == 1
    for status, body in answers:
        told = body if status == 200 else body["error"]
        assert told["terminal_event_id"] == str(ended[0].event_id)
        assert status == 200 or told["code"] == "frame_already_terminal"
    late = await asking.post(f"{path}/heartbeat", 409, worker_id="outside")
    assert late["error"]["terminal_event_id"] == str(ended[0].event_id)


@simulated
async def test_frm_13_two_claimers_get_one_frame(rig: Rig) -> None:
    _execution, stage_id = await _opened(rig, CURSOR)
    asking = Asking(rig)
    claims = [asyncio.create_task(asking.claim(stage_id, f"w{n}", 1)) for n in range(8)]
    got = [frame["frame_id"] for claim in claims for frame in await claim]
    assert len(got) == len(set(got)) <= 2
    assert len(_minted(rig)) == 2
    (first, *_) = got
    other = await asking.post(f"/api/frames/{first}/commit", 409, worker_id="nobody")
    assert "is held by w" in other["error"]["message"]


@simulated
async def test_frm_11_a_lease_that_ran_out_is_taken_over_and_then_given_up(rig: Rig) -> None:
    execution_id, stage_id = await _opened(rig, CURSOR)

    async def claim(worker: str) -> list[Any]:
        state = replay(rig.records())[execution_id]
        given = {"worker_id": worker, "incarnation": None, "count": 2, "lease_seconds": 5.0}
        return await claim_frames(rig.submit_ports, state, stage_id, **given)

    assert {frame.attempt for frame in await claim("slow")} == {1}
    assert await claim("quick") == []
    await rig.clock.sleep(20)
    abandoned = rig.events(EventType.FRAME_ABANDONED)
    assert {e.payload["previous_worker"] for e in abandoned} == {"slow"}
    assert {(e.payload["retry_mode"], e.payload["rows_split"]) for e in abandoned} == {
        ("whole_frame", False)
    }
    again = await claim("quick")
    assert {frame.attempt for frame in again} == {2}
    with pytest.raises(ConflictError, match="is held by quick"):
        await beat_frame(
            rig.submit_ports,
            replay(rig.records())[execution_id],
            again[0].frame_id,
            worker_id="slow",
            lease_seconds=None,
            row_count=0,
        )
    state = await rig.ended(execution_id)
    assert state.status == "FAILED"
    failed = rig.events(EventType.FRAME_FAILED)[0].payload
    assert (failed["last_worker"], failed["attempts"]) == ("quick", 2)
    assert failed["frame_policy"]["max_rows"] == 5
    assert "given up after 2 attempts" in failed["error"]["message"]


@simulated
async def test_a_frame_of_a_collection_says_where_its_part_lies(rig: Rig) -> None:
    _execution, stage_id = await _opened(rig, MANY)
    asking = Asking(rig)
    (frame,) = await asking.claim(stage_id, "outside")
    assert frame["cursor"]["range"] == [0, 6]
    assert frame["cursor"]["items_ref"]["uri"]
    path = f"/api/frames/{frame['frame_id']}/commit"
    for body, said in (
        ({"row_count": 7}, "the frame has 6 items"),
        ({"row_count": 6}, "needs output_ref with sha256"),
        ({"row_count": 6, "output_ref": {"ipc": {"id": "x"}}}, "names shared memory alone"),
        ({"row_count": 2, "output_ref": {"uri": "u", "rows_ref": {"ipc": 1}}}, "shared memory"),
        ({"row_count": -1}, "must be 0 or more"),
        ({"status": "FAILED"}, "say what went wrong"),
        ({"status": "DONE"}, "Invalid enum value"),
    ):
        refused = await asking.post(path, 400, worker_id="outside", **body)
        assert said in refused["error"]["message"]
    error = {"message": "no way"}
    await asking.post(path, worker_id="outside", status="FAILED", error=error)
    assert rig.events(EventType.FRAME_FAILED)[0].payload["error"]["message"] == "no way"


@simulated
async def test_bad_claims_say_what_is_wrong(rig: Rig) -> None:
    execution_id, stage_id = await _opened(rig, CURSOR)
    asking = Asking(rig)
    path = f"/api/stages/{stage_id}/frames/claim"
    for body, status, said in (
        ({"worker_id": " "}, 400, "worker_id is empty"),
        ({"worker_id": "w", "requested_count": 0}, 400, "from 1 to 64"),
        ({"worker_id": "w", "lease_seconds": 0}, 400, "from 1 to 86400"),
        ({"worker_id": "w", "incarnation": "i"}, 409, "has not joined"),
    ):
        refused = await asking.post(path, status, **body)
        assert said in refused["error"]["message"]
    other = await asking.post("/api/stages/77-x-1/frames/claim", 404, worker_id="w")
    assert "no execution 77" in other["error"]["message"]
    assert await asking.claim(f"{execution_id}-nothing-1", "w") == []


@simulated
async def test_a_worker_that_joined_is_offered_what_was_claimed_for_it(rig: Rig) -> None:
    rig.start("c", rig.conductor())
    execution_id = await rig.submit(MANY)
    await rig.until(lambda: rig.events(EventType.FRAME_DISPATCHED))
    (opened,) = rig.events(EventType.STAGE_OPENED)
    rig.start("w1", rig.worker())
    asking = Asking(rig)
    await rig.until(lambda: rig.events(EventType.WORKER_JOINED))
    await asking.claim(str(opened.stage_id), "w1", 1, incarnation="i1")
    state = await rig.ended(execution_id)
    assert state.status == "COMPLETED"
    assert len(rig.events(EventType.FRAME_COMMITTED)) == 1
