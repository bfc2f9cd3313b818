"""What the code of a python task can reach beside its input, found without running it.

A command carries just what its step reads (P24), so both the decision and the worker must know
which names ``main`` takes from the context, and whether the code asks for all of it. Reads too much
rather than too little: code is a template and may not parse yet.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_MAIN = re.compile(r"\bdef\s+main\s*\(")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETERS_MAX = 10_000


def code_reads(config: Mapping[str, Any], given: Collection[str] = ()) -> frozenset[str] | None:
    """Names of the context that code may read; None when it may read all of them.

    Args:
        config: The task, rendered or not.
        given: Keys of its input, which come before the context.
    """
    code = _code(config)
    if code is None or "context" in code:
        return None
    found: set[str] = set()
    for start in _MAIN.finditer(code):
        found.update(_NAME.findall(_parameters(code, start.end())))
    return frozenset(found.difference(given))


def _code(config: Mapping[str, Any]) -> str | None:
    """The text of the code; None when it lies elsewhere or cannot be read yet."""
    code = config.get("code")
    if isinstance(code, str) and code.strip():
        return code
    encoded = config.get("code_b64")
    if isinstance(encoded, str) and encoded:
        try:
            return base64.b64decode(encoded).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return None
    script = config.get("script")
    if isinstance(script, dict):
        source = script.get("source")
        inner = source.get("code") if isinstance(source, dict) else None
        script = inner or script.get("code")
        return script if isinstance(script, str) else None
    return script if isinstance(script, str) else ""


def _parameters(code: str, start: int) -> str:
    """The text between the parentheses that were opened before ``start``."""
    depth = 1
    for index, character in enumerate(code[start : start + _PARAMETERS_MAX], start):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return code[start:index]
    return code[start : start + _PARAMETERS_MAX]
