"""The floor of one step: two acknowledged JetStream hops between two bare processes.

A publishes and waits for the ack; B is told by a push consumer, publishes and waits for its ack; A
is told by its consumer. That is what any durable workflow step must at least pay when who decides
and who works are two. Both use the plain ``nats-py`` client on uvloop, on a file stream of their
own in the server under test, with bodies the size of a step's records.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Self

import nats
import uvloop
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from bench._child import Child, answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client
    from nats.js import JetStreamContext

STREAM = "bench_floor"
PING, PONG = "bench.floor.ping", "bench.floor.pong"
BODY_BYTES = 1_500
TURN_S = 30.0


async def _connect(address: dict[str, str]) -> tuple[Client, JetStreamContext]:
    client = await nats.connect(address["url"], token=address["token"], allow_reconnect=False)
    return client, client.jetstream()


async def _listen(stream: JetStreamContext, subject: str) -> Any:
    return await stream.subscribe(
        subject,
        config=ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW),
    )


async def _echo(address: dict[str, str]) -> None:
    """Process B: answer every ping with a pong, acknowledged, until input ends."""
    client, stream = await _connect(address)
    pings = await _listen(stream, PING)
    print("{}", flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while True:
        following = asyncio.ensure_future(pings.next_msg(timeout=None))
        await asyncio.wait({following, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            break
        await stream.publish(PONG, following.result().data, stream=STREAM)
    await client.close()


class _Pinger:
    """Process A, driven by questions: first an address, then numbers of turns."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def answer(self, question: Any) -> float:
        """Milliseconds per turn."""
        if isinstance(question, dict):
            self._runner.run(self._open(question))
            return 0.0
        return self._runner.run(self._turns(int(question)))

    async def _open(self, address: dict[str, str]) -> None:
        _, self._stream = await _connect(address)
        config = StreamConfig(
            name=STREAM, subjects=["bench.floor.*"], storage=StorageType.FILE, num_replicas=1
        )
        await self._stream.add_stream(config)
        self._pongs = await _listen(self._stream, PONG)

    async def _turns(self, turns: int) -> float:
        body = b"x" * BODY_BYTES
        began = time.perf_counter()
        for _ in range(turns):
            await self._stream.publish(PING, body, stream=STREAM)
            await self._pongs.next_msg(timeout=TURN_S)
        return (time.perf_counter() - began) / turns * 1000


class Floor:
    """Both processes, started and warm."""

    def __init__(self, url: str, token: str, environment: Mapping[str, str]) -> None:
        address = {"url": url, "token": token}
        self._ping = Child("bench._floor", "ping", environment=environment)
        self._ping.ask(address)
        self._echo = Child("bench._floor", "echo", environment=environment)
        self._echo.ask(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._echo.close()
        self._ping.close()

    def ms(self, turns: int) -> float:
        """Milliseconds per turn, over so many turns."""
        return float(self._ping.ask(turns))


def main() -> None:
    """One of the two sides."""
    if sys.argv[1] == "echo":
        uvloop.run(_echo(json.loads(sys.stdin.readline())))
    else:
        answer(_Pinger().answer)


if __name__ == "__main__":
    main()
