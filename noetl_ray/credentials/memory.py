"""Credentials in the memory of one process: for tests and one-process use; gone when it ends.

Records are sealed as in the real store, so that both refuse the same things.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from noetl_ray.credentials.crypto import KEY_BYTES, Sealer
from noetl_ray.credentials.names import checked_name, info_of, missing, store_key

if TYPE_CHECKING:
    from noetl_ray.credentials.port import Credential, CredentialInfo
    from noetl_ray.scope import Scope


class MemoryCredentials:
    """A CredentialStore over a dictionary."""

    def __init__(self, sealer: Sealer | None = None) -> None:
        self._sealer = sealer or Sealer(secrets.token_bytes(KEY_BYTES))
        self._records: dict[str, tuple[Scope, str, bytes]] = {}

    async def put(self, scope: Scope, credential: Credential) -> None:
        """Add or replace."""
        name = checked_name(credential.name)
        self._records[store_key(scope, name)] = (
            scope,
            name,
            self._sealer.seal(scope, credential),
        )

    async def get(self, scope: Scope, name: str) -> Credential:
        """Raises NotFoundError naming the credential and how to add it."""
        record = self._records.get(store_key(scope, name))
        if record is None:
            raise missing(name)
        return self._sealer.open(scope, name, record[2])

    async def remove(self, scope: Scope, name: str) -> bool:
        """True when there was one."""
        return self._records.pop(store_key(scope, name), None) is not None

    async def list(self, scope: Scope) -> list[CredentialInfo]:
        """All of a scope, without data, by name."""
        names = [name for owner, name, _ in self._records.values() if owner == scope]
        return [info_of(await self.get(scope, name)) for name in sorted(names)]

    async def close(self) -> None:
        """Nothing to let go of."""
