"""Sealing of credentials: AES-256-GCM, bound to scope and name, so that no record can be moved.

Owns the key and the format of a sealed record: one version byte, a nonce of 12 bytes, ciphertext
with tag. Refuses a record sealed with another key, for another scope or under another name.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from noetl_ray.config.settings import CredentialSettings
    from noetl_ray.scope import Scope

KEY_BYTES = 32
KEY_FILE = "credentials.key"
_NONCE_BYTES = 12
_VERSION = b"\x01"


class _Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """What is encrypted: everything but the name, which the place gives."""

    type: str
    data: dict[str, object]
    description: str = ""


class Sealer:
    """Seals and opens credentials with one key; the key cannot be read back."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            msg = "credentials.key"
            raise ConfigError(msg, "<hidden>", f"must be {KEY_BYTES} bytes")
        self._cipher = AESGCM(key)

    def seal(self, scope: Scope, credential: Credential) -> bytes:
        """The encrypted record; different each time, because the nonce is."""
        try:
            plain = msgspec.json.encode(
                _Sealed(
                    type=credential.type,
                    data=credential.data,
                    description=credential.description,
                )
            )
        except (TypeError, ValueError):
            # The reason could quote a value, so it is left out.
            msg = f"credential {credential.name!r} holds something that is not plain JSON data"
            raise StoreError(msg) from None
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, plain, _place(scope, credential.name))
        return _VERSION + nonce + sealed

    def open(self, scope: Scope, name: str, sealed: bytes) -> Credential:
        """The credential in a record.

        Raises:
            StoreError: another key sealed it, it was altered, or it belongs somewhere else.
        """
        nonce = sealed[1 : 1 + _NONCE_BYTES]
        try:
            if sealed[:1] != _VERSION or len(nonce) != _NONCE_BYTES:
                raise InvalidTag
            plain = self._cipher.decrypt(nonce, sealed[1 + _NONCE_BYTES :], _place(scope, name))
            record = msgspec.json.decode(plain, type=_Sealed)
        except (InvalidTag, msgspec.DecodeError):
            msg = (
                f"credential {name!r} cannot be opened with the present key: "
                "restore credentials.key_file from backup, or add the credential again"
            )
            raise StoreError(msg) from None
        return Credential(
            name=name, type=record.type, data=record.data, description=record.description
        )


def load_key(settings: CredentialSettings, data_dir: Path) -> bytes:
    """The key: from the setting, from the named file, or from one made in the data directory.

    A named file must exist; only the file of the data directory is made when it is missing,
    readable by its owner alone.

    Raises:
        ConfigError: the key or its file is missing or not a key.
    """
    if settings.key:
        return _decoded(settings.key, "credentials.key")
    if settings.key_file:
        path = Path(settings.key_file).expanduser()
        return _decoded(_text_of(path), "credentials.key_file")
    path = data_dir / KEY_FILE
    if not path.exists():
        _make_key(path)
    return _decoded(_text_of(path), "credentials.key_file")


def encode_key(key: bytes) -> str:
    """The key as the text a setting or file holds; for handing it to other hosts."""
    return base64.b64encode(key).decode()


def _make_key(path: Path) -> None:
    """Make the file whole or not at all; of several processes starting at once, one wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(encode_key(secrets.token_bytes(KEY_BYTES)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(fresh)
    finally:
        fresh.unlink()


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        msg = "credentials.key_file"
        raise ConfigError(msg, str(path), f"cannot be read: {reason}") from None


def _decoded(text: str, key: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise ConfigError(key, "<hidden>", f"must be {KEY_BYTES} bytes in base64")
    return raw


def _place(scope: Scope, name: str) -> bytes:
    # Scope segments cannot contain a slash, so no two places share these bytes.
    return f"{scope.tenant_id}/{scope.organization_id}/{name}".encode()
