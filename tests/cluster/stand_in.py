"""Roles that do nothing, for tests of the hosts themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any


class Idle:
    gateway_url: str | None

    def __init__(self, roles: tuple[str, ...], shards: tuple[int, ...], url: str | None) -> None:
        self.roles = roles
        self.shards = shards
        self.gateway_url = url
        self.turns = 0

    async def run(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self.turns += 1
            await asyncio.sleep(0.02)

    def summary(self) -> dict[str, Any]:
        return {"roles": list(self.roles), "shards": list(self.shards), "turns": self.turns}


async def open_idle(settings, roles, *, host_name, incarnation, shards):
    """A host whose roles turn and do nothing."""
    assert settings.event_store.url, "hosts must be told where the log is"
    assert incarnation
    folder = Path(settings.data_dir) / "incarnations"
    folder.mkdir(exist_ok=True)
    (folder / f"{host_name.replace('/', '-')}.{incarnation}").touch()
    return Idle(tuple(roles), tuple(shards), None)


async def open_broken(settings, roles, *, host_name, incarnation, shards):
    """A host that cannot open its roles."""
    if "gateway" in roles:
        msg = "the moon is in the wrong quarter"
        raise RuntimeError(msg)
    return Idle(tuple(roles), tuple(shards), None)
