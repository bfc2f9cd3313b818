"""One object store over several copies: write to all that answer, read from the nearest healthy.

A write counts when one copy has it; a copy that was away lacks it until a repair, and a read that
finds it missing there asks the next. Keys are the same everywhere, so nothing is ever renamed.
Named artifacts and cursors may be read in an older state from a copy that was away; everything else
under a key is the same bytes wherever it lies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from noetl_ray.errors import ObjectMissingError, StoreError, StoreUnavailableError
from noetl_ray.locator.cells import Location, in_order
from noetl_ray.payloads.port import ObjectStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from noetl_ray.clock import Clock
    from noetl_ray.locator.cells import ReplicaState
    from noetl_ray.payloads.port import ObjectInfo

T = TypeVar("T")

SUSPECT_S = 10.0
"""How long a copy that failed is asked last."""
PATIENCE_S = 10.0
"""How long a copy may take to answer while there is another one to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A location and the store that reaches it."""

    location: Location
    store: ObjectStore


class ReplicatedObjects:
    """An object store with several copies."""

    def __init__(
        self, copies: Sequence[Copy], *, region: str, clock: Clock, patience_s: float = PATIENCE_S
    ) -> None:
        """Bind the copies, the primary first; reads prefer those of ``region``."""
        self.kind = copies[0].store.kind
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often which location did what: served, missed, failed, stored, lagged."""
        self._copies = {copy.location.name: copy for copy in copies}
        self._region = region
        self._clock = clock
        self._patience_s = patience_s
        self._failed_at: dict[str, float] = {}

    def for_secrets(self) -> ObjectStore:
        """Itself: nothing is sealed here."""
        return self

    def copies(self) -> Sequence[ObjectStore]:
        """Every copy by itself, the primary first."""
        return [copy.store for copy in self._copies.values()]

    def health(self) -> dict[str, ReplicaState]:
        """What is known of each location."""
        now = self._clock.monotonic()
        return {
            name: "suspect"
            if now - self._failed_at.get(name, now - SUSPECT_S) < SUSPECT_S
            else "healthy"
            for name in self._copies
        }

    async def put(self, key: str, data: bytes) -> None:
        """Write to every copy; raises StoreUnavailableError when none took it."""
        await self._everywhere("stored", lambda store: store.put(key, data))

    async def put_file(self, key: str, path: str) -> None:
        """Like put, from a local file."""
        await self._everywhere("stored", lambda store: store.put_file(key, path))

    async def get(self, key: str) -> bytes:
        """Read from the nearest copy that has it."""
        return await self._first(key, lambda store: store.get(key))

    async def get_file(self, key: str, path: str) -> None:
        """Like get, into a local file."""
        await self._first(key, lambda store: store.get_file(key, path))

    async def _first(self, key: str, read: Callable[[ObjectStore], Awaitable[T]]) -> T:
        missing: ObjectMissingError | None = None
        failure: StoreError | None = None
        for copy, last in self._nearest():
            try:
                data = await self._ask(copy, last, read(copy.store))
            except ObjectMissingError as error:
                missing = error
                self._count(copy, "missed")
            except StoreUnavailableError as error:
                failure = error
            else:
                self._count(copy, "served")
                return data
        # While a copy is away nobody can say that an object is not there.
        raise failure or missing or StoreUnavailableError(f"no copy of {key} could be asked")

    async def has(self, key: str, size_bytes: int) -> bool:
        """Whether an object of so many bytes lies there."""
        found = await self.info(key)
        return found is not None and found.size_bytes == size_bytes

    async def info(self, key: str) -> ObjectInfo | None:
        """Size, or None when no copy has it."""
        failure: StoreError | None = None
        for copy, last in self._nearest():
            try:
                found = await self._ask(copy, last, copy.store.info(key))
            except StoreUnavailableError as error:
                failure = error
                continue
            if found is not None:
                return found
        if failure is not None:
            raise failure
        return None

    async def delete(self, key: str) -> None:
        """Remove everywhere; raises StoreUnavailableError when a copy did not answer."""
        for copy in self._copies.values():
            await self._ask(copy, True, copy.store.delete(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """What any copy has below a folder, by key."""
        found: dict[str, ObjectInfo] = {}
        failure: StoreError | None = None
        answered = False
        for copy, _ in self._nearest():
            try:
                listed = [info async for info in copy.store.list(prefix)]
            except StoreUnavailableError as error:
                self._failed(copy)
                failure = error
                continue
            answered = True
            found = {info.key: info for info in listed} | found
        if failure is not None and not answered:
            raise failure
        for key in sorted(found):
            yield found[key]

    def local_path(self, key: str) -> str | None:
        """A file of any copy that lies on this machine."""
        for copy in self._copies.values():
            path = copy.store.local_path(key)
            if path is not None:
                return path
        return None

    async def close(self) -> None:
        """Close every copy."""
        for copy in self._copies.values():
            await copy.store.close()

    def _nearest(self) -> Sequence[tuple[Copy, bool]]:
        """Copies in the order to be asked, and whether it is the last."""
        locations = [copy.location for copy in self._copies.values()]
        names = [each.name for each in in_order(locations, self._region, self.health())]
        return [(self._copies[name], name == names[-1]) for name in names]

    async def _everywhere(self, what: str, act: Callable[[ObjectStore], Awaitable[None]]) -> None:
        copies = list(self._copies.values())
        done = await asyncio.gather(
            *(self._ask(copy, True, act(copy.store)) for copy in copies), return_exceptions=True
        )
        errors: list[BaseException] = []
        for copy, outcome in zip(copies, done, strict=True):
            if outcome is None:
                self._count(copy, what)
            elif isinstance(outcome, StoreError):
                self._count(copy, "lagged")
                errors.append(outcome)
            else:
                raise outcome
        if len(errors) == len(copies):
            raise errors[0]

    async def _ask(self, copy: Copy, last: bool, call: Awaitable[T]) -> T:
        """Await a call to one copy; while there is another to ask, not for ever."""
        try:
            async with asyncio.timeout(None if last else self._patience_s):
                answer = await call
        except TimeoutError:
            self._failed(copy)
            msg = f"{copy.location.name} did not answer within {self._patience_s} s"
            raise StoreUnavailableError(msg) from None
        except StoreUnavailableError:
            self._failed(copy)
            raise
        self._failed_at.pop(copy.location.name, None)
        return answer

    def _failed(self, copy: Copy) -> None:
        self._failed_at[copy.location.name] = self._clock.monotonic()
        self._count(copy, "failed")

    def _count(self, copy: Copy, what: str) -> None:
        self.counts[copy.location.name, what] += 1
