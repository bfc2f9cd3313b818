from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import pytest

from actors.host import HostActor
from actors.options import wanted_hosts
from noetl_ray.config.convert import to_dict
from noetl_ray.config.settings import RuntimeSettings, Settings
from noetl_ray.errors import InternalError

SETTINGS = Settings(runtime=RuntimeSettings(conductors=3, shard_count=8))
HOT, VIEWS, CONDUCTOR_1 = wanted_hosts(SETTINGS)[:3]


class Roles:
    def __init__(self, kwargs):
        self.kwargs = kwargs
        self.url = None
        self.ending = asyncio.Event()
        self.error = None

    @property
    def gateway_url(self):
        if self.url is None:
            msg = "the gateway has not been started"
            raise InternalError(msg)
        return self.url

    async def run(self, stopping):
        waits = [asyncio.create_task(event.wait()) for event in (stopping, self.ending)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in waits:
            task.cancel()
        if self.error is not None:
            raise self.error

    def summary(self):
        return {"turns": 7}


@pytest.fixture
def opened(monkeypatch):
    """Roles opened by hosts; an exception put into ``problem`` is raised instead."""
    module = ModuleType("roles_of_this_test")
    module.roles = []
    module.problem = None

    async def open_roles(settings, roles, **kwargs):
        if module.problem is not None:
            raise module.problem
        module.roles.append(Roles({"roles": roles, **kwargs}))
        return module.roles[-1]

    module.open_roles = open_roles
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


class Directory:
    def __init__(self):
        self.made = []

    def existing(self):
        return frozenset()

    def create(self, spec):
        self.made.append(spec.name)


def host(spec, exits, **options):
    return HostActor(
        spec=spec,
        settings=to_dict(SETTINGS),
        factory="roles_of_this_test:open_roles",
        exit_process=exits.append,
        report_s=0.0,
        **options,
    )


async def finished(actor):
    await asyncio.wait_for(actor._main, 5)
    for task in actor._tasks:
        task.cancel()
    await asyncio.gather(*actor._tasks, return_exceptions=True)


@pytest.mark.asyncio
async def test_it_starts_without_being_asked(opened):
    exits = []
    actor = host(HOT, exits)
    assert (await actor.health())["state"] == "starting"
    assert (await actor.open())["state"] == "running"
    assert opened.roles[0].kwargs["host_name"] == "hot/0"
    assert opened.roles[0].kwargs["roles"] == ("conductor", "worker", "keeper")
    assert (await actor.summary())["runtime"] == {"turns": 7}
    assert await actor.close(5)
    assert (await actor.health())["state"] == "stopped"
    await finished(actor)
    assert exits == []


@pytest.mark.asyncio
async def test_every_process_is_another_incarnation(opened):
    actors = [host(HOT, []) for _ in range(2)]
    for actor in actors:
        await actor.open()
        await actor.close(5)
        await finished(actor)
    assert len({roles.kwargs["incarnation"] for roles in opened.roles}) == 2


@pytest.mark.asyncio
async def test_with_a_gateway_it_runs_once_that_listens(opened):
    actor = host(VIEWS, [])
    health = await actor.open()
    assert (health["state"], health["gateway_url"]) == ("starting", None)
    opened.roles[0].url = "http://127.0.0.1:1"
    health = await actor.health()
    assert (health["state"], health["gateway_url"]) == ("running", "http://127.0.0.1:1")
    assert await actor.gateway_url() == "http://127.0.0.1:1"
    await actor.close(5)
    await finished(actor)


@pytest.mark.asyncio
async def test_failing_roles_end_the_process(opened, caplog):
    exits = []
    actor = host(HOT, exits)
    await actor.open()
    opened.roles[0].error = ValueError("bad luck")
    opened.roles[0].ending.set()
    await finished(actor)
    assert exits == [1]
    assert (await actor.health())["error"] == "ValueError: bad luck"
    assert "bad luck" in caplog.text


@pytest.mark.asyncio
async def test_roles_that_end_unasked_end_the_process(opened):
    exits = []
    actor = host(HOT, exits)
    await actor.open()
    opened.roles[0].ending.set()
    await finished(actor)
    assert exits == [1]


@pytest.mark.asyncio
async def test_roles_that_cannot_open_end_the_process(opened):
    exits = []
    opened.problem = ConnectionError("no log")
    actor = host(HOT, exits)
    health = await asyncio.wait_for(actor.open(), 5)
    assert (health["state"], health["error"]) == ("failed", "ConnectionError: no log")
    await finished(actor)
    assert exits == [1]


@pytest.mark.asyncio
async def test_a_missing_factory_ends_the_process(opened):
    exits = []
    del opened.open_roles
    actor = host(HOT, exits)
    await finished(actor)
    assert exits == [1]


@pytest.mark.asyncio
async def test_prepare_down_stops_looking_after_the_others(opened):
    directory = Directory()
    actor = host(HOT, [], directory=directory)
    await actor.prepare_down()
    assert await actor._supervisor.turn() == 0
    await actor.close(5)
    await finished(actor)
    assert directory.made == []


@pytest.mark.asyncio
async def test_its_name_shows_who_it_is(opened):
    actor = host(HOT, [])
    assert repr(actor) == "Host(hot/0: conductor worker keeper)"
    await actor.close(5)
    await finished(actor)
