"""The files around an embedded Postgres; no server is started here."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from noetl_ray.embedded import postgres
from noetl_ray.embedded.postgres import stop_postgres, with_database
from noetl_ray.errors import ConfigError


@pytest.mark.parametrize(
    ("dsn", "other"),
    [
        ("postgresql://noetl@/noetl?host=/tmp/x", "postgresql://noetl@/b%2Fc?host=/tmp/x"),
        ("postgresql:///noetl?host=/tmp/x", "postgresql:///b%2Fc?host=/tmp/x"),
        ("postgresql://u:p@h:5432/noetl", "postgresql://u:p@h:5432/b%2Fc"),
    ],
)
def test_another_database_of_the_same_server(dsn, other):
    assert with_database(dsn, "b/c") == other


def test_the_socket_lies_with_the_data_when_it_fits(tmp_path, monkeypatch):
    short = Path("/d") / "data"
    assert postgres._socket_dir(short) == short
    monkeypatch.setattr(postgres.tempfile, "gettempdir", lambda: "/t")
    long = Path("/d") / ("x" * 120) / "data"
    found = postgres._socket_dir(long)
    assert found.parent == Path("/t")
    assert found == postgres._socket_dir(long), "another process must find the same place"
    assert found != postgres._socket_dir(long / "other")


def test_no_place_short_enough_is_said_plainly(monkeypatch):
    monkeypatch.setattr(postgres.tempfile, "gettempdir", lambda: "/" + "t" * 120)
    with pytest.raises(ConfigError, match="too long"):
        postgres._socket_dir(Path("/" + "x" * 120))


@pytest.mark.parametrize("text", ["", "not a number", "999999999\n", "ours"])
def test_a_stale_pid_file_is_no_server(tmp_path, text):
    home = postgres._Home(tmp_path)
    home.cluster.mkdir()
    (home.cluster / "postmaster.pid").write_text(str(os.getpid()) if text == "ours" else text)
    assert home.running_pid() is None


def test_stopping_what_never_was_is_no_error(tmp_path):
    assert stop_postgres(tmp_path / "nothing") is False
    assert not (tmp_path / "nothing").exists()


def test_directories_closed_to_the_server_are_seen(tmp_path):
    account = pwd.getpwnam("nobody")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not postgres._reachable(closed, account)
    assert postgres._reachable(Path("/"), account)


def test_the_wheel_brings_the_server():
    folder = postgres._binaries()
    assert all((folder / name).exists() for name in ("initdb", "pg_ctl", "postgres", "psql"))
