"""However the bytes come, the messages are the same, and the driver gets every other line."""

from __future__ import annotations

import random

import pytest
from nats.errors import ProtocolError

from noetl_ray.wal import frames
from noetl_ray.wal.frames import FrameParser

HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"


class Taker:
    """Stands where the connection does; subscription 9 has no sink."""

    def __init__(self):
        self.taken = []
        self.rest = []

    def deliver(self, number, subject, reply, data, headers):
        if number == 9:
            return False
        self.taken.append((number, subject, reply, data, headers))
        return True

    async def _process_msg(self, number, subject, reply, data, headers):
        self.rest.append((number, subject, reply, data, headers))

    async def _process_ping(self):
        self.rest.append("ping")

    async def _process_pong(self):
        self.rest.append("pong")

    async def _process_err(self, message):
        self.rest.append(message)

    async def _process_info(self, info):
        self.rest.append(info)


def message(subject, number, data, reply=b"", headers=b""):
    parts = [b"HMSG" if headers else b"MSG", subject, b"%d" % number]
    parts += [reply] if reply else []
    parts += [b"%d" % len(headers)] if headers else []
    parts.append(b"%d" % (len(headers) + len(data)))
    return b" ".join(parts) + b"\r\n" + headers + data + b"\r\n"


STREAM = b"".join(
    [
        b'INFO {"max_payload":1}\r\n',
        message(b"a.b", 1, b"hello"),
        message(b"a.c", 2, b"", reply=b"inbox.1"),
        b"PING\r\n",
        message(b"a.d", 3, b"MSG a 1 4\r\nPING\r\n", headers=HEADERS),
        message(b"a.e", 4, b"", reply=b"r.1", headers=HEADERS),
        b"+OK\r\n",
        message(b"other", 9, b"driver", headers=HEADERS),
        b"-ERR 'Slow Consumer'\r\n",
        message(b"a.f", 5, b"x" * 5000),
        b"PONG\r\n",
    ]
)
TAKEN = [
    (1, b"a.b", b"", b"hello", None),
    (2, b"a.c", b"inbox.1", b"", None),
    (3, b"a.d", b"", b"MSG a 1 4\r\nPING\r\n", HEADERS),
    (4, b"a.e", b"r.1", b"", HEADERS),
    (5, b"a.f", b"", b"x" * 5000, None),
]
REST = [
    {"max_payload": 1},
    "ping",
    (9, b"other", b"", b"driver", HEADERS),
    "'slow consumer'",
    "pong",
]


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(40))
async def test_any_cut_of_the_bytes_gives_the_same_messages(seed):
    chance = random.Random(seed)
    taker = Taker()
    parser = FrameParser(taker)
    at = 0
    while at < len(STREAM):
        size = chance.choice((1, 2, 3, 7, 40, 1000, 10_000))
        await parser.parse(STREAM[at : at + size])
        at += size
    assert taker.taken == TAKEN
    assert taker.rest == REST


@pytest.mark.asyncio
async def test_a_reset_forgets_the_unfinished():
    taker = Taker()
    parser = FrameParser(taker)
    await parser.parse(message(b"a", 1, b"lost")[:-3])
    parser.reset()
    await parser.parse(message(b"b", 2, b"kept"))
    assert taker.taken == [(2, b"b", b"", b"kept", None)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "data",
    [b"MSG a x 1\r\n", b"MSG a 1 x\r\n", b"NONSENSE\r\n", b"x" * (frames.LINE_BYTES_MAX + 1)],
)
async def test_what_is_no_protocol_is_refused(data):
    with pytest.raises(ProtocolError):
        await FrameParser(Taker()).parse(data + b" " * 10)
