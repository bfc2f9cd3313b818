"""Servers die, processes stop and disks fill while work with counted effects is under way.

After each fault everything acknowledged completes, and the history is judged: nothing lost,
doubled beyond its promise or out of order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.faults import LEASE_MS, SERVERS, Fire, fire

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

FULL_S = 4.0


@pytest.fixture(scope="module")
def under_fire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fire]:
    with fire(tmp_path_factory.mktemp("fire")) as made:
        yield made


def check(under_fire: Fire) -> None:
    verdict = under_fire.verdict()
    assert verdict.sound, (str(verdict), verdict)


@pytest.mark.parametrize("title", SERVERS)
def test_a_killed_server_loses_and_repeats_nothing(under_fire, title):
    ids = under_fire.submit(4, delay_s=1.0)
    under_fire.begun(ids, "pay_a")
    under_fire.kill_server(title)
    under_fire.server_is_back(title)
    check(under_fire)


@pytest.mark.parametrize("host", ["noetl/hot/0", "noetl/worker/1", "noetl/conductor/1"])
def test_p22_a_process_stopped_for_longer_than_its_lease_repeats_nothing(under_fire, host):
    ids = under_fire.submit(4, delay_s=0.5)
    under_fire.begun(ids, "pay_a")
    with under_fire.stopped(host):
        time.sleep(LEASE_MS / 1000 * 1.8)
    check(under_fire)


@pytest.mark.parametrize("store", ["objects", "nats"])
def test_a_full_disk_stops_the_work_and_loses_nothing(under_fire, store):
    if not under_fire.mounted:
        pytest.skip("file systems cannot be mounted here, so no disk can be made full")
    ids = under_fire.submit(3, delay_s=0.5)
    under_fire.begun(ids, "pay_a")
    with under_fire.full(store):
        time.sleep(FULL_S)
        assert under_fire.has_begun(ids, "pay_d") == []
    check(under_fire)
