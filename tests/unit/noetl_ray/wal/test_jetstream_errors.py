"""Every error of the driver has a place in our tree."""

from __future__ import annotations

import inspect

import nats.errors
import nats.js.errors
import pytest

from noetl_ray.errors import (
    ConfigError,
    InternalError,
    LogError,
    LogUnavailableError,
    NoetlError,
    NotFoundError,
)
from noetl_ray.wal.jetstream_errors import from_answer, from_nats, is_mapped

DRIVER_ERRORS = sorted(
    {
        member
        for module in (nats.errors, nats.js.errors)
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Exception) and member.__module__ == module.__name__
    },
    key=lambda kind: (kind.__module__, kind.__name__),
)


@pytest.mark.parametrize(
    "kind", DRIVER_ERRORS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}"
)
def test_every_driver_error_is_mapped(kind: type[Exception]) -> None:
    assert is_mapped(kind), f"give {kind.__name__} a place in the table"
    error = kind.__new__(kind)
    ours = from_nats(_filled(error))
    assert isinstance(ours, NoetlError)
    assert not isinstance(ours, nats.errors.Error)


def test_the_walk_finds_the_errors() -> None:
    assert len(DRIVER_ERRORS) > 50


def test_unknown_ones_are_our_bug_and_our_own_pass() -> None:
    assert isinstance(from_nats(ValueError("x")), InternalError)
    ours = NotFoundError("x")
    assert from_nats(ours) is ours
    assert isinstance(from_nats(ConnectionRefusedError("no")), LogUnavailableError)
    assert isinstance(from_nats(nats.errors.AuthorizationError()), ConfigError)

    class Newer(nats.js.errors.BucketNotFoundError):
        pass

    assert isinstance(from_nats(Newer()), NotFoundError)


def test_answers_of_the_server() -> None:
    assert from_answer("x", 503, 10008, "busy").retryable
    assert from_answer("x", 429, 10167, "too many requests").retryable
    assert isinstance(from_answer("x", 404, 10059, "stream not found"), NotFoundError)
    for code, err_code in ((400, 10025), (500, 10074)):
        error = from_answer("x", code, err_code, "bad")
        assert isinstance(error, LogError)
        assert not error.retryable


def _filled(error: Exception) -> Exception:
    """Give an error built without its constructor the fields its text reads."""
    for name in ("subject", "reply", "sid", "sub", "key", "_msg", "code", "err_code", "message"):
        setattr(error, name, None)
    for name in ("description", "stream", "seq", "stream_resume_sequence"):
        setattr(error, name, None)
    error.last_consumer_sequence = error.consumer_sequence = 0  # type: ignore[attr-defined]
    return error
