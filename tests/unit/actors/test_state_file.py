from __future__ import annotations

import os
from dataclasses import replace

import pytest

from actors.processes import identify
from actors.state_file import SetRecord, forget, read, save, state_path


def record(tmp_path, **facts):
    return SetRecord(set_id="s", data_dir=str(tmp_path), **facts)


def test_what_is_saved_is_read(tmp_path):
    kept = record(tmp_path, nats_token="t", ready=True).with_process(identify(os.getpid(), "nats"))
    save(kept)
    assert read(tmp_path) == kept
    forget(tmp_path)
    assert read(tmp_path) is None
    forget(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 99}', '{"version": 1}'])
def test_a_file_of_another_kind_is_no_record(tmp_path, text):
    state_path(tmp_path).write_text(text)
    assert read(tmp_path) is None


def test_a_set_is_whole_while_what_nobody_restarts_is_alive(tmp_path):
    me = identify(os.getpid(), "nats")
    gone = replace(me, started="earlier")
    assert not record(tmp_path).with_process(me).is_whole(), "never became ready"
    assert record(tmp_path, ready=True).with_process(me).is_whole()
    assert not record(tmp_path, ready=True).with_process(gone).is_whole()
    host = replace(gone, title="ray::HostActor")
    assert record(tmp_path, ready=True).with_process(me).with_process(host).is_whole()


def test_a_process_that_was_started_again_takes_the_place_of_the_old(tmp_path):
    me = identify(os.getpid(), "nats")
    old = replace(me, started="earlier")
    other = replace(me, title="postgres")
    kept = record(tmp_path, ready=True).with_process(old).with_process(other).with_replaced(me)
    assert set(kept.processes) == {me, other}
    assert kept.dead() == []


def test_secrets_do_not_show(tmp_path):
    shown = repr(record(tmp_path, nats_token="hush", token="hush", postgres_dsn="hush"))
    assert "hush" not in shown
