"""Which servers are started again, and by whom; the real thing is in the cluster tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from actors import caretaker, state_file
from actors.caretaker import Caretaker, mend, missing
from actors.processes import end, exclusive, identify
from actors.state_file import SetRecord
from noetl_ray.embedded.nats import start_nats

ME = identify(os.getpid(), "raylet")
GONE = replace(ME, title="nats", started="earlier")


def record(tmp_path, *refs, **facts):
    known = {"set_id": "s", "data_dir": str(tmp_path), "ready": True, "ray_is_ours": True}
    ray = (ME, replace(ME, title="gcs_server"))
    return SetRecord(**(known | facts), processes=(*ray, *refs))


def test_only_servers_of_a_standing_set_are_missed(tmp_path):
    alive = replace(ME, title="postgres")
    assert missing(record(tmp_path, alive)) == ()
    assert missing(record(tmp_path, alive, GONE)) == ("nats",)
    assert missing(record(tmp_path, GONE, ready=False)) == (), "it is still being started"
    assert missing(record(tmp_path, GONE, ray_is_ours=False)) == (), "its hosts may be elsewhere"
    ruin = record(tmp_path, GONE, replace(GONE, title="raylet"))
    assert missing(ruin) == (), "a set without Ray is replaced, not mended"
    assert missing(replace(ruin, processes=(GONE,))) == ()
    assert missing(record(tmp_path, replace(GONE, title="ray::HostActor"))) == ()


def test_one_is_sent_for_each_loss_and_no_second_while_it_works(tmp_path, monkeypatch):
    sent = []
    monkeypatch.setattr(caretaker, "send", sent.append)
    watch = Caretaker(tmp_path)
    assert not watch.turn(), "no set, nothing to do"
    state_file.save(record(tmp_path, GONE))
    assert watch.turn()
    assert not watch.turn()
    monkeypatch.setattr(caretaker, "AGAIN_S", 0.0)
    assert watch.turn(), "the first did not manage"
    state_file.save(record(tmp_path))
    assert not watch.turn()
    assert sent == [tmp_path, tmp_path]
    assert watch.sent == 2


def test_a_server_that_stays_without_room_on_a_disk_that_has_some_is_ended(tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(caretaker, "end", lambda refs, grace_s: ended.extend(refs))
    alive = replace(ME, title="nats")
    state_file.save(record(tmp_path, alive))
    log = tmp_path / "nats" / "nats.log"
    log.parent.mkdir()
    log.write_bytes(b"[ERR] write 1.blk: no space left on device\n")
    watch = Caretaker(tmp_path)
    assert not watch.turn()
    assert ended == [], "that was before anybody looked"
    monkeypatch.setattr(caretaker, "ROOM_BYTES", 1 << 60)
    with log.open("ab") as file:
        file.write(b"[ERR] write 1.blk: no space left on device\n")
    watch.turn()
    monkeypatch.undo()
    monkeypatch.setattr(caretaker, "end", lambda refs, grace_s: ended.extend(refs))
    with log.open("ab") as file:
        file.write(b"[ERR] write 1.blk: no space left on device\n")
    watch.turn()
    assert ended == [], "the disk was full a moment ago"
    with log.open("ab") as file:
        file.write(b"[ERR] write 1.blk: no space left on device\n")
    watch.turn()
    assert ended == [alive]
    watch.turn()
    assert ended == [alive], "it says nothing more"


@pytest.fixture
def killed_nats(tmp_path):
    """A set whose NATS was killed, and the promise that nothing of it stays."""
    server = start_nats(tmp_path / "nats", token="a-long-token", durability="disk", detached=True)
    ref = identify(server.pid, "nats")
    known = record(tmp_path, ref, nats_url=server.url, nats_token=server.token, durability="disk")
    server.process.kill()
    server.process.wait(10)
    state_file.save(known)
    yield known
    left = state_file.read(tmp_path)
    assert end([r for r in left.processes if r.title == "nats"], grace_s=5) == []


def test_a_server_comes_back_at_its_address_with_its_promise(killed_nats, tmp_path):
    mended = mend(killed_nats)
    assert missing(mended) == ()
    assert state_file.read(tmp_path) == mended
    text = (tmp_path / "nats" / "nats.conf").read_text()
    assert "sync_interval: always" in text
    assert killed_nats.nats_url.removeprefix("nats://") in text
    assert "a-long-token" in text
    assert mend(mended) == mended


def test_the_program_mends_and_leaves_the_server_to_nobody(killed_nats, tmp_path, repository):
    caretaker.send(tmp_path)
    deadline = time.monotonic() + 30
    while missing(found := state_file.read(tmp_path)):
        assert time.monotonic() < deadline, (tmp_path / caretaker.LOG_NAME).read_text()
        time.sleep(0.05)
    (ref,) = [r for r in found.processes if r.title == "nats"]
    assert ref.started != "earlier"
    parent = int(Path(f"/proc/{ref.pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent != os.getpid()


def test_a_set_that_is_taken_down_is_left_alone(killed_nats, tmp_path, repository):
    with exclusive(tmp_path / "up.lock", purpose="a test"):
        done = subprocess.run(
            [sys.executable, "-m", "actors.caretaker", str(tmp_path)],
            cwd=repository,
            capture_output=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 0
    assert missing(state_file.read(tmp_path)) == ("nats",)
