"""The patient-flow test in small, while a worker that holds frames is killed."""

from __future__ import annotations

import asyncio

import pytest

from bench._child import Child
from bench._local import ray_environment
from bench.pft.bare import Size
from bench.pft.drive import Drive
from tests.chaos.conftest import Arena

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def test_bas_2_every_row_of_the_patient_flow_arrives_while_workers_are_killed(arena: Arena):
    size = Size(
        process="row", facilities=2, patients=10, max_rows=10, in_flight=4, row_concurrency=1
    )
    with Child(
        "bench.pft.killer", arena.running.ray_address, environment=ray_environment(arena.running)
    ) as killer:
        drive = Drive(arena.running, arena.api_url, hosts=("noetl/worker/1",))
        ran = asyncio.run(drive.run(size, killer, 0.7))
    assert ran.wrong == []
    assert ran.kills
    assert ran.found.by_domain == dict.fromkeys(ran.found.by_domain, 20)
    more = ran.metrics["more"]
    assert more["frames_abandoned"] >= 1
    assert more["stages_opened"] == more["stages_closed"] == 12
    assert more["writes_repeated"] <= 5 * more["rows_that_may_repeat"]
    assert ran.metrics["command_events"] < 20
