"""Percent-encoded segments: the one alphabet shared by names and physical keys.

A segment never holds a slash, never is empty, never is made of dots alone, and has exactly one
spelling, so equal names are equal text. Anything that cannot be spelled this way is refused, not
repaired.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from noetl_ray.errors import UsageError

SEGMENT_BYTES_MAX = 200
"""Encoded length; file systems stop at 255 and a key's last segment also carries an extension."""


def encode_segment(text: str) -> str:
    """Spell any text as one segment.

    Raises:
        UsageError: the text is empty, too long, or not valid Unicode.
    """
    try:
        encoded = quote(text, safe="")
    except UnicodeEncodeError:
        msg = f"{text!r} cannot be part of a name: it is not valid Unicode"
        raise UsageError(msg) from None
    if not encoded.strip("."):
        # `.` and `..` mean something to file systems and URL readers; their escapes do not.
        encoded = encoded.replace(".", "%2E")
    if not 0 < len(encoded) <= SEGMENT_BYTES_MAX:
        msg = (
            f"{text[:40]!r} cannot be part of a name: its encoded form has {len(encoded)} bytes, "
            f"allowed are 1..{SEGMENT_BYTES_MAX}"
        )
        raise UsageError(msg)
    return encoded


def decode_segment(segment: str) -> str:
    """The inverse of :func:`encode_segment`; any other spelling is refused.

    Raises:
        UsageError: the segment is not what :func:`encode_segment` would have written.
    """
    try:
        text = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        msg = f"segment {segment[:80]!r} is not percent-encoded UTF-8"
        raise UsageError(msg) from None
    if encode_segment(text) != segment:
        msg = f"segment {segment[:80]!r} is not in canonical percent-encoding"
        raise UsageError(msg)
    return text


def decode_number(segment: str, label: str) -> int:
    """Read a non-negative decimal without sign or leading zeros.

    Raises:
        UsageError: it is something else.
    """
    if not (segment.isascii() and segment.isdigit()) or (segment[0] == "0" and segment != "0"):
        msg = f"{label} {segment[:40]!r} is not a plain decimal number"
        raise UsageError(msg)
    return int(segment)
