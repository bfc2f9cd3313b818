"""Ports chosen for servers: free, and of a range nobody else is given ports from."""

from __future__ import annotations

import socket

from noetl_ray.embedded import ports


def test_ports_are_neither_rays_nor_those_of_outgoing_connections():
    found = {ports.free_port() for _ in range(20)}
    assert len(found) > 1
    assert all(20_000 <= port < 32_768 for port in found)


def test_a_taken_port_is_passed_over(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        free = ports.free_port()
        monkeypatch.setattr("random.sample", lambda *_: [taken, free])
        assert ports.free_port() == free


def test_with_the_whole_range_taken_the_system_chooses(monkeypatch):
    monkeypatch.setattr("random.sample", lambda *_: [])
    assert ports.free_port() > 0
