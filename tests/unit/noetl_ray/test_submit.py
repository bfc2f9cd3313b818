"""Requests are appended once, found again by their key, and pinned to what was registered."""

from __future__ import annotations

import asyncio

import pytest

from noetl_ray.clock import SystemClock
from noetl_ray.dsl.parse import parsed_playbook
from noetl_ray.errors import (
    ConflictError,
    NotFoundError,
    PlaybookError,
    UsageError,
)
from noetl_ray.events.envelope import check_envelope, checksum_of
from noetl_ray.events.types import AggregateType, EventType
from noetl_ray.ids import SnowflakeIds
from noetl_ray.locator.keys import Placement
from noetl_ray.locator.shard import shard_of
from noetl_ray.payloads.content import get_payload
from noetl_ray.payloads.memory import MemoryObjects
from noetl_ray.scope import Scope
from noetl_ray.submit import (
    Submission,
    SubmitPorts,
    Submitted,
    cancel_execution,
    catalog,
    find_playbook,
    load_playbook,
    register_playbook,
    rerun_execution,
    submit_execution,
    submit_many,
)
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.memory import MemoryLog
from noetl_ray.wal.subjects import (
    control_subject,
    inbox_subject,
    keyed_submit_subject,
    parse_event_subject,
    submit_subject,
)

HOME = Scope()
OTHER = Scope(tenant_id="other")


def text(path="t/hello", greeting="hi"):
    return f"""
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: hello, path: {path}}}
workload: {{greeting: {greeting}, nested: {{a: 1, b: 2}}}}
workflow:
  - step: start
    tool: {{kind: noop}}
"""


def make_ports(log=None, objects=None, generator=1):
    clock = SystemClock()
    return SubmitPorts(
        log=log or MemoryLog(clock),
        objects=objects or MemoryObjects(),
        placement=Placement(),
        mint=SnowflakeIds(generator, clock).mint,
        clock=clock,
        producer="noetl://tenant/default/org/default/gateway/test",
    )


async def all_records(ports):
    return [recorded async for recorded in ports.log.read("noetl.>")]


async def request_of(ports, execution_id, key=None):
    shard = ports.shard(HOME, "default", execution_id)
    subject = (
        submit_subject(shard, HOME, execution_id)
        if key is None
        else keyed_submit_subject(shard, HOME, key)
    )
    return (await ports.log.last(subject)).record.events[0]


@pytest.mark.asyncio
async def test_registering_the_same_text_again_changes_nothing():
    ports = make_ports()
    first = await register_playbook(ports, HOME, text())
    again = await register_playbook(make_ports(ports.log, ports.objects, 2), HOME, text())
    assert (first.version, first.created) == (1, True)
    assert (again.version, again.created, again.digest) == (1, False, first.digest)
    second = await register_playbook(ports, HOME, text(greeting="ho"))
    third = await register_playbook(ports, HOME, text())
    assert (second.version, third.version) == (2, 3)
    assert third.digest == first.digest
    for recorded in await all_records(ports):
        event = recorded.record.events[0]
        check_envelope(event)
        assert event.envelope_checksum == checksum_of(event)
        assert event.payload_ref.sha256 == event.payload["digest"]
    links = [r.record.events[0].prev_event_id for r in await all_records(ports)]
    assert links == [None, first.event_id, second.event_id]


@pytest.mark.asyncio
async def test_a_bad_playbook_leaves_no_trace():
    ports = make_ports()
    with pytest.raises(PlaybookError):
        await register_playbook(ports, HOME, "kind: Playbook")
    assert await all_records(ports) == []


class CountingObjects(MemoryObjects):
    """Counts what is asked of it."""

    def __init__(self):
        super().__init__()
        self.asked = 0

    async def info(self, key):
        self.asked += 1
        return await super().info(key)


@pytest.mark.asyncio
async def test_a_text_is_parsed_and_stored_once(monkeypatch):
    parsed = []

    def parse(source, *more):
        parsed.append(source)
        return parsed_playbook(source, *more)

    monkeypatch.setattr(catalog, "parsed_playbook", parse)
    ports = make_ports(objects=CountingObjects())
    for _ in range(3):
        await submit_execution(ports, HOME, "default", Submission(source=text()))
    assert len(parsed) == ports.objects.asked == 1
    await submit_execution(ports, HOME, "default", Submission(source=text(greeting="ho")))
    again = await register_playbook(ports, HOME, text())
    assert (len(parsed), again.version, again.created) == (2, 3, True)


@pytest.mark.asyncio
async def test_concurrent_registrations_get_versions_of_their_own():
    ports = make_ports()
    entries = await asyncio.gather(
        *(register_playbook(ports, HOME, text(greeting=f"g{n}")) for n in range(8))
    )
    assert sorted(entry.version for entry in entries) == list(range(1, 9))


