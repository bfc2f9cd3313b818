"""``/api/replay/state``: from the log alone, as of any moment, and against the read model."""

from __future__ import annotations

import msgspec
import pytest

from noetl_ray.client import Client
from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.events.upcast import registry
from noetl_ray.readmodel.memory import MemoryReadModel
from noetl_ray.replay.snapshots import take_snapshot
from noetl_ray.replay.surfaces import SURFACES, checksum_of_bundle
from noetl_ray.scope import Scope
from noetl_ray.testing.gateway_kit import HELLO, GatewayKit

pytestmark = pytest.mark.asyncio


async def ended(kit: GatewayKit, client: Client) -> int:
    execution_id = (await client.submit(playbook=HELLO)).execution_id
    await kit.run(execution_id, {"n": 1})
    return execution_id


async def test_rpl_4_the_answer_holds_state_checksums_and_registry():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        number = await ended(kit, client)
        found = await client.replay(number, projection="all", compare=True)
        assert found["status"] == "COMPLETED"
        assert found["checksum_algorithm"] == "sha256"
        assert tuple(found["projection_checksums"]) == SURFACES
        assert found["checksum"] == checksum_of_bundle(found["projection_checksums"])
        assert found["upcaster_registry_digest"] == registry().digest
        assert set(found["state"]) == set(SURFACES)
        assert found["state"]["execution"]["state"]["steps"]["start"]["status"] == "completed"
        assert found["parity"] == {
            "matches": True,
            "live_checksums": found["projection_checksums"],
            "differing": [],
            "first_difference": None,
        }


async def test_rpl_1_as_of_a_position_an_event_or_a_time():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        number = await ended(kit, client)
        records = [r async for r in kit.log.read("noetl.events.>")]
        begun = records[1]
        early = await client.replay(number, position=begun.position)
        assert (early["status"], early["position"]) == ("RUNNING", begun.position)
        event_id = begun.record.events[0].event_id
        assert await client.replay(number, event_id=event_id) == early
        late = await client.replay(number, time="2100-01-01T00:00:00.000Z")
        assert late["status"] == "COMPLETED"
        with pytest.raises(NotFoundError, match="had not begun"):
            await client.replay(number, time="2001-01-01T00:00:00.000Z")
        with pytest.raises(UsageError, match="ISO form"):
            await client.replay(number, time="yesterday")
        with pytest.raises(UsageError, match="exclude each other"):
            await client.replay(number, position=1, event_id=1)
        with pytest.raises(UsageError, match="leave as_of out"):
            await client.replay(number, position=1, compare=True)


async def test_a_row_that_was_tampered_with_is_named():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        number = await ended(kit, client)
        (key,) = kit.model._commands
        wrong = msgspec.structs.replace(kit.model._commands[key], status="FAILED")
        kit.model._commands[key] = wrong
        parity = (await client.replay(number, compare=True))["parity"]
        assert (parity["matches"], parity["differing"]) == (False, ["commands"])
        first = parity["first_difference"]
        assert (first["surface"], first["path"]) == ("commands", "[0].status")
        assert (first["replay"], first["live"]) == ("COMPLETED", "FAILED")


async def test_p1_an_empty_read_model_does_not_stop_a_replay():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        number = await ended(kit, client)
        before = await client.replay(number)
        for name, value in vars(MemoryReadModel()).items():
            setattr(kit.model, name, value)
        assert await client.replay(number) == before
        parity = (await client.replay(number, compare=True))["parity"]
        assert (parity["matches"], parity["live_checksums"]) == (False, None)


async def test_ten_3_another_tenant_has_no_such_execution():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client:
        number = await ended(kit, client)
    async with Client("http://127.0.0.1", http=kit.http(), tenant="other") as other:
        with pytest.raises(NotFoundError):
            await other.replay(number)


async def test_snp_2_a_replay_from_a_snapshot_says_so_and_gives_the_same():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client, kit.http() as http:
        number = await ended(kit, client)
        plain = await client.replay(number, projection="all")
        assert plain["snapshot"] is None
        at = "2026-01-01T00:00:00.000Z"
        await take_snapshot(kit.log, kit.model, Scope(), number, taken_at=at)
        found = await client.replay(number, projection="all")
        told = found.pop("snapshot")
        assert told["used"] is True
        assert told["position"] == plain["position"]
        assert found == {key: value for key, value in plain.items() if key != "snapshot"}
        asked = {"execution_id": str(number), "projection": "all", "use_snapshot": "false"}
        assert (await http.get("/api/replay/state", params=asked)).json() == plain
        assert (await client.replay(number, compare=True))["snapshot"] is None


LARGE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: demo/large}
workflow:
  - {step: start, tool: {kind: noop}}
"""


async def test_rpl_6_evidence_about_payloads_is_given_when_asked_for():
    kit = GatewayKit()
    async with Client("http://127.0.0.1", http=kit.http()) as client, kit.http() as http:
        workload = {"password": "hidden", "n": 1}
        number = (await client.submit(playbook=LARGE, workload=workload)).execution_id
        asked = {"execution_id": str(number)}
        plain = (await http.get("/api/replay/state", params=asked)).json()
        assert "payloads" not in plain
        answer = await http.get("/api/replay/state", params=asked | {"resolve_payloads": "true"})
        found = answer.json()
        summary = found["payload_resolution_summary"]
        assert (summary["total"], summary["all_resolved"]) == (1, True)
        (row,) = found["payloads"]
        assert row["path"] == "payload_ref"
        assert row["resolution"]["sha256"] == row["sha256"]
        assert "hidden" not in answer.text
