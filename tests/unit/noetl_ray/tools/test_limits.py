from __future__ import annotations

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.limits import RETRY_AFTER_MAX_S, after_retry_after, time_limit_s


@pytest.mark.parametrize(
    ("config", "context_s", "default_s", "expected"),
    [
        ({}, None, None, None),
        ({}, None, 60.0, 60.0),
        ({}, 5.0, 60.0, 5.0),
        ({"timeout": 2}, None, 60.0, 2.0),
        ({"timeout_seconds": "3", "timeout": 9}, None, None, 3.0),
        ({"timeout": 90}, 5.0, None, 5.0),
        ({"timeout": ""}, None, None, None),
        ({"timeout": {"connect": 5, "read": 15}}, None, 60.0, 20.0),
    ],
)
def test_the_shortest_limit_wins(config, context_s, default_s, expected):
    assert time_limit_s(config, context_s, default_s) == expected


@pytest.mark.parametrize("bad", ["soon", 0, -1, [1], float("nan"), {"read": "x"}, {}])
def test_a_limit_that_is_none_is_refused(bad):
    with pytest.raises(ToolError, match="timeout must be"):
        time_limit_s({"timeout": bad}, None)


@pytest.mark.parametrize(
    ("delay", "error", "expected"),
    [
        (2.0, None, 2.0),
        (2.0, {}, 2.0),
        (2.0, {"retry_after": 7}, 7.0),
        (9.0, {"retry_after": 7}, 9.0),
        (0.0, {"retry_after": 86_400}, RETRY_AFTER_MAX_S),
        (1.0, {"retry_after": -3}, 1.0),
        (1.0, {"retry_after": True}, 1.0),
        (1.0, {"retry_after": float("nan")}, 1.0),
        (1.0, {"retry_after": "soon"}, 1.0),
    ],
)
def test_a_retry_waits_as_long_as_it_was_asked_to(delay, error, expected):
    assert after_retry_after(delay, error) == expected
