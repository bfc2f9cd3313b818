"""Every error of the driver is mapped, and to the right half of the tree."""

from __future__ import annotations

import inspect

import asyncpg
import pytest

from noetl_ray.errors import StoreError, StoreUnavailableError
from noetl_ray.readmodel.postgres_errors import (
    REFUSED_CLASSES,
    RETRYABLE_CLASSES,
    map_error,
    store_errors,
)

BOOM = "boom"
DRIVER = [
    kind
    for _, kind in inspect.getmembers(asyncpg.exceptions, inspect.isclass)
    if issubclass(kind, Exception) and not issubclass(kind, Warning)
]
SERVER = [kind for kind in DRIVER if getattr(kind, "sqlstate", None)]


@pytest.mark.parametrize("kind", SERVER, ids=lambda kind: kind.__name__)
def test_every_class_of_the_server_is_in_the_table(kind):
    assert (kind.sqlstate[:2] in RETRYABLE_CLASSES) != (kind.sqlstate[:2] in REFUSED_CLASSES)


@pytest.mark.parametrize("kind", DRIVER, ids=lambda kind: kind.__name__)
def test_nothing_of_the_driver_gets_out(kind):
    with pytest.raises(StoreError), store_errors():
        raise kind(BOOM)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (asyncpg.CannotConnectNowError("starting"), StoreUnavailableError),
        (asyncpg.AdminShutdownError("stop"), StoreUnavailableError),
        (asyncpg.DeadlockDetectedError("lock"), StoreUnavailableError),
        (asyncpg.TooManyConnectionsError("full"), StoreUnavailableError),
        (asyncpg.QueryCanceledError("slow"), StoreUnavailableError),
        (asyncpg.ReadOnlySQLTransactionError("standby"), StoreUnavailableError),
        (asyncpg.ConnectionDoesNotExistError("gone"), StoreUnavailableError),
        (asyncpg.InterfaceError("pool is closed"), StoreUnavailableError),
        (ConnectionRefusedError("no"), StoreUnavailableError),
        (FileNotFoundError("no socket"), StoreUnavailableError),
        (TimeoutError(), StoreUnavailableError),
        (asyncpg.UndefinedTableError("no tables yet"), StoreUnavailableError),
        (asyncpg.UndefinedColumnError("what"), StoreError),
        (asyncpg.UniqueViolationError("twice"), StoreError),
        (asyncpg.InvalidPasswordError("who"), StoreError),
        (asyncpg.DataError("odd"), StoreError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_what_may_be_tried_again(error, ours):
    assert type(map_error(error)) is ours


def test_our_own_errors_pass_unchanged():
    original = StoreError("ours")
    with pytest.raises(StoreError) as caught, store_errors():
        raise original
    assert caught.value is original
