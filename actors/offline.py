"""The log of a local set while the set is down: its NATS alone, for moving whole streams.

Holds the lock of ``up`` and ``down`` meanwhile, so nothing else opens the same files. Refuses a
directory whose set runs, or was not ended.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from actors import state_file
from actors.processes import exclusive
from noetl_ray.embedded.nats import start_nats, stop_nats
from noetl_ray.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from noetl_ray.config.settings import Durability
    from noetl_ray.embedded.nats import NatsProcess


@contextlib.contextmanager
def nats_alone(data_dir: Path, durability: Durability) -> Iterator[NatsProcess]:
    """Start the NATS of a directory, and stop it at the end.

    Raises:
        ConflictError: the set of this directory runs, or is being started or stopped.
    """
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with exclusive(data_dir / "up.lock", purpose="starting, stopping or moving the log"):
        if state_file.state_path(data_dir).exists():
            msg = f"the set in {data_dir} is not down; stop it first: noetl-ray down"
            raise ConflictError(msg)
        server = start_nats(
            data_dir / "nats",
            token=secrets.token_hex(24),
            durability="disk" if durability == "disk" else "process",
            detached=False,
        )
        try:
            yield server
        finally:
            stop_nats(server)
