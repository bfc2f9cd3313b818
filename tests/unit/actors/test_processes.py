from __future__ import annotations

import contextlib
import os
import secrets
import signal
import stat
import subprocess
import sys
from dataclasses import replace

import pytest

from actors import processes
from actors.processes import (
    end,
    exclusive,
    family,
    identify,
    is_alive,
    memory_mb,
    read_refs,
    write_private,
)
from noetl_ray.errors import ConflictError

SLEEP = "import sys, time; print('up', flush=True); time.sleep(60)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


@contextlib.contextmanager
def child(code=SLEEP, **options):
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options
    )
    try:
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.stdout.close()
        process.wait(10)


def test_a_process_is_known_by_id_and_start():
    with child() as process:
        ref = identify(process.pid, "sleeper")
        assert is_alive(ref)
        assert not is_alive(replace(ref, started="another boot:1"))
        assert read_refs([ref.to_dict()]) == (ref,)
    assert not is_alive(ref)
    assert identify(process.pid, "sleeper") is None


def test_a_process_that_only_waits_to_be_reaped_is_dead():
    with child() as process:
        ref = identify(process.pid, "sleeper")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(ref)


def test_end_asks_first():
    with child() as process:
        assert end([identify(process.pid, "sleeper")], grace_s=10) == []
        # 0 where `end` itself has reaped it: the code is gone then. Never SIGKILL.
        assert process.wait(timeout=10) in (0, -signal.SIGTERM)


def test_end_kills_what_does_not_listen():
    with child(DEAF) as process:
        ref = identify(process.pid, "deaf")
        assert end([ref], grace_s=0.1) == []
        assert not is_alive(ref)


def test_end_never_touches_a_later_process_with_the_same_id():
    with child() as process:
        ref = identify(process.pid, "sleeper")
        assert end([replace(ref, started="earlier")], grace_s=0.1) == []
        assert is_alive(ref)


def test_family_is_the_marked_process_and_all_that_stems_from_it():
    mark = ("NOETL_TEST_MARK", secrets.token_hex(8))
    environment = {**os.environ, mark[0]: mark[1]}
    with child(PARENT, env=environment, start_new_session=True) as process, child() as stranger:
        found = family("=".join(mark))
        assert process.pid in {ref.pid for ref in found}
        assert stranger.pid not in {ref.pid for ref in found}
        assert len(found) == 2
        assert end(found, grace_s=5) == []
        assert family("=".join(mark)) == []


def test_family_never_takes_our_own_session():
    mark = ("NOETL_TEST_MARK", secrets.token_hex(8))
    with child(env={**os.environ, mark[0]: mark[1]}) as process:
        assert [ref.pid for ref in family("=".join(mark))] == [process.pid]


def test_a_whole_session_is_taken_even_where_the_mark_was_lost():
    """As with a worker that wrote its title over its environment and lost its parent."""
    mark = ("NOETL_TEST_MARK", secrets.token_hex(8))
    code = (
        "import os, subprocess, sys; "
        f"subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}}, process_group=0)"
    )
    leader = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}]); {SLEEP}"
    with child(leader, env={**os.environ, mark[0]: mark[1]}, start_new_session=True):
        found = family("=".join(mark))
        assert len(found) == 2
        assert end(found, grace_s=5) == []


def test_a_lock_is_held_by_one_and_names_its_holder(tmp_path):
    path = tmp_path / "lock"
    with (
        exclusive(path, purpose="a test"),
        pytest.raises(ConflictError, match=f"a test .* process {os.getpid()}"),
        exclusive(path, purpose="a test"),
    ):
        pytest.fail("two held it at once")
    with exclusive(path, purpose="a test"):
        pass


def test_private_files_are_replaced_in_one_step(tmp_path):
    path = tmp_path / "state.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    path.write_text("old")

    def full_disk(descriptor):
        raise OSError(28, "no space")

    monkeypatch.setattr(processes.os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_private(path, "new")
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_memory_of_this_process():
    assert memory_mb(os.getpid())["rss"] > 1
    assert memory_mb(2**30) == {}


def test_a_lock_is_waited_for_only_when_its_holder_says_so(tmp_path):
    path = tmp_path / "lock"
    hold = (
        "import sys, time\nfrom pathlib import Path\nfrom actors.processes import exclusive\n"
        f"with exclusive(Path({str(path)!r}), purpose='x', note='soon'):\n"
        "    print('held', flush=True)\n    sys.stdin.readline()\n    time.sleep(0.3)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        for patience in ({}, {"patient_with": "later", "wait_s": 20}):
            with (
                pytest.raises(ConflictError, match=f"process {holder.pid} soon"),
                exclusive(path, purpose="a test", **patience),
            ):
                pytest.fail("it was held")
        holder.stdin.write("\n")
        holder.stdin.flush()
        with exclusive(path, purpose="a test", patient_with="soon", wait_s=20):
            assert path.read_text() == str(os.getpid())
