"""Calls to the server's JetStream interface: publish, direct get, streams and consumers.

Owns subjects, bodies and answers of those calls and turns every error answer into ours. Knows
nothing of records. Refuses to retry: who calls decides whether asking again is safe.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from noetl_ray.errors import LogError, LogUnavailableError, NotFoundError
from noetl_ray.wal.jetstream_errors import UNAVAILABLE_CODES, WRONG_LAST_SEQUENCE, from_answer
from noetl_ray.wal.settle import Attempt, Outcome, Published

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl_ray.wal.jetstream_mux import Mux

_STATUS = b"NATS/1.0 "
_DIRECT = "direct get"
_UNKNOWN = Published(Outcome.UNKNOWN)
_BUSY = Published(Outcome.BUSY)
_REFUSED = Published(Outcome.REFUSED)


class Message(msgspec.Struct, frozen=True):
    """A stored message as the server gives it."""

    position: int
    subject: str
    time_ms: int
    data: bytes


class _ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct, frozen=True):
    seq: int = 0
    duplicate: bool = False
    error: _ApiError | None = None


class _Stored(msgspec.Struct, frozen=True):
    subject: str
    seq: int
    time: str
    data: str = ""


class _StoredAnswer(msgspec.Struct, frozen=True):
    message: _Stored | None = None
    error: _ApiError | None = None


_ack_decoder = msgspec.json.Decoder(_PubAck)
_stored_decoder = msgspec.json.Decoder(_StoredAnswer)


class StreamApi:
    """The calls for one stream."""

    def __init__(self, mux: Mux, stream: str, *, leader_reads: bool = False) -> None:
        self.stream = stream
        self._mux = mux
        self._leader_reads = leader_reads
        self._direct = f"$JS.API.DIRECT.GET.{stream}".encode()

    async def publish(self, attempt: Attempt) -> Published:
        """Publish with message id and expected version; one try.

        Raises:
            LogError: the server refuses the message for a reason that will not pass.
        """
        if attempt.expected is None:
            headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % attempt.message_id
        else:
            headers = (
                b"NATS/1.0\r\nNats-Msg-Id: %d\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n"
            ) % (attempt.message_id, attempt.expected)
        connection = self._mux.connection
        size = len(headers) + len(attempt.data)
        if connection.is_connected and size > connection.max_payload:
            # The server would end the whole connection for this.
            msg = f"{attempt.subject}: {size} bytes are over the server's {connection.max_payload}"
            raise LogError(msg)
        reply = await self._mux.request(attempt.subject.encode(), headers, attempt.data)
        if reply is None:
            return _UNKNOWN
        if reply[0] is not None:
            return _BUSY  # 503 no responders: the stream is not being served right now
        ack = _ack_decoder.decode(reply[1])
        if ack.error is None:
            outcome = Outcome.DUPLICATE if ack.duplicate else Outcome.STORED
            return Published(outcome, ack.seq)
        if ack.error.err_code == WRONG_LAST_SEQUENCE:
            return _REFUSED
        if ack.error.code in UNAVAILABLE_CODES:
            return _BUSY
        error = ack.error
        raise from_answer(attempt.subject, error.code, error.err_code, error.description)

    async def last(self, subject_filter: str) -> Message | None:
        """The last message under a filter."""
        if self._leader_reads:
            return await self._from_leader({"last_by_subj": subject_filter})
        return await self._direct_get(self._direct + b"." + subject_filter.encode(), b"")

    async def get(self, position: int) -> Message | None:
        """The message at a position."""
        if position < 1:
            return None
        if self._leader_reads:
            return await self._from_leader({"seq": position})
        return await self._direct_get(self._direct, b'{"seq":%d}' % position)

    async def first_after(self, subject: str, position: int) -> Message | None:
        """The first message of a subject after a position."""
        wanted = {"seq": position + 1, "next_by_subj": subject}
        if self._leader_reads:
            return await self._from_leader(wanted)
        return await self._direct_get(self._direct, msgspec.json.encode(wanted))

    async def call(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call of the management interface, ``STREAM.INFO.x`` and the like.

        Raises:
            NotFoundError: the thing named is not there.
            LogUnavailableError: no answer, or the server cannot now.
            LogError: the server refuses.
        """
        data = msgspec.json.encode(body) if body is not None else b""
        headers, answer = await self._ask(f"$JS.API.{what}".encode(), data, what)
        if headers is not None and headers.startswith(_STATUS):
            raise _from_status(what, headers)
        decoded: dict[str, Any] = msgspec.json.decode(answer)
        error = decoded.get("error")
        if error:
            raise from_answer(
                what,
                int(error.get("code", 0)),
                int(error.get("err_code", 0)),
                str(error.get("description", "")),
            )
        return decoded

    async def state(self) -> dict[str, Any]:
        """The stream's counters: ``first_seq``, ``last_seq``, ``messages`` and so on."""
        info = await self.call(f"STREAM.INFO.{self.stream}")
        state: dict[str, Any] = info["state"]
        return state

    async def subjects(self, subject_filter: str) -> AsyncIterator[dict[str, int]]:
        """Subjects under a filter with their counts, a page of the server's at a time."""
        offset = 0
        while True:
            body = {"subjects_filter": subject_filter, "offset": offset}
            info = await self.call(f"STREAM.INFO.{self.stream}", body)
            page: dict[str, int] = info["state"].get("subjects") or {}
            yield page
            offset += len(page)
            if not page or offset >= int(info.get("total", 0)):
                return

    async def _direct_get(self, subject: bytes, body: bytes) -> Message | None:
        headers, data = await self._ask(subject, body, _DIRECT)
        if headers is None:
            msg = "direct get: an answer without headers"
            raise LogError(msg)
        if headers.startswith(_STATUS):
            if headers.startswith(b"NATS/1.0 404"):
                return None
            raise _from_status(_DIRECT, headers)
        fields = _fields(headers)
        return Message(
            int(fields[b"Nats-Sequence"]),
            fields[b"Nats-Subject"].decode(),
            _time_ms(fields[b"Nats-Time-Stamp"].decode()),
            data,
        )

    async def _from_leader(self, body: dict[str, Any]) -> Message | None:
        # Replicas answer direct gets too, and one may be behind; the leader never is.
        what = f"STREAM.MSG.GET.{self.stream}"
        headers, data = await self._ask(f"$JS.API.{what}".encode(), msgspec.json.encode(body), what)
        if headers is not None and headers.startswith(_STATUS):
            raise _from_status(what, headers)
        answer = _stored_decoder.decode(data)
        if answer.error is not None:
            error = answer.error
            failure = from_answer(what, error.code, error.err_code, error.description)
            if isinstance(failure, NotFoundError):
                return None
            raise failure
        stored = answer.message
        if stored is None:
            return None
        return Message(
            stored.seq, stored.subject, _time_ms(stored.time), base64.b64decode(stored.data)
        )

    async def _ask(self, subject: bytes, data: bytes, what: str) -> tuple[bytes | None, bytes]:
        reply = await self._mux.request(subject, b"", data)
        if reply is None:
            msg = f"{what}: NATS gave no answer"
            raise LogUnavailableError(msg)
        return reply


def _from_status(what: str, headers: bytes) -> Exception:
    line = headers.split(b"\r\n", 1)[0].decode()
    code = line[len(_STATUS) : len(_STATUS) + 3]
    return from_answer(what, int(code) if code.isdigit() else 0, 0, line)


def _fields(headers: bytes) -> dict[bytes, bytes]:
    found = {}
    for line in headers.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found[name] = value.strip()
    return found


def _time_ms(text: str) -> int:
    """Milliseconds of an RFC 3339 time, cut and not rounded, as in the delivery subjects."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1000 + int(fraction[:3].ljust(3, "0"))
