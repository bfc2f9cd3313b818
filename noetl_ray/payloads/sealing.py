"""Encryption of objects at rest: keys per tenant, and the form of a sealed object (SEC-2, TEN-1).

Sealing is deterministic: the same bytes at the same place under the same key give the same sealed
bytes, so a repair rebuilds them exactly and a repeated write changes nothing. That is safe because
the key of an object is derived from its content: other bytes or another place have another key, so
no key and nonce ever meet two texts. The price: whoever sees the store learns that an object was
written again unchanged, and its size.

A sealed object is a header (mark, key id, content id) and segments of 1 MiB, each AES-256-GCM with
its number and whether it is the last, so that none can be cut off, moved or taken from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from noetl_ray.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MARK = b"NOETLSL1"
SEGMENT_BYTES = 1 << 20
TAG_BYTES = 16
HEADER_BYTES = len(MARK) + 8 + 32

_TENANT = re.compile(r"(?:^|/)tenant=([^/]+)/")


class Bytes(Protocol):
    """Something to read bytes from."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer only at the end."""
        ...


@dataclass(frozen=True, slots=True)
class TenantKey:
    """The keys of one tenant: one to encrypt, one to name contents."""

    id: bytes
    encrypt: bytes
    name: bytes


class ObjectKeys:
    """Derives the keys of tenants from one master key; opens with older masters too."""

    def __init__(self, master: bytes, *, older: Sequence[bytes] = ()) -> None:
        self._masters = (master, *older)
        self._known: dict[str, tuple[TenantKey, ...]] = {}

    @staticmethod
    def from_credentials(key: bytes) -> bytes:
        """The master key where none is set: derived from the one that seals credentials."""
        return _derive(key, b"noetl-ray/objects/master", 32)

    def of(self, tenant: str) -> tuple[TenantKey, ...]:
        """The keys of a tenant, the one to write with first."""
        found = self._known.get(tenant)
        if found is None:
            found = tuple(_tenant_key(master, tenant) for master in self._masters)
            self._known[tenant] = found
        return found

    def by_id(self, tenant: str, key_id: bytes) -> TenantKey | None:
        """The key an object says it was sealed with."""
        return next((key for key in self.of(tenant) if key.id == key_id), None)


def tenant_of(key: str) -> str | None:
    """Whose object a key names, in the key's own spelling; None for what belongs to nobody."""
    found = _TENANT.search(key)
    return found[1] if found else None


def is_sealed(head: bytes) -> bool:
    """Whether bytes begin as a sealed object does."""
    return head.startswith(MARK)


def sealed_size(size_bytes: int) -> int:
    """How long so many bytes are when sealed."""
    segments = max(1, -(-size_bytes // SEGMENT_BYTES))
    return HEADER_BYTES + size_bytes + segments * TAG_BYTES


def seal(key: TenantKey, place: str, data: bytes) -> bytes:
    """The sealed form of bytes that belong at a place."""
    content = hashlib.sha256(data).digest()
    view = memoryview(data)
    parts = (view[at : at + SEGMENT_BYTES] for at in range(0, max(1, len(data)), SEGMENT_BYTES))
    return b"".join(_sealed(key, place, content, parts))


def seal_file(key: TenantKey, place: str, source: BinaryIO, target: BinaryIO) -> None:
    """Like :func:`seal`, from file to file; reads the source twice and holds one segment."""
    digest = hashlib.sha256()
    for part in iter(lambda: source.read(SEGMENT_BYTES), b""):
        digest.update(part)
    source.seek(0)
    parts = iter(lambda: source.read(SEGMENT_BYTES), b"")
    target.writelines(_sealed(key, place, digest.digest(), parts))


def unseal(keys: ObjectKeys, place: str, data: bytes) -> bytes:
    """The bytes of a sealed object.

    Raises:
        StoreError: another key sealed it, it was altered or cut, or it belongs somewhere else.
    """
    view = memoryview(data)
    cipher, aad = _opener(keys, place, bytes(view[:HEADER_BYTES]))
    step = SEGMENT_BYTES + TAG_BYTES
    segments = [view[at : at + step] for at in range(HEADER_BYTES, len(data), step)] or [view[:0]]
    last = len(segments) - 1
    return b"".join(
        _open(cipher, aad, place, number, segment, last=number == last)
        for number, segment in enumerate(segments)
    )


def unseal_file(keys: ObjectKeys, place: str, source: Bytes, target: BinaryIO) -> None:
    """Like :func:`unseal`, from file to file; what it wrote counts only when it returns."""
    cipher, aad = _opener(keys, place, source.read(HEADER_BYTES))
    step = SEGMENT_BYTES + TAG_BYTES
    number, segment = 0, source.read(step)
    while True:
        following = source.read(step)
        target.write(_open(cipher, aad, place, number, segment, last=not following))
        if not following:
            return
        number, segment = number + 1, following


def _sealed(
    key: TenantKey, place: str, content: bytes, parts: Iterable[bytes | memoryview]
) -> Iterator[bytes]:
    aad = place.encode()
    content_id = hmac.digest(key.name, aad + b"\x00" + content, "sha256")
    header = MARK + key.id + content_id
    yield header
    cipher = AESGCM(hmac.digest(key.encrypt, content_id, "sha256"))
    number, held = 0, None
    for part in parts:
        if held is not None:
            yield cipher.encrypt(_nonce(number, last=False), held, aad + header)
            number += 1
        held = part
    yield cipher.encrypt(_nonce(number, last=True), held or b"", aad + header)


def _opener(keys: ObjectKeys, place: str, header: bytes) -> tuple[AESGCM, bytes]:
    tenant = tenant_of(place)
    key_id, content_id = header[len(MARK) : len(MARK) + 8], header[len(MARK) + 8 :]
    key = keys.by_id(tenant, key_id) if tenant and len(header) == HEADER_BYTES else None
    if key is None:
        msg = (
            f"the object at {place} is sealed with a key that is not here: restore the key "
            "(credentials.key_file or payload_store.encryption_key), or add it to "
            "payload_store.encryption_old_keys"
        )
        raise StoreError(msg)
    return AESGCM(hmac.digest(key.encrypt, content_id, "sha256")), place.encode() + header


def _open(
    cipher: AESGCM,
    aad: bytes,
    place: str,
    number: int,
    segment: bytes | memoryview,
    *,
    last: bool,
) -> bytes:
    try:
        return cipher.decrypt(_nonce(number, last=last), segment, aad)
    except InvalidTag:
        msg = f"the sealed object at {place} was altered, cut or moved (segment {number})"
        raise StoreError(msg) from None


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(8, "big") + b"\x00\x00\x00" + (b"\x01" if last else b"\x00")


def _tenant_key(master: bytes, tenant: str) -> TenantKey:
    both = _derive(master, b"noetl-ray/objects/tenant/" + tenant.encode(), 64)
    named = hashlib.sha256(b"noetl-ray/objects/key-id" + both).digest()[:8]
    return TenantKey(id=named, encrypt=both[:32], name=both[32:])


def _derive(master: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(master)
