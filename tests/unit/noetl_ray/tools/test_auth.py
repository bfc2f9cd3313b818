from __future__ import annotations

import pytest

from noetl_ray.errors import StoreUnavailableError, ToolError
from noetl_ray.tools.auth import pick, resolve_auth


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "config",
    [
        {"auth": "pg"},
        {"credential": "pg"},
        {"auth": "", "credential": "pg"},
        {"auth": {"type": "postgres", "credential": "pg"}},
        {"auth": {"source": "credential", "key": "pg", "service": "postgres"}},
    ],
)
async def test_every_single_form_names_the_credential(bench, config):
    bench.add("pg", "postgres", db_host="h")
    auths = await resolve_auth(config, bench.context())
    assert list(auths) == [""]
    assert auths[""].data == {"db_host": "h"}
    assert auths[""].type == "postgres"


@pytest.mark.asyncio
async def test_a_map_of_aliases_is_picked_by_service(bench):
    bench.add("one", "bearer", token="t")
    bench.add("two", "postgres", db_host="h")
    spec = {"a": {"source": "credential", "key": "one"}, "b": {"key": "two", "service": "postgres"}}
    auths = await resolve_auth({"auth": spec}, bench.context())
    assert set(auths) == {"a", "b"}
    assert pick(auths, frozenset({"postgres"})) is auths["b"]
    assert pick(auths, frozenset({"none"})) is auths["a"]
    assert pick({}, frozenset()) is None


@pytest.mark.asyncio
async def test_fields_in_place_need_no_store(bench):
    auths = await resolve_auth({"auth": {"type": "bearer", "token": "t0k"}}, bench.context())
    assert auths[""].data == {"token": "t0k"}
    assert "t0k" not in repr(auths)


@pytest.mark.asyncio
async def test_nothing_given_is_nothing(bench):
    assert await resolve_auth({}, bench.context()) == {}


@pytest.mark.asyncio
async def test_an_unknown_name_is_an_auth_error(bench):
    with pytest.raises(ToolError, match="nobody") as caught:
        await resolve_auth({"auth": "nobody"}, bench.context())
    assert (caught.value.kind, caught.value.retryable) == ("auth", False)


@pytest.mark.asyncio
async def test_a_store_that_is_away_is_worth_a_retry(bench):
    async def away(name):
        raise StoreUnavailableError(name)

    with pytest.raises(ToolError) as caught:
        await resolve_auth({"auth": "pg"}, bench.context(credential=away))
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)


@pytest.mark.asyncio
async def test_a_shape_that_means_nothing_is_refused(bench):
    with pytest.raises(ToolError, match="must be"):
        await resolve_auth({"auth": 5}, bench.context())
