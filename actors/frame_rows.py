"""The rows of one frame: claimed anew, or those an earlier holder claimed (P21).

Rows are durable before the claim commits, and the frame's start, which only its holder can write,
says where: few rows lie in the start itself, more of them, or secret ones, in an object written
before it. So whoever takes the frame over finds either rows that are the frame's, or a claim that
was rolled back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from noetl_ray.errors import ObjectMissingError, ToolError
from noetl_ray.events.canonical import canonical_json, sha256_hex, to_jsonable
from noetl_ray.locator.keys import result_key
from noetl_ray.tools.cursor import Claimed, CursorClaim, CursorDriver, Row, cursor_driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.messages import Offer
    from noetl_ray.clock import Clock
    from noetl_ray.engine.policy import FramePolicy
    from noetl_ray.events.envelope import Event
    from noetl_ray.locator.result import ResultName
    from noetl_ray.results.store import ResultStore
    from noetl_ray.tools.port import ToolContext
    from noetl_ray.tools.registry import ToolRegistry

_log = logging.getLogger(__name__)

ROWS_INLINE_MAX_BYTES = 8_192
"""Rows up to this size lie in the frame's start: one durable write instead of two."""
CLAIM_RETRY_S = 1.0
FATE_POLL_S = 0.5
DOUBT_TRIES = 5
"""More tries while it is open whether a claim was committed: its rows would be nobody's."""


class Kept(TypedDict):
    """What is durable of a claim before it commits."""

    token: str
    rows: list[Row]


class FrameRows:
    """Claims for one attempt at a frame."""

    def __init__(
        self,
        offer: Offer,
        policy: FramePolicy,
        results: ResultStore,
        registry: ToolRegistry,
        clock: Clock,
        *,
        name: Callable[[int], ResultName],
        started: Callable[[Kept, int], Awaitable[None]],
        starts: Callable[[], Awaitable[list[Event]]],
        may_log: Callable[[Any], bool],
        may_act: Callable[[], Awaitable[None]],
        patiently: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:
        """Bind it.

        Args:
            offer: What gave the frame to this worker.
            policy: How large it may be and how often a claim is tried.
            results: Where rows are kept.
            registry: Where drivers are found.
            clock: To wait.
            name: Under which name the rows of an attempt are kept.
            started: Records that the frame has these rows, kept in the object of this attempt, or
                with 0 in the record itself; refused when the frame was taken away.
            starts: What is recorded of this kind so far, oldest first.
            may_log: Whether rows may lie in the log.
            may_act: Raises when this worker may no longer touch the world.
            patiently: Runs store calls, trying again for a while.
        """
        self._offer = offer
        self._policy = policy
        self._results = results
        self._registry = registry
        self._clock = clock
        self._name = name
        self._started = started
        self._starts = starts
        self._may_log = may_log
        self._in_doubt: Kept | None = None
        self._may_act = may_act
        self._patiently = patiently
        frame_id = offer.issued.frame_id or ""
        self._tag = f"noetl-ray/{sha256_hex(frame_id.encode())[:32]}"

    async def take(
        self, config: dict[str, Any], statement: Callable[[int], str], context: ToolContext
    ) -> Claimed:
        """The frame's rows.

        Raises:
            ToolError: the claim failed for good.
            LogError: the frame was taken away.
        """
        driver = cursor_driver(self._registry, str(config.get("kind")))
        held_before = self._offer.version > 0
        if held_before:
            # A first dispatch has nothing to look for: nobody wrote on the subject yet (P19).
            await driver.evict(config, self._tag, context)
            found = await self._earlier(driver, config, context)
            if found is not None:
                kept, attempt = found
                await self._started(kept, attempt)
                return _claimed(kept, again=True)
        wanted = CursorClaim(
            config=config,
            statement=statement,
            max_rows=int(self._offer.issued.payload["max_rows"]),
            max_bytes=self._policy.max_bytes,
            tag=self._tag,
        )
        claimed = await self._claim(driver, wanted, context)
        if not claimed.rows and held_before:
            # An earlier holder may have had the last rows locked a moment ago: ask once more.
            await driver.evict(config, self._tag, context)
            claimed = await self._claim(driver, wanted, context)
        return claimed

    async def _earlier(
        self, driver: CursorDriver, config: dict[str, Any], context: ToolContext
    ) -> tuple[Kept, int] | None:
        """An earlier claim for this frame that was committed, and whose object has its rows."""
        for event in reversed(await self._starts()):
            kept: Kept | None = event.payload.get("claim")
            attempt = 0
            if kept is None:
                attempt = int(event.payload["attempt"])
                kept = await self._kept(attempt)
            if kept is not None and await self._committed(driver, config, kept, context):
                return kept, attempt
        return None

    async def _committed(
        self, driver: CursorDriver, config: dict[str, Any], kept: Kept, context: ToolContext
    ) -> bool:
        fate = await driver.fate(config, kept["token"], context)
        while fate == "running":
            await self._clock.sleep(FATE_POLL_S)
            fate = await driver.fate(config, kept["token"], context)
        return fate == "committed"

    async def _claim(
        self, driver: CursorDriver, wanted: CursorClaim, context: ToolContext
    ) -> Claimed:
        """Claim, trying again what may pass."""
        tries = 1
        while True:
            await self._may_act()
            try:
                kept = self._in_doubt
                if kept is not None:
                    # The commit was on its way when the connection broke: it may have arrived.
                    await driver.evict(wanted.config, self._tag, context)
                    if await self._committed(driver, wanted.config, kept, context):
                        return _claimed(kept)
                    self._in_doubt = None
                return await driver.claim(wanted, self._keep, context)
            except ToolError as error:
                tries_max = self._policy.max_attempts + (DOUBT_TRIES if self._in_doubt else 0)
                if not error.retryable or tries >= tries_max:
                    raise
                _log.warning("claim of %s waits: %s", self._offer.issued.command_id, error)
                await self._clock.sleep(CLAIM_RETRY_S * tries)
                tries += 1

    async def _keep(self, rows: list[Row], token: str) -> None:
        """Before the claim commits: rows durable, and the frame's start, which is the fence."""
        kept: Kept = {"token": token, "rows": to_jsonable(rows)}
        data = canonical_json(kept)
        inline = len(data) <= ROWS_INLINE_MAX_BYTES and self._may_log(kept["rows"])
        if not inline:
            key = self._key(self._offer.attempt)
            objects = self._results.objects.for_secrets()
            await self._patiently(lambda: objects.put(key, data))
        await self._started(kept, 0 if inline else self._offer.attempt)
        self._in_doubt = kept

    async def _kept(self, attempt: int) -> Kept | None:
        async def look() -> bytes | None:
            try:
                return await self._results.objects.get(self._key(attempt))
            except ObjectMissingError:
                return None

        data = await self._patiently(look)
        return None if data is None else msgspec.json.decode(data, type=Kept)

    def _key(self, attempt: int) -> str:
        return result_key(self._results.placement, self._name(attempt), "json")


def _claimed(kept: Kept, *, again: bool = False) -> Claimed:
    size = len(canonical_json(kept["rows"]))
    return Claimed(rows=kept["rows"], size_bytes=size, again=again)
