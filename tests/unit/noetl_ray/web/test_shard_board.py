"""Owners of shards as the gateway tells them: rows from the read model, live words from hints."""

from __future__ import annotations

import pytest

from actors.messages import ShardsWord, encode
from noetl_ray.readmodel.records import ProjectionBatch
from noetl_ray.readmodel.shards import ShardRow
from noetl_ray.testing.gateway_kit import GatewayKit
from noetl_ray.testing.readmodel_samples import mark
from noetl_ray.web.shard_board import ShardBoard


class Time:
    """A clock that is set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def word(owner: str, **shards: tuple[int, int]) -> bytes:
    return encode(ShardsWord(owner=owner, shards={int(n[1:]): said for n, said in shards.items()}))


def test_a_later_epoch_wins_and_silence_ends_a_word() -> None:
    clock = Time()
    board = ShardBoard(clock)  # type: ignore[arg-type]
    board.hear(word("a/1", s0=(1, 5), s1=(1, 0)))
    board.hear(word("b/1", s1=(2, 700)))
    board.hear(word("a/1", s1=(1, 0)))
    board.hear(b"junk")
    board.hear(b'{"owner": "x", "shards": {"one": [1, 2]}}')
    assert board.live()[0] == {"owner": "a/1", "epoch": 1, "checkpoint_age_ms": 5}
    assert board.live()[1] == {"owner": "b/1", "epoch": 2, "checkpoint_age_ms": 700}
    clock.now = 11
    assert board.live() == {}
    board.hear(word("a/2", s1=(1, 3)))
    assert board.live()[1]["owner"] == "a/2", "a lost table may begin epochs anew"


@pytest.mark.asyncio
async def test_prj_6_the_api_and_the_metrics_say_who_owns_a_shard() -> None:
    kit = GatewayKit()
    row = ShardRow(
        shard_id=3,
        position=2,
        status="leased",
        owner_runtime_id="c1/hot/0",
        epoch=4,
        checkpoint_event_id=2**60,
        checkpoint_position=1,
    )
    await kit.model.commit(ProjectionBatch(checkpoints=(mark(2),), shards=(row,)))
    assert kit.deps.shards is not None
    kit.deps.shards.hear(word("c1/hot/0/i1", s3=(4, 250)))
    async with kit.http() as http:
        (told,) = (await http.get("/api/shards")).json()["shards"]
        text = (await http.get("/metrics")).text
    assert (told["shard_id"], told["epoch"]) == (3, 4)
    assert told["checkpoint_event_id"] == str(2**60)
    assert told["live"] == {"owner": "c1/hot/0/i1", "epoch": 4, "checkpoint_age_ms": 250}
    assert 'noetl_shard_owner{instance="c1/hot/0/i1",shard="3"} 1.0' in text
    assert 'noetl_checkpoint_age_ms{shard="3"} 250.0' in text
