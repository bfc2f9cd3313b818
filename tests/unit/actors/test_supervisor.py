from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.options import wanted_hosts
from actors.supervisor import CreateHost, Supervisor, neighbours, reconcile
from noetl_ray.config.settings import RuntimeSettings, Settings

WANTED = wanted_hosts(Settings(runtime=RuntimeSettings(conductors=2, workers=3)))
NAMES = [spec.actor_name for spec in WANTED]


class Directory:
    """A directory in memory; ``fail`` makes the next look fail."""

    def __init__(self, names=()):
        self.names = set(names)
        self.processes = {}
        self.fail = False
        self.looks = 0
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def existing(self):
        self.looks += 1
        self.entered.set()
        if self.gate is not None:
            self.gate.wait(5)
        if self.fail:
            msg = "no directory today"
            raise ConnectionError(msg)
        return frozenset(self.names)

    def create(self, spec):
        self.names.add(spec.actor_name)

    def incarnations(self, names):
        return {name: self.processes[name] for name in names if name in self.processes}


@given(st.sets(st.sampled_from([*NAMES, "noetl/stranger/9"])))
def test_exactly_the_missing_are_made_in_order(existing):
    made = reconcile(WANTED, existing)
    assert made == tuple(CreateHost(spec=s) for s in WANTED if s.actor_name not in existing)
    assert existing | {decision.spec.actor_name for decision in made} >= set(NAMES)


def test_nothing_is_done_when_all_are_there():
    assert reconcile(WANTED, NAMES) == ()


@pytest.mark.asyncio
async def test_a_turn_makes_the_others_but_never_itself():
    directory = Directory()
    watch = Supervisor(directory, WANTED, own_name="hot/0")
    assert await watch.turn() == len(WANTED) - 1
    assert directory.names == set(NAMES) - {"noetl/hot/0"}
    assert await watch.turn() == 0
    assert watch.created == len(WANTED) - 1


@pytest.mark.asyncio
async def test_two_watches_keep_each_other():
    directory = Directory(NAMES)
    one = Supervisor(directory, WANTED, own_name="hot/0")
    other = Supervisor(directory, WANTED, own_name="views/0")
    directory.names = {"noetl/views/0"}
    await asyncio.gather(one.turn(), other.turn())
    assert directory.names == set(NAMES)


@pytest.mark.asyncio
async def test_an_unreachable_directory_is_waited_out(caplog):
    directory = Directory()
    watch = Supervisor(directory, WANTED, own_name="hot/0")
    directory.fail = True
    assert await watch.turn() == 0
    assert await watch.turn() == 0
    assert len(caplog.records) == 1, "said once, not every second"
    directory.fail = False
    assert await watch.turn() > 0


@pytest.mark.asyncio
async def test_after_stop_nothing_is_made():
    directory = Directory()
    watch = Supervisor(directory, WANTED, own_name="hot/0")
    await watch.stop()
    assert await watch.turn() == 0
    assert directory.looks == 0
    await asyncio.wait_for(watch.run(0.0), 1)


@pytest.mark.asyncio
async def test_stop_waits_for_the_turn_under_way_which_then_makes_nothing():
    directory = Directory()
    directory.gate = threading.Event()
    watch = Supervisor(directory, WANTED, own_name="hot/0")
    turn = asyncio.create_task(watch.turn())
    await asyncio.to_thread(directory.entered.wait, 5)
    stop = asyncio.create_task(watch.stop())
    await asyncio.sleep(0)
    assert not stop.done()
    directory.gate.set()
    await asyncio.gather(turn, stop)
    assert directory.names == set()


@pytest.mark.asyncio
async def test_run_repeats_until_stopped():
    directory = Directory(NAMES)
    watch = Supervisor(directory, WANTED, own_name="hot/0")
    running = asyncio.create_task(watch.run(0.001))
    while directory.looks < 3:
        await asyncio.sleep(0.001)
    await watch.stop()
    await asyncio.wait_for(running, 1)


@pytest.mark.asyncio
async def test_p22_a_process_that_is_another_or_none_is_told_once():
    directory, told = Directory(NAMES), []

    async def on_gone(host, incarnation):
        told.append((host, incarnation))

    watch = Supervisor(directory, WANTED, own_name="hot/0", on_gone=on_gone)
    watched = [spec.name for spec in neighbours(WANTED, "hot/0")]
    one, two = (f"noetl/{name}" for name in watched)
    for now in ({one: "a", two: "x"}, {one: "a"}, {one: "", two: "y"}, {one: ""}, {one: "b"}):
        directory.processes = now
        await watch.turn()
    assert told == [(watched[0], "a"), (watched[1], "x")]


def test_every_host_is_watched_by_another():
    for count in (1, 2, 7):
        wanted = wanted_hosts(Settings(runtime=RuntimeSettings(conductors=count)))
        watched = {each.name for spec in wanted for each in neighbours(wanted, spec.name)}
        assert watched == {spec.name for spec in wanted}
        assert all(spec not in neighbours(wanted, spec.name) for spec in wanted)
    assert neighbours(WANTED, "stranger/0") == ()
