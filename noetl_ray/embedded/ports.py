"""Ports for servers of a local set, chosen so that nobody else is likely to take them meanwhile.

A server listens a while after its port was chosen, and again after a restart. The system hands out
ports to outgoing connections all the time, so ports of that range are taken in between now and
then; Ray gives those below 20000 to its workers. Between the two lies room for us.
"""

from __future__ import annotations

import random
import socket

HOST = "127.0.0.1"
PORTS = range(20_000, 32_768)
_TRIES = 64


def free_port() -> int:
    """A TCP port of loopback that is free now."""
    for port in random.sample(PORTS, _TRIES):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    # So full a machine has its own idea of which ports are for what; ask it.
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
