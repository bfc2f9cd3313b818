"""Evidence about what a replayed execution refers to: bounded, each fetched once, no bytes."""

from __future__ import annotations

from typing import Any

import pytest

from noetl_ray.errors import ObjectMissingError, UsageError
from noetl_ray.events.canonical import digest, sha256_hex
from noetl_ray.events.envelope import PayloadRef, Record
from noetl_ray.replay import payloads
from noetl_ray.replay.payloads import references_in, resolve_payloads
from noetl_ray.scope import Scope
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.port import Recorded

pytestmark = pytest.mark.asyncio
STEP = {"step": "s", "visit": 1}
DATA = {"noetl://a": b"one", "noetl://b": b"two"}


class Reader:
    """Bytes by name, and how often each was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def durable_bytes(self, _scope: Scope, reference: dict[str, Any]) -> bytes:
        self.asked.append(reference["uri"])
        try:
            return DATA[reference["uri"]]
        except KeyError:
            msg = "no object"
            raise ObjectMissingError(msg) from None


def ref(name: str, **more: Any) -> dict[str, Any]:
    data = DATA.get(name, b"gone")
    return {"uri": name, "sha256": sha256_hex(data), "bytes": len(data), **more}


def records() -> list[Recorded]:
    events = (
        sample_event(
            1, payload={"step": "s", "visit": 1, "result": {"reference": ref("noetl://a", rows=3)}}
        ),
        sample_event(
            2,
            payload={
                "step": "s",
                "visit": 1,
                "parts": [{"reference": ref("noetl://a", rows=3)}, {}],
            },
        ),
        sample_event(
            3,
            payload={"step": "s", "visit": 1, "deep": [[ref("noetl://gone")]]},
            payload_ref=PayloadRef(
                uri="noetl://b", sha256=sha256_hex(b"two"), media_type="x/y", bytes=3
            ),
        ),
    )
    return [
        Recorded(position=n, subject="s", time_ms=0, record=Record(events=(event,)))
        for n, event in enumerate(events, start=1)
    ]


async def test_rpl_6_each_is_fetched_once_and_told_wherever_it_occurs() -> None:
    reader = Reader()
    found = await resolve_payloads(reader, Scope(), references_in(records()))
    assert sorted(reader.asked) == ["noetl://a", "noetl://b", "noetl://gone"]
    rows = found["payloads"]
    assert [(row["position"], row["path"], row["uri"]) for row in rows] == [
        (1, "payload.result.reference", "noetl://a"),
        (2, "payload.parts[0].reference", "noetl://a"),
        (3, "payload.deep[0][0]", "noetl://gone"),
        (3, "payload_ref", "noetl://b"),
    ]
    assert rows[0]["resolution"] == rows[1]["resolution"]
    assert rows[0]["resolution"] == {
        "resolved": True,
        "sha256": sha256_hex(b"one"),
        "bytes": 3,
        "rows": 3,
        "media_type": None,
        "error": None,
    }
    assert rows[2]["resolution"]["error"] == "ObjectMissingError: no object"
    assert found["payload_resolution_summary"] == {
        "total": 4,
        "resolved": 3,
        "unresolved": 1,
        "unique": 3,
        "all_resolved": False,
        "checksum": digest(rows),
    }


async def test_rpl_6_only_what_the_moment_knows_is_told() -> None:
    assert [each.position for each in references_in(records(), as_of=2)] == [1, 2]


async def test_rpl_6_too_many_are_refused_and_the_way_out_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payloads, "UNIQUE_MAX", 2)
    with pytest.raises(UsageError, match="as_of_position"):
        references_in(records())


async def test_rpl_6_what_is_too_large_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "BYTES_MAX", 2)
    reader = Reader()
    found = await resolve_payloads(reader, Scope(), references_in(records()))
    assert reader.asked == []
    assert found["payload_resolution_summary"]["resolved"] == 0
