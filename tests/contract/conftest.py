"""The servers contract tests run against; each kind has its fixtures in a module of its own."""

from __future__ import annotations

import contextlib

from tests.contract.fixtures_nats import nats_connection, nats_server

__all__ = ["nats_connection", "nats_server"]

with contextlib.suppress(ModuleNotFoundError):
    from tests.contract.fixtures_postgres import *  # noqa: F403
