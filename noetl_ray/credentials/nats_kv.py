"""Credentials in a NATS key-value bucket, encrypted before they leave this process (P15).

Owns the bucket ``noetl_credentials``. The server sees scope and name of a credential, never its
type or data. This store is not rebuilt from the log: back it up together with the key.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import unquote

from nats import errors as nats_errors
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import BucketNotFoundError, KeyNotFoundError

from noetl_ray.credentials.names import checked_name, info_of, missing, store_key
from noetl_ray.credentials.port import Credential, CredentialInfo
from noetl_ray.errors import LogUnavailableError, NoetlError, StoreError, StoreUnavailableError
from noetl_ray.wal.connection import connect
from noetl_ray.wal.jetstream_errors import from_nats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.aio.client import Client
    from nats.js.kv import KeyValue

    from noetl_ray.credentials.crypto import Sealer
    from noetl_ray.scope import Scope

BUCKET = "noetl_credentials"
VALUE_BYTES_MAX = 262_144


class NatsCredentials:
    """A CredentialStore over one bucket; made by :meth:`open`."""

    def __init__(self, client: Client, bucket: KeyValue, sealer: Sealer) -> None:
        self._client = client
        self._bucket = bucket
        self._sealer = sealer

    @classmethod
    async def open(
        cls, url: str, token: str | None, sealer: Sealer, *, replicas: int = 1
    ) -> NatsCredentials:
        """Connect and make the bucket if there is none.

        Args:
            url: Of the NATS server.
            token: Of the NATS server, if it asks for one.
            sealer: Holds the key.
            replicas: Copies a new bucket keeps; 3 goes with ``durability: replicated``.

        Raises:
            StoreUnavailableError: the server cannot be reached.
        """
        with _mapped():
            client = await connect(url, token, name="noetl-credentials")
        try:
            with _mapped():
                return cls(client, await _bucket(client, replicas), sealer)
        except BaseException:
            await client.close()
            raise

    async def put(self, scope: Scope, credential: Credential) -> None:
        """Add or replace."""
        sealed = self._sealer.seal(scope, credential)
        if len(sealed) > VALUE_BYTES_MAX:
            msg = f"credential {credential.name!r} is larger than {VALUE_BYTES_MAX} bytes"
            raise StoreError(msg)
        with _mapped():
            await self._bucket.put(store_key(scope, checked_name(credential.name)), sealed)

    async def get(self, scope: Scope, name: str) -> Credential:
        """Raises NotFoundError naming the credential and how to add it."""
        sealed = await self._sealed(store_key(scope, checked_name(name)))
        if sealed is None:
            raise missing(name)
        return self._sealer.open(scope, name, sealed)

    async def remove(self, scope: Scope, name: str) -> bool:
        """True when there was one. Earlier versions go too."""
        key = store_key(scope, checked_name(name))
        if await self._sealed(key) is None:
            return False
        with _mapped():
            await self._bucket.purge(key)
        return True

    async def list(self, scope: Scope) -> list[CredentialInfo]:
        """All of a scope, without data, by name.

        One that cannot be opened is listed as such, so that it can be found and removed.
        """
        prefix = f"$KV.{BUCKET}.{scope.tenant_id}.{scope.organization_id}."
        with _mapped():
            # The driver's own key filter is a substring match and would show other tenants' names.
            stream = await self._client.jsm().stream_info(
                f"KV_{BUCKET}", subjects_filter=f"{prefix}>"
            )
        names = [_name(subject.removeprefix(prefix)) for subject in stream.state.subjects or {}]
        found: list[CredentialInfo] = []
        for name in sorted(names):
            sealed = await self._sealed(store_key(scope, name))
            if sealed is None:
                continue  # Removed: only the marker of it is left.
            try:
                found.append(info_of(self._sealer.open(scope, name, sealed)))
            except StoreError as error:
                found.append(
                    CredentialInfo(name=name, type="unreadable", description=error.message)
                )
        return found

    async def close(self) -> None:
        """Let go of the connection."""
        with contextlib.suppress(nats_errors.Error, OSError):
            await self._client.close()

    async def _sealed(self, key: str) -> bytes | None:
        with _mapped():
            try:
                return (await self._bucket.get(key)).value
            except KeyNotFoundError:
                return None


async def _bucket(client: Client, replicas: int) -> KeyValue:
    jetstream = client.jetstream()
    try:
        return await jetstream.key_value(BUCKET)
    except BucketNotFoundError:
        return await jetstream.create_key_value(
            KeyValueConfig(
                bucket=BUCKET,
                description="noetl credentials, encrypted",
                history=1,
                max_value_size=VALUE_BYTES_MAX,
                storage=StorageType.FILE,
                replicas=replicas,
            )
        )


def _name(encoded: str) -> str:
    return unquote(encoded.replace("=", "%"))


@contextlib.contextmanager
def _mapped() -> Iterator[None]:
    try:
        yield
    except (NoetlError, nats_errors.Error, OSError, TimeoutError) as error:
        ours = from_nats(error)
        if isinstance(ours, LogUnavailableError):
            raise StoreUnavailableError(ours.message) from None
        raise ours from None
