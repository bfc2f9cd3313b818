"""Cuts what the server sends into messages, faster than the driver does.

Owns the bytes of a frame that has not come whole yet. Messages of attached subscriptions go
straight to their sinks; every other line is given to the driver's own parser, one at a time, so
that what it knows of the protocol stays its own. Refuses a line that never ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nats.errors import ProtocolError
from nats.protocol.parser import Parser

if TYPE_CHECKING:
    from noetl_ray.wal.connection import Connection

LINE_BYTES_MAX = 65_536
_MSG, _HMSG = b"MSG", b"HMSG"


class FrameParser(Parser):
    """The driver's parser with a short way for messages."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._connection = connection

    def reset(self) -> None:
        """Forget what is unfinished: another connection begins."""
        super().reset()
        self._rest = b""

    async def parse(self, data: bytes = b"") -> None:
        """Take what was read and hand on all that is whole."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at, size = 0, len(data)
        connection = self._connection
        while at < size:
            end = data.find(b"\r\n", at)
            if end < 0:
                if size - at > LINE_BYTES_MAX:
                    msg = "nats: a line without an end"
                    raise ProtocolError(msg)
                break
            words = data[at:end].split()
            kind = words[0] if words else b""
            if kind != _MSG and kind != _HMSG:
                line = data[at : end + 2]
                at = end + 2
                await super().parse(line)
                continue
            start = end + 2
            stop = start + _number(words[-1])
            if size < stop + 2:
                break
            at = stop + 2
            headers: bytes | None = None
            has_reply = len(words) == 5
            if kind == _HMSG:
                has_reply = len(words) == 6
                body = start + _number(words[-2])
                headers = data[start:body]
                start = body
            reply = words[3] if has_reply else b""
            number = _number(words[2])
            if not connection.deliver(number, words[1], reply, data[start:stop], headers):
                await connection._process_msg(
                    number, words[1], reply, data[start:stop], headers or b""
                )
        if at < size:
            self._rest = data[at:]


def _number(word: bytes) -> int:
    try:
        return int(word)
    except ValueError:
        msg = "nats: malformed message line"
        raise ProtocolError(msg) from None
