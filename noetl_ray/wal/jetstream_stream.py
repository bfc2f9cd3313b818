"""The streams this project keeps: how they are set up, made, and checked when they exist.

Owns the configuration of the event stream and of the task-log stream. Refuses to change what an
operator set up in a way that matters; only the duplicate window follows the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.errors import ConfigError, LogError, NotFoundError
from noetl_ray.wal.subjects import EVENTS_ROOT, SYSTEM_ROOT

if TYPE_CHECKING:
    from noetl_ray.config.settings import Durability
    from noetl_ray.wal.jetstream_api import StreamApi

LOGS_ROOT = "noetl.logs"
LOGS_BYTES_MAX = 1024**3
LOGS_AGE_MAX_S = 7 * 24 * 3600
REPLICAS = 3

_NS = 1_000_000_000
_STREAM_KEY = "event_store.stream"
_MUST_MATCH = (
    "retention",
    "storage",
    "discard",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msgs_per_subject",
    "allow_direct",
)


def events_config(stream: str, durability: Durability, duplicate_window_s: int) -> dict[str, Any]:
    """The event stream: nothing is ever discarded by age or size (P7)."""
    return {
        "name": stream,
        "description": "noetl-ray: the write-ahead log",
        "subjects": [f"{EVENTS_ROOT}.>", f"{SYSTEM_ROOT}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "allow_direct": True,
        "num_replicas": REPLICAS if durability == "replicated" else 1,
        "duplicate_window": duplicate_window_s * _NS,
    }


def logs_config(stream: str) -> dict[str, Any]:
    """The task-log stream: bounded, the oldest lines go first."""
    return {
        "name": stream,
        "description": "noetl-ray: what tasks printed",
        "subjects": [f"{LOGS_ROOT}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_msgs": -1,
        "max_bytes": LOGS_BYTES_MAX,
        "max_age": LOGS_AGE_MAX_S * _NS,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "allow_direct": True,
        "num_replicas": 1,
        "duplicate_window": _NS,
    }


async def ensure_stream(api: StreamApi, wanted: dict[str, Any]) -> None:
    """Make the stream, or check the one that is there.

    Raises:
        ConfigError: the stream exists with a set-up that contradicts ``wanted``, or cannot be made.
    """
    name = wanted["name"]
    try:
        info = await api.call(f"STREAM.INFO.{name}")
    except NotFoundError:
        try:
            # Two processes may start at once: the same configuration twice is no error.
            await api.call(f"STREAM.CREATE.{name}", wanted)
        except LogError as error:
            if error.retryable:
                raise
            raise ConfigError(_STREAM_KEY, name, error.message) from None
        return
    found = info["config"]
    _check(name, found, wanted)
    if found.get("duplicate_window") != wanted["duplicate_window"]:
        changed = {**found, "duplicate_window": wanted["duplicate_window"]}
        await api.call(f"STREAM.UPDATE.{name}", changed)


def _check(name: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    problems = [
        f"{key} is {found.get(key)!r}, not {wanted[key]!r}"
        for key in _MUST_MATCH
        if found.get(key) != wanted[key]
    ]
    missing = sorted(set(wanted["subjects"]) - set(found.get("subjects") or ()))
    if missing:
        problems.append(f"subjects lack {', '.join(missing)}")
    if found.get("num_replicas", 1) < wanted["num_replicas"]:
        problems.append(f"num_replicas is {found.get('num_replicas', 1)}, not {REPLICAS}")
    if problems:
        reason = "the stream exists with another set-up: " + "; ".join(problems)
        raise ConfigError(_STREAM_KEY, name, f"{reason}; choose another name or change the stream")
