"""One proof for every credential store: memory, and the bucket of a real NATS server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from noetl_ray.credentials.crypto import Sealer
from noetl_ray.credentials.memory import MemoryCredentials
from noetl_ray.credentials.nats_kv import BUCKET, NatsCredentials
from noetl_ray.credentials.port import Credential, CredentialStore
from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.errors import NotFoundError, StoreError, StoreUnavailableError, UsageError
from noetl_ray.scope import Scope
from noetl_ray.wal.connection import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

KEY = bytes(range(32))
SCOPE = Scope(tenant_id="acme", organization_id="sales")
OTHER = Scope(tenant_id="acme", organization_id="sales-two")
ODD_NAMES = ["pg", "a.b", "ünï", "a b", "x~y", "a/b", "50%", "a=2E", "*", ">", "n" * 128]

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    folder = tmp_path_factory.mktemp("nats")
    running = start_nats(folder, token="contract-token", durability="process", detached=False)
    yield running
    stop_nats(running)


@pytest_asyncio.fixture(params=["memory", "nats"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[CredentialStore]:
    made: CredentialStore
    if request.param == "memory":
        made = MemoryCredentials(Sealer(KEY))
    else:
        server = request.getfixturevalue("server")
        made = await NatsCredentials.open(server.url, server.token, Sealer(KEY))
        await empty(made)
    yield made
    await made.close()


async def empty(store: CredentialStore) -> None:
    for scope in (SCOPE, OTHER):
        for info in await store.list(scope):
            await store.remove(scope, info.name)


def credential(name: str = "pg", password: str = "hunter2") -> Credential:
    return Credential(
        name=name, type="postgres", data={"user": "me", "password": password}, description="d"
    )


async def test_what_is_put_is_got(store: CredentialStore) -> None:
    await store.put(SCOPE, credential())
    assert await store.get(SCOPE, "pg") == credential()


async def test_a_put_replaces(store: CredentialStore) -> None:
    await store.put(SCOPE, credential())
    await store.put(SCOPE, credential(password="other"))
    assert (await store.get(SCOPE, "pg")).data["password"] == "other"
    assert len(await store.list(SCOPE)) == 1


async def test_a_missing_one_says_how_to_add_it(store: CredentialStore) -> None:
    with pytest.raises(NotFoundError, match="noetl-ray credential add nope"):
        await store.get(SCOPE, "nope")
    assert await store.remove(SCOPE, "nope") is False


async def test_removed_is_gone_and_can_come_back(store: CredentialStore) -> None:
    await store.put(SCOPE, credential())
    assert await store.remove(SCOPE, "pg") is True
    assert await store.remove(SCOPE, "pg") is False
    with pytest.raises(NotFoundError):
        await store.get(SCOPE, "pg")
    assert await store.list(SCOPE) == []
    await store.put(SCOPE, credential())
    assert len(await store.list(SCOPE)) == 1


async def test_the_list_shows_names_and_fields_but_no_data(store: CredentialStore) -> None:
    await store.put(SCOPE, credential("b"))
    await store.put(SCOPE, credential("a"))
    listed = await store.list(SCOPE)
    assert [info.name for info in listed] == ["a", "b"]
    assert listed[0].fields == ("password", "user")
    assert "hunter2" not in repr(listed)
    assert "hunter2" not in repr(await store.get(SCOPE, "a"))


async def test_scopes_do_not_meet(store: CredentialStore) -> None:
    await store.put(OTHER, credential())
    assert await store.list(SCOPE) == []
    with pytest.raises(NotFoundError):
        await store.get(SCOPE, "pg")
    assert await store.remove(SCOPE, "pg") is False


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_names_may_be_odd(store: CredentialStore, name: str) -> None:
    await store.put(SCOPE, credential(name))
    assert (await store.get(SCOPE, name)).name == name
    assert [info.name for info in await store.list(SCOPE)] == [name]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "n" * 129])
async def test_names_may_not_be_anything(store: CredentialStore, name: str) -> None:
    with pytest.raises(UsageError):
        await store.put(SCOPE, credential(name))


async def test_many_at_once(store: CredentialStore) -> None:
    await asyncio.gather(*(store.put(SCOPE, credential(f"c{n:02d}")) for n in range(20)))
    assert len(await store.list(SCOPE)) == 20


async def test_the_server_never_sees_data(server: NatsProcess) -> None:
    store = await NatsCredentials.open(server.url, server.token, Sealer(KEY))
    await empty(store)
    await store.put(SCOPE, credential())
    client = await connect(server.url, server.token)
    try:
        bucket = await client.jetstream().key_value(BUCKET)
        raw = (await bucket.get("acme.sales.pg")).value
    finally:
        await client.close()
        await store.close()
    assert raw
    assert b"hunter2" not in raw


async def test_another_key_cannot_open_but_can_list_and_remove(server: NatsProcess) -> None:
    first = await NatsCredentials.open(server.url, server.token, Sealer(KEY))
    second = await NatsCredentials.open(server.url, server.token, Sealer(b"2" * 32))
    try:
        await empty(first)
        await first.put(SCOPE, credential())
        with pytest.raises(StoreError, match="present key"):
            await second.get(SCOPE, "pg")
        assert [info.type for info in await second.list(SCOPE)] == ["unreadable"]
        assert await second.remove(SCOPE, "pg") is True
        assert await first.list(SCOPE) == []
    finally:
        await first.close()
        await second.close()


async def test_an_absent_server_is_named() -> None:
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:9"):
        await NatsCredentials.open("nats://127.0.0.1:9", None, Sealer(KEY))


async def test_a_store_whose_server_went_away_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("gone")
    running = start_nats(folder, token=None, durability="process", detached=False)
    store = await NatsCredentials.open(running.url, None, Sealer(KEY))
    try:
        stop_nats(running)
        with pytest.raises(StoreUnavailableError):
            await store.get(SCOPE, "pg")
    finally:
        await store.close()
