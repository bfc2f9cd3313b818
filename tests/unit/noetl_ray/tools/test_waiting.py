"""The kinds that wait: what they ask for, what they give, what they refuse."""

from __future__ import annotations

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.callback import CallbackTool
from noetl_ray.tools.port import Parked, ToolContext
from noetl_ray.tools.wait import WaitTool
from noetl_ray.tools.waiting import nobody_answered, seconds_of, settled, time_over


async def nobody(_name):
    raise AssertionError


def context(timeout_s=None):
    return ToolContext(
        execution_id=1,
        step="s",
        task="t",
        attempt=1,
        idempotency_key="k",
        timeout_s=timeout_s,
        credential=nobody,
        log=lambda _s, _l: None,
    )


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90), (0.5, 0.5), ("90", 90), ("90s", 90), ("15m", 900), ("1h30m", 5400), ("2d", 172_800)],
)
def test_spans(given, seconds):
    assert seconds_of(given, "x") == seconds


@pytest.mark.parametrize("given", [-1, "soon", "", None, True, "1x", 1e12, "nan", [1]])
def test_what_is_no_span_is_refused(given):
    with pytest.raises(ToolError, match="must be seconds or a text like 90s"):
        seconds_of(given, "'for'")


@pytest.mark.asyncio
async def test_a_wait_asks_then_says_when_it_was_over():
    with pytest.raises(Parked) as asked:
        await WaitTool().run({"for": "2m", "message": "the bank"}, context())
    assert asked.value.wait == {"kind": "timer", "after_s": 120, "about": "the bank"}
    wait = settled(asked.value.wait, "t", 1_767_225_600_000)
    assert (wait["until_ms"], wait["task"]) == (1_767_225_720_000, "t")
    assert time_over(wait).data == {"status": "ok", "until": "2026-01-01T00:02:00.000Z"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("until", "ms"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("2026-01-01 01:00:00+01:00", 1_767_225_600_000),
        ("2026-01-01", 1_767_225_600_000),
        (1_767_225_600, 1_767_225_600_000),
    ],
)
async def test_moments(until, ms):
    with pytest.raises(Parked) as asked:
        await WaitTool().run({"until": until}, context())
    assert asked.value.wait["until_ms"] == ms


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "needs 'for' or 'until', one of them"),
        ({"for": 1, "until": "2026-01-01"}, "one of them"),
        ({"until": "tomorrow"}, "must be a time like"),
        ({"until": -5}, "must be a time like"),
        ({"for": "a while"}, "'for' must be seconds"),
    ],
)
async def test_a_wait_refuses(config, words):
    with pytest.raises(ToolError, match=words):
        await WaitTool().run(config, context())


@pytest.mark.asyncio
async def test_a_callback_asks_for_an_answer_until_a_time():
    with pytest.raises(Parked) as asked:
        await CallbackTool().run({"message": "order 7"}, context(timeout_s=60))
    assert asked.value.wait == {"kind": "callback", "after_s": 60, "about": "order 7"}
    with pytest.raises(Parked) as asked:
        await CallbackTool().run({}, context())
    assert asked.value.wait["after_s"] == 7 * 86_400
    error = nobody_answered({"until_ms": 1_767_225_600_000})
    assert error.message == "nobody answered until 2026-01-01T00:00:00.000Z"
    assert (error.kind, error.retryable) == ("timeout", True)
