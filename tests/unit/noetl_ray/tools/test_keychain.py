"""Keychain values: in order, when needed, kept while good, renewed in time, by one asker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl_ray.credentials.port import Credential
from noetl_ray.dsl.parse import parse_playbook
from noetl_ray.dsl.template import Templates
from noetl_ray.errors import NotFoundError, ToolError
from noetl_ray.testing.simloop import SimClock, SimLoop, run_simulated
from noetl_ray.tools.keychain import Keychain, KeychainCache
from noetl_ray.tools.keychain_kinds import KeychainSources

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
OAUTH = """
keychain:
  - {name: app, kind: credential, credential: app_login}
  - name: api
    kind: oauth2
    endpoint: "{{ workload.url }}/token"
    data: {grant_type: client_credentials, client_secret: "{{ keychain.app.secret }}"}
  - {name: as_bearer, kind: bearer, token: "{{ keychain.api.access_token }}"}
"""


class World:
    """A playbook with a keychain, and what its entries ask for."""

    def __init__(self, loop: SimLoop, body: str, reads: str = "{{ keychain.api.access_token }}"):
        self.playbook = parse_playbook(
            HEAD + body + f"workflow: [{{step: a, tool: {{kind: http, url: '{reads}'}}}}]\n"
        )
        self.loop = loop
        self.cache = KeychainCache()
        self.requests: list[dict[str, Any]] = []
        self.secrets: set[str] = set()
        self.answer: Any = {"access_token": "token-1", "expires_in": 100, "token_type": "Bearer"}

    async def request(self, entry: str, config: dict[str, Any]) -> Any:
        self.requests.append(config)
        await asyncio.sleep(1)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def credential(self, name: str) -> Credential:
        if name != "app_login":
            msg = f"no credential {name!r}"
            raise NotFoundError(msg)
        self.secrets.add("client-secret-1")
        return Credential(name=name, type="basic", data={"secret": "client-secret-1", "user": "u"})

    def keychain(self, **env: str) -> Keychain:
        return Keychain(
            self.playbook.keychain,
            execution="t/o/1",
            workload={"url": "https://auth.example"},
            templates=Templates(),
            clock=SimClock(self.loop),
            sources=KeychainSources(
                execution_id=1, env=env, credential=self.credential, request=self.request
            ),
            cache=self.cache,
            conceal=self.secrets.update,
        )

    async def read(self, keychain: Keychain | None = None, **more: Any) -> dict[str, Any]:
        keychain = keychain or self.keychain()
        step = self.playbook.steps["a"]
        await keychain.prepare(step.tasks[0], step, **more)
        return dict(keychain.view)


def simulated(body: str, work: Any, **more: Any) -> None:
    run_simulated(3, lambda loop: work(World(loop, body, **more)))


def test_later_entries_read_earlier_ones_and_only_what_is_read_is_asked_for() -> None:
    async def work(world: World) -> None:
        found = await world.read()
        assert found == {
            "api": {"access_token": "token-1", "expires_in": 100, "token_type": "Bearer"}
        }
        (request,) = world.requests
        assert request["url"] == "https://auth.example/token"
        assert request["method"] == "POST"
        assert request["data"]["client_secret"] == "client-secret-1"
        assert request["headers"]["content-type"] == "application/x-www-form-urlencoded"
        assert {"token-1", "client-secret-1"} <= world.secrets
        assert not {"Bearer", "100"} & world.secrets

    simulated(OAUTH, work)


def test_nothing_is_resolved_for_a_task_that_reads_nothing() -> None:
    async def work(world: World) -> None:
        assert await world.read() == {}
        assert world.requests == []

    simulated(OAUTH, work, reads="https://x.example")


def test_an_entry_serves_as_auth() -> None:
    async def work(world: World) -> None:
        found = await world.keychain().credential("as_bearer")
        assert found is not None
        assert (found.type, found.data) == ("bearer", {"token": "token-1"})
        assert await world.keychain().credential("other") is None
        assert "token-1" in world.secrets

    simulated(OAUTH, work)


def test_a_crowd_asks_once_and_the_answer_is_kept_for_the_execution() -> None:
    async def work(world: World) -> None:
        found = await asyncio.gather(*(world.read() for _ in range(20)))
        assert all(one["api"]["access_token"] == "token-1" for one in found)
        assert len(world.requests) == 1

    simulated(OAUTH, work)


def test_a_token_is_renewed_before_it_ends_and_so_is_what_was_made_from_it() -> None:
    async def work(world: World) -> None:
        await world.keychain().credential("as_bearer")
        world.answer = {"access_token": "token-2", "expires_in": 100}
        await asyncio.sleep(70)
        assert (await world.keychain().credential("as_bearer")).data == {"token": "token-1"}
        await asyncio.sleep(15)
        assert (await world.keychain().credential("as_bearer")).data == {"token": "token-2"}
        assert len(world.requests) == 2

    simulated(OAUTH, work)


def test_a_refused_token_is_asked_for_anew() -> None:
    async def work(world: World) -> None:
        keychain = world.keychain()
        await world.read(keychain)
        world.answer = {"access_token": "token-2"}
        assert (await world.read(keychain))["api"]["access_token"] == "token-1"
        found = await world.read(keychain, refused=True)
        assert found["api"]["access_token"] == "token-2"

    simulated(OAUTH, work)


def test_without_auto_renew_an_expired_token_is_an_error() -> None:
    async def work(world: World) -> None:
        await world.read()
        await asyncio.sleep(98)
        assert len(world.requests) == 1
        await world.read()
        await asyncio.sleep(2)
        with pytest.raises(ToolError, match="has expired and auto_renew is false") as caught:
            await world.read()
        assert caught.value.kind == "auth"
        assert len(world.requests) == 1

    simulated(OAUTH.replace("    data:", "    auto_renew: false\n    data:"), work)


@pytest.mark.parametrize(
    ("answer", "says", "retryable"),
    [
        (ToolError("POST gave no answer", "timeout", True), "POST gave no answer", True),
        (ToolError("POST answered 401", "auth"), "POST answered 401", False),
        ({"error": "no"}, "the token endpoint answered without an access_token", False),
        ("text", "the token endpoint answered without an access_token", False),
    ],
)
def test_a_failure_names_the_entry_and_is_of_kind_auth(
    answer: Any, says: str, retryable: bool
) -> None:
    async def work(world: World) -> None:
        world.answer = answer
        with pytest.raises(ToolError) as caught:
            await world.read()
        error = caught.value
        assert error.message == f"the keychain entry 'api' (oauth2) cannot be resolved: {says}"
        assert (error.kind, error.retryable) == ("auth", retryable)
        assert error.details == {"keychain": "api", "keychain_kind": "oauth2"}
        # A failure is not kept.
        world.answer = {"access_token": "late"}
        assert (await world.read())["api"]["access_token"] == "late"

    simulated(OAUTH, work)


def test_env_reads_only_what_is_allowed() -> None:
    body = "keychain:\n  - {name: k, kind: env, variable: TOKEN, map: {user: LOGIN}}\n"

    async def work(world: World) -> None:
        found = await world.read(world.keychain(TOKEN="env-token", LOGIN="ada"))
        assert found == {"k": {"user": "ada", "value": "env-token"}}
        assert {"env-token"} <= world.secrets
        world.cache = KeychainCache()
        with pytest.raises(ToolError, match=r"'LOGIN' is not set .* runtime.allowed_env"):
            await world.read(world.keychain(TOKEN="env-token"))

    simulated(body, work, reads="{{ keychain.k.value }}")


def test_every_value_of_a_static_entry_is_secret() -> None:
    body = "keychain:\n  - {name: k, kind: static, map: {a: abcd, n: {pin: 123456, ok: true}}}\n"

    async def work(world: World) -> None:
        await world.read()
        assert world.secrets == {"abcd", "123456"}

    simulated(body, work, reads="{{ keychain.k.a }}")


def test_a_kind_that_needs_an_account_says_how_to_add_it() -> None:
    body = "keychain:\n  - {name: k, kind: google_id_token}\n"

    async def work(world: World) -> None:
        with pytest.raises(ToolError) as caught:
            await world.read()
        assert "the keychain kind 'google_id_token' is not built in" in caught.value.message
        assert "entry point of that name in the group 'noetl_ray.keychain'" in caught.value.message

    simulated(body, work, reads="{{ keychain.k.a }}")


def test_the_cache_forgets_the_oldest() -> None:
    body = "keychain:\n  - {name: k, kind: static, map: {a: abcd}}\n"

    async def work(world: World) -> None:
        world.cache = KeychainCache(entries_max=2)
        await world.read()
        kept = world.cache.find(("t/o/1", "k"))
        assert kept is not None
        world.cache.keep(("t/o/2", "k"), kept)
        world.cache.keep(("t/o/3", "k"), kept)
        assert world.cache.find(("t/o/1", "k")) is None
        assert "abcd" not in repr(kept)

    simulated(body, work, reads="{{ keychain.k.a }}")
