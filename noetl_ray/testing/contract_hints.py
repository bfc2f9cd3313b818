"""The proofs every hint adapter must pass; each takes a pair of objects, sender and listener.

Owns what the hint port promises while nothing is broken: hints arrive at matching listeners, and
handlers never run inside the sender. For adapters within one process both objects may be the
same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from noetl_ray.hints.port import Hints, offer_subject

WAIT_S = 5.0
QUIET_S = 0.05

HintsCheck = Callable[[Hints, Hints], Awaitable[None]]


class Heard:
    """A handler that keeps what it hears."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self._more = asyncio.Event()

    async def __call__(self, subject: str, data: bytes) -> None:
        """Keep one hint."""
        self.got.append((subject, data))
        self._more.set()

    async def wait_for(self, count: int) -> list[tuple[str, bytes]]:
        """Wait until so many hints came."""
        async with asyncio.timeout(WAIT_S):
            while len(self.got) < count:
                self._more.clear()
                await self._more.wait()
        return self.got


async def a_hint_reaches_its_listener_once(sender: Hints, listener: Hints) -> None:
    """Exact subjects, once; whether or not the sender listens itself."""
    heard = Heard()
    subject = offer_subject(3, "worker.1 a")
    await listener.listen(subject, heard)
    for number in range(5):
        await sender.send(subject, b"%d" % number)
    assert sorted(await heard.wait_for(5)) == [(subject, b"%d" % number) for number in range(5)]
    await asyncio.sleep(QUIET_S)
    assert len(heard.got) == 5


async def wildcards_match_tokens(sender: Hints, listener: Hints) -> None:
    """``*`` is one token, ``>`` one or more; each listener gets its own copy."""
    star, rest, exact = Heard(), Heard(), Heard()
    await listener.listen("noetl.hints.*.x", star)
    await listener.listen("noetl.hints.>", rest)
    await listener.listen("noetl.hints.a.x", exact)
    for subject in ("noetl.hints.a.x", "noetl.hints.b.x", "noetl.hints.a.b.x", "noetl.other.a.x"):
        await sender.send(subject, subject.encode())
    assert len(await rest.wait_for(3)) == 3
    assert {name for name, _ in await star.wait_for(2)} == {"noetl.hints.a.x", "noetl.hints.b.x"}
    assert [name for name, _ in await exact.wait_for(1)] == ["noetl.hints.a.x"]
    await asyncio.sleep(QUIET_S)
    assert (len(star.got), len(rest.got), len(exact.got)) == (2, 3, 1)


async def a_stopped_listener_hears_nothing(sender: Hints, listener: Hints) -> None:
    """The stopper ends one listener and leaves the others; stopping twice is fine."""
    stopped, stays = Heard(), Heard()
    subject = offer_subject(0, "w")
    stop = await listener.listen(subject, stopped)
    await listener.listen(subject, stays)
    await stop()
    await stop()
    await sender.send(subject, b"1")
    await stays.wait_for(1)
    await asyncio.sleep(QUIET_S)
    assert stopped.got == []
    assert len(stays.got) == 1


async def nobody_listening_is_fine(sender: Hints, listener: Hints) -> None:
    """A hint without a listener is gone, and that is no error."""
    await sender.send("noetl.hints.nobody", b"x")


async def a_failing_handler_harms_no_other(sender: Hints, listener: Hints) -> None:
    """What a handler raises stays with it."""
    heard = Heard()

    async def fail(subject: str, data: bytes) -> None:
        msg = "on purpose"
        raise RuntimeError(msg)

    subject = offer_subject(1, "w")
    await listener.listen(subject, fail)
    await listener.listen(subject, heard)
    await sender.send(subject, b"1")
    await sender.send(subject, b"2")
    assert len(await heard.wait_for(2)) == 2


async def handlers_never_run_inside_send(sender: Hints, listener: Hints) -> None:
    """A handler that waits for ever holds up neither sender nor later hints."""
    started = Heard()

    async def hang(subject: str, data: bytes) -> None:
        await started(subject, data)
        await asyncio.Event().wait()

    subject = offer_subject(2, "w")
    await listener.listen(subject, hang)
    for number in range(3):
        await sender.send(subject, b"%d" % number)
        assert len(started.got) <= number
    assert len(await started.wait_for(3)) == 3


HINTS_CHECKS: tuple[HintsCheck, ...] = (
    a_hint_reaches_its_listener_once,
    wildcards_match_tokens,
    a_stopped_listener_hears_nothing,
    nobody_listening_is_fine,
    a_failing_handler_harms_no_other,
    handlers_never_run_inside_send,
)
