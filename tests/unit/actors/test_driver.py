from __future__ import annotations

import os

import pytest

from actors.driver import HostsDriver
from actors.ray_head import import_path
from noetl_ray.errors import InternalError


@pytest.fixture
def driver(tmp_path):
    started = []

    def start(verb):
        environment = {**os.environ, "PYTHONPATH": import_path()}
        log_path = tmp_path / f"{verb}.log"
        started.append(HostsDriver(verb, log_path=log_path, environment=environment))
        return started[-1]

    return start


def test_an_error_is_told_as_it_is(driver):
    with pytest.raises(InternalError, match="no such verb: dance"):
        driver("dance").ask({"settings": {}}, wait_s=30)


def test_bad_settings_are_told_as_they_are(driver):
    with pytest.raises(InternalError, match="no such section"):
        driver("start").ask({"settings": {"no such section": 1}}, wait_s=30)


def test_a_process_that_dies_points_to_its_log(driver, tmp_path):
    with pytest.raises(InternalError, match=r"died; see .*start\.log"):
        driver("start").ask({}, wait_s=30)
    assert "KeyError" in (tmp_path / "start.log").read_text()


def test_a_silent_one_is_ended(driver):
    silent = driver("start")
    with pytest.raises(InternalError, match="no answer in 0 s"):
        silent.ask({"settings": {}}, wait_s=0)
    assert silent._process.poll() is not None


def test_one_never_asked_can_be_abandoned(driver):
    unused = driver("start")
    unused.abandon()
    assert unused._process.poll() is not None
