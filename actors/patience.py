"""Trying again while a store is out of reach: that is no failure of the work that needs it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from noetl_ray.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl_ray.clock import Clock

_log = logging.getLogger(__name__)

STORE_TRIES = 30
PAUSE_MAX_S = 5.0

T = TypeVar("T")


async def patiently(clock: Clock, who: str | None, work: Callable[[], Awaitable[T]]) -> T:
    """Do it, again and again for a while.

    Raises:
        StoreError: it is not worth trying again, or was tried often enough.
    """
    tries = 1
    while True:
        try:
            return await work()
        except StoreError as error:
            if not error.retryable or tries >= STORE_TRIES:
                raise
            _log.warning("%s waits for a store: %s", who, error)
            await clock.sleep(min(0.1 * 2**tries, PAUSE_MAX_S))
            tries += 1
