"""What commands print: whole lines, redacted, bounded, in small batches."""

from __future__ import annotations

from typing import Any

import pytest

from actors import logbook as module
from actors.logbook import FLUSH_S, LINE_CHARS_MAX, Logbook
from actors.messages import Offer
from noetl_ray.events.types import EventType
from noetl_ray.results.redact import Redactor
from noetl_ray.testing.samples import sample_event
from noetl_ray.wal.tasklog import LogLine
from tests.unit.actors.rig import Rig, simulated

SECRET = "swordfish-42"


def logbook_of(rig: Rig) -> Logbook:
    issued = sample_event(
        event_type=EventType.COMMAND_ISSUED,
        payload={"step": "a", "visit": 3, "playbook_digest": "d"},
        command_id="7-a-3",
        idempotency_key="7-a-3/issued",
    )
    offer = Offer(
        issued=issued,
        shard=1,
        version=0,
        attempt=1,
        incarnation="i1",
        prev_event_id=1,
        lease_ms=1,
        sent_ms=0,
    )
    return Logbook(rig.tasklog, rig.clock, offer, rig.scope, lambda: Redactor({SECRET}))


def batches(rig: Rig) -> list[list[LogLine]]:
    return [list(batch.lines) for batch in rig.tasklog._batches]


@simulated
async def test_lines_say_where_they_come_from(rig: Rig) -> None:
    book = logbook_of(rig)
    book.writer("task", 2)("stderr", "hello")
    await book.close()
    ((line,),) = batches(rig)
    assert (line.execution_id, line.step, line.visit) == (7, "a", 3)
    assert (line.task, line.attempt, line.stream, line.text) == ("task", 2, "stderr", "hello")
    assert line.time_ms == rig.clock.now_ms()


@simulated
async def test_lines_that_come_together_go_together_soon(rig: Rig) -> None:
    write = logbook_of(rig).writer("t", 1)
    write("stdout", "one")
    write("stdout", "two")
    await rig.clock.sleep(FLUSH_S / 2)
    assert batches(rig) == []
    write("stdout", "three")
    await rig.clock.sleep(FLUSH_S)
    write("stdout", "four")
    await rig.clock.sleep(FLUSH_S * 2)
    assert [[line.text for line in b] for b in batches(rig)] == [["one", "two", "three"], ["four"]]


@simulated
async def test_closing_hands_over_the_rest_and_nothing_twice(rig: Rig) -> None:
    book = logbook_of(rig)
    book.writer("t", 1)("stdout", "one")
    await book.close()
    await book.close()
    await rig.clock.sleep(5)
    assert [line.text for b in batches(rig) for line in b] == ["one"]


@simulated
async def test_sec_1_a_known_secret_is_never_printed_not_even_where_a_line_is_cut(rig: Rig) -> None:
    book = logbook_of(rig)
    write = book.writer("t", 1)
    write("stdout", f"password={SECRET}!")
    write("stdout", "x" * (LINE_CHARS_MAX - 5) + SECRET)
    await book.close()
    first, second = (line.text for b in batches(rig) for line in b)
    assert first == "password=***!"
    assert "sword" not in second
    assert len(second) <= LINE_CHARS_MAX


@simulated
async def test_chatter_is_bounded_and_the_cut_is_said(rig: Rig) -> None:
    book = logbook_of(rig)
    write = book.writer("t", 1)
    for number in range(20):
        write("stdout", str(number))
    await book.close()
    texts = [line.text for b in batches(rig) for line in b]
    assert texts == ["0", "1", "2", "3", "… more than 5 lines; the rest is not kept"]


@pytest.fixture(autouse=True)
def _few_lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if "bounded" in request.node.name:
        monkeypatch.setattr(module, "LINES_MAX", 5)
