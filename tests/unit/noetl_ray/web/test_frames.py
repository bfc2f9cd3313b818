"""Stages and frames over HTTP: shapes, filters, scope."""

from __future__ import annotations

import pytest

from noetl_ray.client import Client
from noetl_ray.readmodel.records import ProjectionBatch
from noetl_ray.testing.contract_frames import frame, stage
from noetl_ray.testing.gateway_kit import GatewayKit
from noetl_ray.testing.readmodel_samples import mark

pytestmark = pytest.mark.asyncio


async def test_stages_and_frames_are_shown_with_ids_as_text():
    kit = GatewayKit()
    rows = (
        frame(3, "COMMITTED", frame_id="a", terminal_event_id=1 << 60, row_count=5),
        frame(4, "RUNNING", frame_id="b"),
    )
    await kit.model.commit(
        ProjectionBatch(
            checkpoints=(mark(4),),
            stages=(stage(2, "OPEN", opened_event_id=2, step_name="s", visit=1),),
            frames=rows,
        )
    )
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        (found,) = await client.stages(7)
        assert (found["execution_id"], found["opened_event_id"]) == ("7", "2")
        assert (found["status"], found["step_name"]) == ("OPEN", "s")
        newest, oldest = await client.frames(7)
        assert (newest["frame_id"], newest["terminal_event_id"]) == ("b", None)
        assert (oldest["terminal_event_id"], oldest["row_count"]) == (str(1 << 60), 5)
        assert await client.frames(7, status="running") == [newest]
        assert await client.frames(7, stage_id="other") == []
        assert await client.frames(8) == []
    async with Client("http://127.0.0.1", http=kit.http(), tenant="other") as other:
        assert await other.stages(7) == []
        assert await other.frames(7) == []