@pytest.mark.asyncio
async def test_versions_and_digests_are_found():
    ports = make_ports()
    entries = [await register_playbook(ports, HOME, text(greeting=f"g{n}")) for n in range(4)]
    for entry in entries:
        found = await find_playbook(ports, HOME, "t/hello", version=entry.version)
        assert found.digest == entry.digest
        by_digest = await find_playbook(ports, HOME, "t/hello", digest=entry.digest)
        assert by_digest.version == entry.version
    assert (await find_playbook(ports, HOME, "t/hello")).version == 4
    with pytest.raises(NotFoundError, match="newest version is 4"):
        await find_playbook(ports, HOME, "t/hello", version=9)
    with pytest.raises(NotFoundError, match="register its file first"):
        await find_playbook(ports, OTHER, "t/hello")
    fresh = make_ports(ports.log, ports.objects)
    playbook = await load_playbook(fresh, HOME, entries[1].digest)
    assert playbook.workload["greeting"] == "g1"


@pytest.mark.asyncio
async def test_a_submit_pins_playbook_and_merged_workload():
    ports = make_ports()
    entry = await register_playbook(ports, HOME, text())
    workload = {"nested": {"b": 3}, "execution_id": 77}
    asked = Submission(path="t/hello", workload=workload)
    found = await submit_execution(ports, HOME, "default", asked)
    await register_playbook(ports, HOME, text(greeting="later"))
    event = await request_of(ports, found.execution_id)
    assert event.event_type is EventType.EXECUTION_REQUESTED
    assert event.aggregate_type is AggregateType.SUBMISSION
    assert event.payload["playbook"] == entry.pinned()
    assert event.payload["workload"] == {
        "greeting": "hi",
        "nested": {"a": 1, "b": 3},
        "execution_id": 77,
    }
    assert event.execution_id == found.execution_id != 77
    assert (found.duplicate, found.warnings) == (False, ())


@pytest.mark.asyncio
async def test_a_key_gives_the_first_execution_back():
    ports = make_ports()
    await register_playbook(ports, HOME, text())
    asked = Submission(path="t/hello", workload={"n": 1}, idempotency_key="order-7")
    first = await submit_execution(ports, HOME, "default", asked)
    # A newer version does not turn a retry into another request.
    await register_playbook(ports, HOME, text(greeting="later"))
    later = make_ports(ports.log, ports.objects, 9)
    second = await submit_execution(later, HOME, "default", asked)
    assert (second.execution_id, second.duplicate) == (first.execution_id, True)
    subject = next(
        parse_event_subject(r.subject)
        for r in await all_records(ports)
        if r.record.events[0].event_type is EventType.EXECUTION_REQUESTED
    )
    assert subject.shard == shard_of("default", "default", "order-7")
    assert subject.shard == shard_of("default", "default", first.execution_id)
    other = await submit_execution(
        ports, HOME, "default", Submission(path="t/hello", idempotency_key="order-8")
    )
    assert other.execution_id != first.execution_id


@pytest.mark.asyncio
async def test_a_key_stands_for_one_request():
    ports = make_ports()
    await register_playbook(ports, HOME, text())
    await register_playbook(ports, HOME, text(path="t/other"))
    key = {"idempotency_key": "k"}
    await submit_execution(ports, HOME, "default", Submission(path="t/hello", **key))
    with pytest.raises(ConflictError, match="another workload"):
        await submit_execution(
            ports, HOME, "default", Submission(path="t/hello", workload={"n": 2}, **key)
        )
    for asked in (
        Submission(path="t/other", **key),
        Submission(source=text(greeting="new"), **key),
    ):
        with pytest.raises(ConflictError, match="another playbook"):
            await submit_execution(ports, HOME, "default", asked)
    same_text = await submit_execution(ports, HOME, "default", Submission(source=text(), **key))
    assert same_text.duplicate


@pytest.mark.asyncio
async def test_concurrent_submits_of_one_key_make_one_execution():
    ports = make_ports()
    await register_playbook(ports, HOME, text())
    asked = Submission(path="t/hello", idempotency_key="k")
    found = await submit_many(ports, HOME, "default", [asked] * 20)
    assert len({each.execution_id for each in found}) == 1
    assert sorted(each.duplicate for each in found) == [False] + [True] * 19


@pytest.mark.asyncio
async def test_many_keep_their_order_and_their_errors():
    ports = make_ports()
    await register_playbook(ports, HOME, text())
    asked = [Submission(path="t/hello"), Submission(path="t/none"), Submission(path="t/hello")]
    first, missing, third = await submit_many(ports, HOME, "default", asked)
    assert isinstance(first, Submitted)
    assert isinstance(missing, NotFoundError)
    assert isinstance(third, Submitted)
    assert first.execution_id != third.execution_id


class CountingLog(MemoryLog):
    """Counts look-ups of last records."""

    def __init__(self):
        super().__init__(SystemClock())
        self.looks = 0

    async def last(self, subject):
        self.looks += 1
        return await super().last(subject)


