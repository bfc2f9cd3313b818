"""What tool tests share: a context with a memory of what was logged, and credentials by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from noetl_ray.credentials.port import Credential
from noetl_ray.errors import NotFoundError
from noetl_ray.tools.port import ToolContext


@dataclass
class Bench:
    """Makes contexts; keeps what tasks logged."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    credentials: dict[str, Credential] = field(default_factory=dict)

    def add(self, name: str, type_: str, **data: Any) -> None:
        self.credentials[name] = Credential(name=name, type=type_, data=data)

    async def credential(self, name: str) -> Credential:
        if name not in self.credentials:
            msg = f"no credential {name!r}"
            raise NotFoundError(msg)
        return self.credentials[name]

    def context(self, **changes: Any) -> ToolContext:
        values: dict[str, Any] = {
            "execution_id": 42,
            "step": "first",
            "task": "first_task",
            "attempt": 1,
            "idempotency_key": "key-1",
            "timeout_s": None,
            "credential": self.credential,
            "log": lambda stream, line: self.lines.append((stream, line)),
        }
        return ToolContext(**(values | changes))


@pytest.fixture
def bench() -> Bench:
    return Bench()
