"""Credential-shaped keys and known secret values: found, masked, kept out of events (SEC-1, P28).

Keys are compared after folding ``camelCase`` and ``kebab-case`` to ``snake_case``; a key is
credential-shaped when it ends in one of the words below, so ``db_password``, ``X-Api-Key`` and
``clientSecret`` are. Harmless neighbours stay visible on purpose: counts and limits
(``tokens_used``, ``max_tokens``) because the word is not last or not ``token``; paging marks
(``page_token``, ``nextPageToken``, ``continuation_token``) and vocabulary entries (``eos_token``)
because playbooks page and count by them. An empty value, None or a bool is no credential:
``has_password: true`` says something about one without holding it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from noetl_ray.events.canonical import canonical_json
from noetl_ray.results.extracted import MASKED, dotted

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "***"
_PLAIN_PARTS = ("host", "port", "user", "name", "database", "type", "scheme")
SECRET_CHARS_MIN = 4
"""Shorter secrets would blank out ordinary text."""

CREDENTIAL_KEYS = re.compile(
    r"(?:.*_)?(?:"
    r"passwords?|passwd|passphrase|passcode|pwd|pgpassword"
    r"|secrets?|client_secret|secret_key|access_key|private_key|api_?keys?"
    r"|(?:encryption|signing|account|shared|session)_key"
    r"|(?:access|refresh|auth|bearer|id|api|security|session|csrf|xsrf)?_?token"
    r"|authorization|bearer|jwt|credentials?"
    r"|connection_string|conn_str|dsn"
    r"|(?:set_)?cookies?|(?:j|php)?sess(?:ion)?_?id"
    r")"
)
"""Matched whole against a folded key."""

HARMLESS_KEYS = re.compile(
    r"(?:.*_)?(?:page|next|prev|previous|continuation|pagination|cursor|sync|start|resume|marker"
    r"|bos|eos|pad|unk|sep|cls|mask|stop|special)_token"
)
"""Tokens that open nothing: paging marks and vocabulary entries."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=16_384)
def is_credential_key(key: str) -> bool:
    """Whether a key's name says that its value is a secret."""
    folded = _NOT_WORD.sub("_", _HUMP.sub("_", key[:256]).lower()).strip("_")
    return bool(CREDENTIAL_KEYS.fullmatch(folded)) and not HARMLESS_KEYS.fullmatch(folded)


def is_secret_field(key: str) -> bool:
    """Fields of a credential that are no secret (hosts, ports, names) may appear in output."""
    return not any(part in key.lower() for part in _PLAIN_PARTS)


def has_credentials(value: Any) -> bool:
    """Whether any credential-shaped key of a JSON value, at any depth, holds something."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, below in item.items():
                if is_credential_key(key) and _holds(below):
                    return True
                if isinstance(below, dict | list):
                    stack.append(below)
        elif isinstance(item, list):
            stack.extend(below for below in item if isinstance(below, dict | list))
    return False


def columns_hold_credentials(columns: Iterable[tuple[str, list[Any]]]) -> bool:
    """The same for rows that are known to hold scalars only, by column: each name is asked once."""
    return any(is_credential_key(name) and any(map(_holds, cells)) for name, cells in columns)


def secret_values(value: Any) -> set[str]:
    """The texts that credential-shaped keys of a JSON value, at any depth, hold."""
    found: set[str] = set()
    stack = [(value, False)]
    while stack:
        item, secret = stack.pop()
        if isinstance(item, dict):
            stack.extend((below, secret or is_credential_key(key)) for key, below in item.items())
        elif isinstance(item, list):
            stack.extend((below, secret) for below in item)
        elif secret and isinstance(item, str):
            found.add(item)
    return found


def mask(value: Any) -> Any:
    """A copy with the values of credential-shaped keys replaced; the shape above them stays."""
    return mask_marked(value)[0]


def mask_marked(value: Any) -> tuple[Any, dict[str, int]]:
    """Like :func:`mask`, and the marks of what was hidden, so that no reader guesses (P27)."""
    marks: dict[str, int] = {}
    return _mask(value, (), marks), marks


class Redactor:
    """Replaces known secret values wherever they stand in text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings: set[str] = set()
        for secret in secrets:
            if len(secret) >= SECRET_CHARS_MIN:
                spellings |= _spellings(secret)
        # Longest first, or a secret that contains another would leave its rest behind.
        ordered = sorted(spellings, key=lambda text: (-len(text), text))
        self._spellings = ordered
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text without any known secret."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def value(self, value: Any) -> Any:
        """A JSON value without any known secret in its strings, keys included."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value

    def stream(self) -> StreamRedactor:
        """For bytes that pass in chunks."""
        return StreamRedactor(text.encode("utf-8", "ignore") for text in self._spellings)


class StreamRedactor:
    """Replaces known secrets in bytes that come in chunks, wherever the chunks are cut."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        ordered = sorted({secret for secret in secrets if secret}, key=lambda one: (-len(one), one))
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self._held_max = len(ordered[0]) - 1 if ordered else 0
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """The next bytes that are sure to hold no part of a secret."""
        if self._pattern is None:
            return chunk
        data = self._held + chunk
        # A secret that begins before this point lies wholly in what is here.
        sure = known = max(0, len(data) - self._held_max)
        for match in self._pattern.finditer(data):
            if match.start() >= known:
                break
            sure = max(sure, match.end())
        self._held = data[sure:]
        return self._pattern.sub(MASK.encode(), data[:sure])

    def end(self) -> bytes:
        """What was held back."""
        data, self._held = self._held, b""
        return data if self._pattern is None else self._pattern.sub(MASK.encode(), data)


def _holds(value: Any) -> bool:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return True
    return bool(value) and not isinstance(value, bool)


def _mask(value: Any, path: tuple[str | int, ...], marks: dict[str, int]) -> Any:
    if isinstance(value, dict):
        masked: dict[str, Any] = {}
        for key, item in value.items():
            if is_credential_key(key) and _holds(item):
                masked[key] = MASK
                marks[dotted((*path, key))] = MASKED
            else:
                masked[key] = _mask(item, (*path, key), marks)
        return masked
    if isinstance(value, list):
        return [_mask(item, (*path, index), marks) for index, item in enumerate(value)]
    return value


def _spellings(secret: str) -> set[str]:
    """The secret as itself, inside a URL, and inside a JSON string."""
    found = {secret}
    try:
        found |= {quote(secret, safe=""), quote(secret), canonical_json(secret).decode()[1:-1]}
    except UnicodeEncodeError:
        return found
    return found
