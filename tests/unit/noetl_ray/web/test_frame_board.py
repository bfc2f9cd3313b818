"""The backlog of frames: told by conductors, added up, served to Prometheus."""

from __future__ import annotations

import asyncio

import pytest

from actors.backlog import BacklogTeller, backlog_of
from noetl_ray.engine.frames import Slot, StageState
from noetl_ray.engine.policy import FramePolicy
from noetl_ray.engine.reducing import ReduceState
from noetl_ray.engine.state import CommandState, ExecutionState, LoopState
from noetl_ray.hints.memory import MemoryHints
from noetl_ray.hints.port import FRAME_BACKLOG
from noetl_ray.testing.gateway_kit import GatewayKit
from noetl_ray.web.frame_board import BELIEVED_S, FrameBoard

pytestmark = pytest.mark.asyncio


def state(*frames: tuple[str, str | None], reduce: str | None = None, **more) -> ExecutionState:
    policy = FramePolicy()
    reducing = None if reduce is None else ReduceState(stage_id="r", policy=policy, frame_id=reduce)
    stage = StageState(stage_id="s", policy=policy, slots=(Slot(),), reduce=reducing)
    commands = {
        name: CommandState(
            command_id=name,
            step="s",
            visit=1,
            issued_position=1,
            issued_event_id=1,
            last_event_id=1,
            worker_id=worker,
            frame=True,
        )
        for name, worker in frames
    }
    loop = LoopState(visit=1, total=0, iterator="i", window=1, stage=stage)
    return ExecutionState(
        **{"execution_id": 1, "tenant_id": "t", "organization_id": "o"} | more,
        commands=commands,
        loops={"s": loop},
    )


async def test_frames_are_counted_by_owner_kind_and_status():
    states = [
        state(("a", None), ("b", "w"), ("c", "w")),
        state(("a", "w"), ("r", None), reduce="r", tenant_id="u"),
        state(("a", None), status="CANCELLED"),
    ]
    assert backlog_of(states) == {
        ("t", "o", "loop", "PENDING"): 1,
        ("t", "o", "loop", "CLAIMED"): 2,
        ("u", "o", "fanout", "CLAIMED"): 1,
        ("u", "o", "reduce", "PENDING"): 1,
    }


async def test_what_is_told_is_added_up_and_believed_for_a_while():
    hints, now = MemoryHints(), 0.0
    board = FrameBoard(lambda: now)
    await hints.listen(FRAME_BACKLOG, lambda _subject, data: board.hear(data))
    one, two = BacklogTeller(hints, "one"), BacklogTeller(hints, "two")
    await one.tell([])
    await asyncio.sleep(0.01)
    assert board.frames() == {}
    await one.tell([state(("a", None), ("b", "w"))])
    await two.tell([state(("a", None))])
    await asyncio.sleep(0.01)
    assert board.frames() == {("t", "o", "loop", "PENDING"): 2, ("t", "o", "loop", "CLAIMED"): 1}
    await one.tell([])
    await asyncio.sleep(0.01)
    assert board.frames() == {("t", "o", "loop", "PENDING"): 1}
    now = BELIEVED_S + 1.0
    assert board.frames() == {}
    board.hear(b"nonsense")
    board.hear(b"{}")


async def test_asc_1_the_series_of_a_scaler_has_no_label_that_grows():
    kit = GatewayKit()
    async with kit.http() as http:
        page = (await http.get("/metrics")).text
        assert 'noetl_frame_backlog_total{stage_kind="all",status="all"} 0.0' in page
        assert "noetl_frame_backlog_detail_total{" not in page
        hints = MemoryHints()
        heard = kit.deps.frames.hear
        await hints.listen(FRAME_BACKLOG, lambda _subject, data: heard(data))
        await BacklogTeller(hints, "c").tell([state(("a", None), ("b", "w"))])
        async with asyncio.timeout(10):
            while not kit.deps.frames.frames():
                await asyncio.sleep(0)
        page = (await http.get("/metrics")).text
    assert 'noetl_frame_backlog_total{stage_kind="all",status="all"} 2.0' in page
    wanted = 'organization_id="o",stage_kind="loop",status="PENDING",tenant_id="t"} 1.0'
    assert f"noetl_frame_backlog_detail_total{{{wanted}" in page
