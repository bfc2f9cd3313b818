"""The cell map and access plans over HTTP: nothing secret, nothing of others."""

from __future__ import annotations

import dataclasses

import pytest

from noetl_ray.config.settings import PayloadStoreSettings, ReplicaSettings, Settings
from noetl_ray.locator.result import ResultName
from noetl_ray.testing.gateway_kit import GatewayKit

pytestmark = pytest.mark.asyncio

NAME = ResultName(tenant="default", project="default", execution_id=1 << 40, step="load")


def kit():
    store = PayloadStoreSettings(
        url="s3://one/below",
        access_key="AK",
        secret_key="SK-secret",
        replicas=(ReplicaSettings(name="b", url="s3://two", region="eu", secret_key="SK-other"),),
    )
    return GatewayKit(settings=dataclasses.replace(Settings(), payload_store=store))


async def test_loc_5_cells_are_served_without_secrets():
    async with kit().http() as http:
        answer = await http.get("/api/internal/cells")
    assert answer.status_code == 200
    assert "SK-" not in answer.text
    assert "AK" not in answer.text
    cell = answer.json()["cells"]["cell-0"]
    assert (cell["provider"], cell["bucket"], cell["region"]) == ("s3", "one", "local")
    assert [each["name"] for each in cell["locations"]] == ["primary", "b"]
    assert {each["replica_state"] for each in cell["locations"]} == {"healthy"}


async def test_loc_6_a_plan_names_keys_and_copies():
    async with kit().http() as http:
        asked = {"uri": NAME.uri, "preferred_region": "eu"}
        plan = (await http.get("/api/internal/resolve", params=asked)).json()
        assert plan["chosen"] == "b"
        assert [key.rpartition(".")[2] for key in plan["keys"]] == ["feather", "json"]
        old = f"noetl://execution/{1 << 40}/step/load/run/1/attempt/1"
        again = await http.get("/api/internal/resolve", params={"uri": old})
        assert again.json()["keys"] == plan["keys"]
        page = (await http.get("/metrics")).text
    assert 'noetl_result_uri_accept_total{outcome="canonical"} 1.0' in page
    assert 'noetl_result_uri_accept_total{outcome="legacy"} 1.0' in page


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"uri": NAME.uri.replace("default", "rival", 1)}, 404),
        ({"uri": "noetl://default/default/results/1/../v1.f0/0/1@1"}, 400),
        ({"uri": "noetl://default/default/results/1/%2f/v1.f0/0/1@1"}, 400),
        ({"uri": "x" * 5_000}, 400),
        ({"uri": NAME.uri, "purpose": "steal"}, 400),
        ({"uri": NAME.uri, "required_capability": "presign"}, 400),
        ({"uri": "noetl://execution/1/result/a/b"}, 400),
    ],
)
async def test_what_cannot_be_resolved_is_told_why(asked, status):
    async with kit().http() as http:
        answer = await http.get("/api/internal/resolve", params=asked)
    assert answer.status_code == status
    assert len(answer.text) < 1_000
