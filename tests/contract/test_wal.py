"""Both logs keep what the log port promises, and do the same for the same requests."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from noetl_ray.clock import SystemClock
from noetl_ray.errors import NoetlError
from noetl_ray.testing.contract_wal import LOG_CHECKS, LogCheck, PurgeableLog, read_all, take
from noetl_ray.testing.samples import sample_record, sample_subject
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.memory import MemoryLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.wal.connection import Connection

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

SUBJECTS = [sample_subject(number, shard=number % 2) for number in range(4)]
FILTERS = ["noetl.>", "noetl.events.0.>", "noetl.events.1.>", SUBJECTS[0], SUBJECTS[3]]


@pytest_asyncio.fixture(params=["memory", "jetstream", "jetstream-leader-reads"])
async def log(
    request: pytest.FixtureRequest, nats_connection: Connection
) -> AsyncIterator[PurgeableLog]:
    made: MemoryLog | JetStreamLog
    if request.param == "memory":
        made = MemoryLog(SystemClock())
    else:
        made = await JetStreamLog.open(nats_connection)
        made._api._leader_reads = request.param == "jetstream-leader-reads"
    yield made
    await made.close()


@pytest.mark.parametrize("check", LOG_CHECKS, ids=lambda check: check.__name__)
async def test_contract(log: PurgeableLog, check: LogCheck) -> None:
    await check(log)


@pytest.mark.parametrize("seed", range(24))
async def test_memory_and_jetstream_do_the_same(nats_connection: Connection, seed: int) -> None:
    """Seeded random requests, right and wrong, have the same outcomes on both."""
    real = await JetStreamLog.open(nats_connection)
    memory = MemoryLog(SystemClock())
    operations = plan(random.Random(seed), 60)
    for number, operation in enumerate(operations):
        outcomes = [await perform(log, operation) for log in (memory, real)]
        assert outcomes[0] == outcomes[1], (number, operation)
    for log in (memory, real):
        await log.close()


def plan(chance: random.Random, length: int) -> list[tuple[Any, ...]]:
    """Requests that depend on the seed alone; versions are guessed around the likely ones."""
    operations: list[tuple[Any, ...]] = []
    fresh = 100
    for _ in range(length):
        subject = chance.choice(SUBJECTS)
        match chance.choices(["append", "purge", "look", "read", "follow"], [12, 1, 2, 2, 1])[0]:
            case "append":
                fresh += 1
                reuse = chance.random() < 0.2
                message_id = chance.randint(101, fresh) if reuse else fresh
                expectation = chance.choice(["right", "right", "wrong", "none", "older", "zero"])
                operations.append(("append", subject, message_id, expectation))
            case "purge":
                operations.append(("purge", subject, chance.choice([0, 0, 1])))
            case "look":
                operations.append(("look", subject, chance.randint(0, length)))
            case kind:
                operations.append((kind, chance.choice(FILTERS), chance.randint(0, length)))
    return operations


async def perform(log: PurgeableLog, operation: tuple[Any, ...]) -> Any:
    """What came of a request, without the wall time and the identity of the log."""
    match operation:
        case ("append", subject, message_id, expectation):
            last = await log.last(subject)
            version = 0 if last is None else last.position
            earlier = [item.position for item in await read_all(log, subject)][-2:-1]
            expected = {
                "right": version,
                "wrong": version + 7,
                "none": None,
                "older": earlier[0] if earlier else 0,
                "zero": 0,
            }[expectation]
            try:
                return await log.append(
                    subject, sample_record(message_id), expected_version=expected
                )
            except NoetlError as error:
                return type(error), error.args
        case ("purge", subject, keep):
            return await log.purge(subject, keep=keep)
        case ("look", subject, position):
            seen = [await log.last(subject), await log.get(position)]
            return [plain(item) for item in seen], await log.last_position()
        case ("read", subject_filter, position):
            return [plain(item) for item in await read_all(log, subject_filter, position)]
        case ("follow", subject_filter, position):
            count = len(await read_all(log, subject_filter, position))
            subscription = await log.subscribe([subject_filter], from_position=position)
            taken = await take(subscription, count)
            assert await subscription.next_batch(5, 0.01) == []
            await subscription.close()
            return [plain(item) for item in taken]
    raise AssertionError(operation)


def plain(item: Any) -> Any:
    return None if item is None else (item.position, item.subject, item.record)
