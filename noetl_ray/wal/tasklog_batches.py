"""How printed lines are put into messages: JSON arrays of lines, cut so that each fits one message.

Owns the encoding both task-log adapters share. Refuses no line: one too long for a message is
cut, and says so at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl_ray.wal.tasklog import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BATCH_BYTES_MAX = 512 * 1024
LINE_CHARS_MAX = 64 * 1024
CUT_MARK = " … [cut]"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[LogLine, ...])


def encode_batches(lines: Sequence[LogLine]) -> Iterator[bytes]:
    """Messages that hold the lines in order."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        if len(line.text) > LINE_CHARS_MAX:
            cut = line.text[: LINE_CHARS_MAX - len(CUT_MARK)] + CUT_MARK
            line = msgspec.structs.replace(line, text=cut)
        part = _encoder.encode(line)
        if parts and size + len(part) > BATCH_BYTES_MAX:
            yield b"[" + b",".join(parts) + b"]"
            parts, size = [], 0
        parts.append(part)
        size += len(part) + 1
    if parts:
        yield b"[" + b",".join(parts) + b"]"


def decode_batch(data: bytes) -> tuple[LogLine, ...]:
    """The lines of one message; bytes that are none give no lines, for losing some is allowed."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return ()
