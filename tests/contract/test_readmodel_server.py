"""The embedded Postgres as a process: found again, stopped by others, recovered after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncpg
import psutil
import pytest

from noetl_ray.embedded.postgres import ensure_database, start_postgres, stop_postgres

pytestmark = [pytest.mark.contract, pytest.mark.asyncio]

STARTER = """
import sys
from pathlib import Path
from noetl_ray.embedded.postgres import start_postgres
print(start_postgres(Path(sys.argv[1]), detached=sys.argv[2] == "detached").pid)
"""


@pytest.fixture
def directory():
    folder = Path(tempfile.mkdtemp(prefix="noetl-pg-life-"))
    folder.chmod(0o711)
    yield folder
    stop_postgres(folder)
    shutil.rmtree(folder, ignore_errors=True)


def start_elsewhere(folder, how):
    """Start the server from a process that ends at once."""
    done = subprocess.run(
        [sys.executable, "-c", STARTER, str(folder), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout)


def is_alive(pid):
    """Whether it runs; one that ended and that nobody has waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def ask(dsn, question="SELECT 1"):
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


async def test_a_detached_server_outlives_its_starter_and_is_stopped_by_another(directory):
    pid = start_elsewhere(directory, "detached")
    assert is_alive(pid)
    attached = start_postgres(directory, detached=True)
    assert attached.pid == pid
    assert await ask(attached.dsn) == 1
    assert stop_postgres(directory) is True
    assert not is_alive(pid)
    assert stop_postgres(directory) is False


async def test_an_attached_server_ends_with_its_starter(directory):
    assert not is_alive(start_elsewhere(directory, "attached"))


async def test_data_survives_a_kill_and_its_leftovers(directory):
    server = start_postgres(directory, detached=True)
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("SET synchronous_commit = on; CREATE TABLE kept AS SELECT 42 AS n")
    await connection.close()
    os.kill(server.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while is_alive(server.pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert (directory / "data" / "postmaster.pid").exists(), "the kill left its file"
    again = start_postgres(directory, detached=True)
    assert again.pid != server.pid
    assert await ask(again.dsn, "SELECT n FROM kept") == 42


async def test_a_recycled_pid_does_not_hinder_the_start(directory):
    start_postgres(directory, detached=True)
    stop_postgres(directory)
    (directory / "data" / "postmaster.pid").write_text(f"{os.getppid()}\n")
    server = start_postgres(directory, detached=True)
    assert await ask(server.dsn) == 1


async def test_a_lost_socket_is_made_again(directory):
    server = start_postgres(directory, detached=True)
    (directory / "data" / ".s.PGSQL.5432").unlink()
    again = start_postgres(directory, detached=True)
    assert again.pid != server.pid
    assert await ask(again.dsn) == 1


async def test_a_long_directory_gets_a_short_socket(directory):
    deep = directory / ("x" * 100)
    try:
        server = start_postgres(deep, detached=True)
        assert await ask(server.dsn) == 1
    finally:
        stop_postgres(deep)


async def test_no_tcp_and_small_settings(directory):
    server = start_postgres(directory, detached=True)
    wanted = {
        "listen_addresses": "",
        "fsync": "on",
        "synchronous_commit": "off",
        "shared_buffers": "64MB",
        "max_connections": "60",
    }
    found = {name: await ask(server.dsn, f"SHOW {name}") for name in wanted}
    assert found == wanted
    assert await ask(server.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = user") is False


async def test_ensure_database_is_repeatable(directory):
    server = start_postgres(directory, detached=True)
    first = await ensure_database(server.dsn, 'odd "name"')
    assert await ensure_database(server.dsn, 'odd "name"') == first
    assert await ask(first, "SELECT current_database()") == 'odd "name"'