@pytest.mark.asyncio
async def test_a_batch_looks_each_playbook_up_once():
    ports = make_ports(CountingLog())
    entry = await register_playbook(ports, HOME, text())
    ports.log.looks = 0
    asked = [Submission(path="t/hello")] * 50 + [Submission(path="t/none")] * 50
    found = await submit_many(ports, HOME, "default", asked)
    assert ports.log.looks == 2
    assert {each.playbook["digest"] for each in found[:50]} == {entry.digest}
    assert len({each.execution_id for each in found[:50]}) == 50
    assert all(isinstance(each, NotFoundError) for each in found[50:])


@pytest.mark.asyncio
async def test_a_large_workload_lies_outside_the_log():
    ports = make_ports()
    workload = {"rows": ["x" * 100] * 1000}
    found = await submit_execution(
        ports, HOME, "default", Submission(source=text(), workload=workload)
    )
    event = await request_of(ports, found.execution_id)
    assert event.payload["workload"] == {}
    assert event.meta["workload_externalized"] is True
    data = await get_payload(ports.objects, ports.placement, HOME, event.payload_ref.uri)
    assert b'"greeting":"hi"' in data
    again = await rerun_execution(ports, HOME, found.execution_id)
    assert (await request_of(ports, again.execution_id)).payload_ref == event.payload_ref


@pytest.mark.asyncio
async def test_rerun_takes_the_same_version_and_workload():
    ports = make_ports()
    await register_playbook(ports, HOME, text())
    asked = Submission(path="t/hello", workload={"n": 1}, idempotency_key="k")
    first = await submit_execution(ports, HOME, "default", asked)
    await register_playbook(ports, HOME, text(greeting="later"))
    with pytest.raises(NotFoundError):
        await rerun_execution(ports, HOME, first.execution_id)
    again = await rerun_execution(ports, HOME, first.execution_id, idempotency_key="k")
    old, new = (
        await request_of(ports, first.execution_id, "k"),
        await request_of(ports, again.execution_id),
    )
    assert new.payload == old.payload
    assert again.execution_id != first.execution_id


@pytest.mark.asyncio
async def test_cancel_waits_in_the_inbox_and_links_to_what_was_last():
    ports = make_ports()
    found = await submit_execution(ports, HOME, "default", Submission(source=text()))
    execution_id = found.execution_id
    shard = ports.shard(HOME, "default", execution_id)
    await cancel_execution(ports, HOME, execution_id, "enough")
    control = control_subject(shard, HOME, execution_id)
    await ports.log.append(control, sample_record(501, events=2), expected_version=0)
    await cancel_execution(ports, HOME, execution_id, "again")
    inbox = [r async for r in ports.log.read(inbox_subject(shard, HOME, execution_id))]
    request = await request_of(ports, execution_id)
    events = [recorded.record.events[0] for recorded in inbox]
    assert [event.prev_event_id for event in events] == [request.event_id, 502]
    assert events[0].payload == {"reason": "enough"}
    ended = sample_record(
        601, event_type=EventType.PLAYBOOK_COMPLETED, payload={"final_step": "start"}
    )
    await ports.log.append(control, ended, expected_version=None)
    with pytest.raises(ConflictError, match=r"playbook\.completed"):
        await cancel_execution(ports, HOME, execution_id, "late")


@pytest.mark.asyncio
async def test_cancel_of_nothing_and_of_others_is_not_found():
    ports = make_ports()
    found = await submit_execution(
        ports, HOME, "default", Submission(source=text(), idempotency_key="k")
    )
    with pytest.raises(NotFoundError):
        await cancel_execution(ports, HOME, 12345, "no")
    with pytest.raises(NotFoundError):
        await cancel_execution(ports, OTHER, found.execution_id, "no", idempotency_key="k")
    await cancel_execution(ports, HOME, found.execution_id, "yes", idempotency_key="k")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "asked",
    [
        Submission(),
        Submission(path="a", source="b"),
        Submission(path="a", idempotency_key=""),
        Submission(path="a", idempotency_key="k" * 600),
    ],
)
async def test_contradictions_are_refused(asked):
    with pytest.raises(UsageError):
        await submit_execution(make_ports(), HOME, "default", asked)


@pytest.mark.asyncio
async def test_credentials_in_a_workload_are_warned_of():
    ports = make_ports()
    workload = {"db": {"password": "s3cret-value"}}
    found = await submit_execution(
        ports, HOME, "default", Submission(source=text(), workload=workload)
    )
    assert "credential add" in found.warnings[0]
    assert "s3cret-value" not in found.warnings[0]


@pytest.mark.asyncio
async def test_a_workload_without_json_form_is_refused():
    with pytest.raises(UsageError, match="no JSON form"):
        await submit_execution(
            make_ports(), HOME, "default", Submission(source=text(), workload={"x": object()})
        )
