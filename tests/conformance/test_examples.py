"""Examples of the keychain, stored results, business objects and fan-outs run as they stand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from noetl_ray.testing.fixture_api_tokens import CLIENT_ID, CLIENT_SECRET
from tests.support.conformance import Runtime

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def text_of(name: str) -> str:
    text = (EXAMPLES / name / "playbook.yaml").read_text()
    assert yaml.safe_load(text)
    return text


def test_the_keychain_example(runtime: Runtime, api_url: str):
    secrets = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    runtime.credential("demo_client", "oauth2_client", secrets)
    ended = runtime.run(text_of("keychain"), {"api_url": api_url}).completed()
    report = ended["report"]
    assert report["tokens_asked_for"] == ended["start"]["by_auth"]["data"]["issued"]
    assert report["header_as_recorded"] == "Bearer ***"
    written = msgspec.json.encode(ended.events).decode()
    assert "fixture-token-" not in written
    assert CLIENT_SECRET not in written


def test_the_artifacts_example(runtime: Runtime):
    ended = runtime.run(text_of("artifacts")).completed()
    assert ended["report"]["rows"] == 20_000
    assert ended["report"]["last"] == 19_999
    assert ended["report"]["groups"] == 7


def test_the_objects_example(runtime: Runtime):
    ended = runtime.run(text_of("objects")).completed()
    assert ended["report"]["states"] == ["paid", "held", "paid"]
    said = [each for each in ended.events if each.event_type == "business_object.recorded"]
    by_order: dict[str, list[str]] = {}
    for each in said:
        by_order.setdefault(each.payload["id"], []).append(each.payload["status"])
    assert by_order == {
        "1001": ["reserved", "paid"],
        "1002": ["reserved", "held"],
        "1003": ["reserved", "paid"],
    }
    assert {each.aggregate_type for each in said} == {"business_object"}


def test_the_approval_example_waits_no_longer_than_it_says(runtime: Runtime):
    ended = runtime.run(text_of("approval"), {"patience": 0}).completed()
    assert ended["refuse"] == {"paid": 0, "late": True}


def test_the_fanout_example(runtime: Runtime):
    ended = runtime.run(text_of("fanout")).completed()
    values = [(n * 37) % 101 for n in range(0, 20_000, 7)]
    report = {"sensors": 7, "counted": len(values), "mean": sum(values) / len(values)}
    assert ended["report"] == report
    assert runtime.run(text_of("fanout"), {"partitions": 1}).completed()["report"] == report
