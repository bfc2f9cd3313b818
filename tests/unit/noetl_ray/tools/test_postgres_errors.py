from __future__ import annotations

import socket
import ssl

import asyncpg
import pytest

from noetl_ray.tools.postgres_errors import map_error, state_kind

KINDS = {
    "auth",
    "db_connection",
    "db_constraint",
    "db_deadlock",
    "db_timeout",
    "not_found",
    "parse",
    "schema",
    "unknown",
}
DRIVER_ERRORS = sorted(
    {
        value
        for value in vars(asyncpg.exceptions).values()
        if isinstance(value, type) and issubclass(value, Exception)
    },
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", DRIVER_ERRORS, ids=lambda cls: cls.__name__)
def test_every_error_of_the_driver_has_a_kind(cls):
    error = map_error(cls("went wrong"), "SQL error")
    assert error.kind in KINDS
    assert error.details["exception_type"] == cls.__name__
    assert str(error).startswith("SQL error: ")
    state = getattr(cls, "sqlstate", None)
    if state:
        assert error.details["sqlstate"] == error.details["pg_code"] == state
        assert (error.kind, error.retryable) == state_kind(state)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("40001", ("db_deadlock", True)),
        ("40P01", ("db_deadlock", True)),
        ("23505", ("db_constraint", False)),
        ("08006", ("db_connection", True)),
        ("57014", ("db_timeout", True)),
        ("57P01", ("db_connection", True)),
        ("28P01", ("auth", False)),
        ("42P01", ("schema", False)),
        ("42601", ("parse", False)),
        ("XX000", ("unknown", False)),
    ],
)
def test_states_have_the_kinds_of_the_table(state, expected):
    assert state_kind(state) == expected


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (ConnectionRefusedError(111, "refused"), "db_connection", True),
        (socket.gaierror(-2, "no such host"), "db_connection", True),
        (TimeoutError(), "db_connection", True),
        (ssl.SSLError("bad certificate"), "db_connection", False),
        (asyncpg.InterfaceError("connection is closed"), "db_connection", True),
        (asyncpg.InterfaceError("the server expects 1 argument"), "unknown", False),
    ],
)
def test_errors_below_the_driver(error, kind, retryable):
    mapped = map_error(error, "cannot connect")
    assert (mapped.kind, mapped.retryable) == (kind, retryable)


def test_no_message_holds_the_password_or_the_connection_string():
    told = map_error(OSError("login as u with hunter2 failed"), "x", ("hunter2",))
    assert "hunter2" not in str(told)
    bad = asyncpg.ClientConfigurationError("invalid DSN: postgres://u:hunter2@h")
    assert "hunter2" not in str(map_error(bad, "x"))
