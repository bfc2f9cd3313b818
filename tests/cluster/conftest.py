"""Two local sets for the whole session, each started when first asked for.

``local_set`` has hosts with idle roles, for tests of the hosts themselves; ``shared_set`` has the
real roles, and every test that runs playbooks uses it and leaves it whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.local import LocalSet, down, up
from actors.ray_head import client_environment, forget
from noetl_ray.cli.demo import fixture_api
from noetl_ray.config.settings import RaySettings, Settings
from tests.support.cli import Cli, processes_naming

HERE = str(Path(__file__).parent)


@pytest.fixture
def set_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory; what Ray keeps elsewhere because of a long path is removed with it."""
    yield tmp_path
    forget(tmp_path)


@pytest.fixture(scope="session")
def cluster_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("set")
    return Settings(data_dir=str(folder), ray=RaySettings(dashboard=False, num_cpus=2))


@pytest.fixture(scope="session")
def local_set(cluster_settings: Settings) -> Iterator[LocalSet]:
    running = up(cluster_settings, factory="stand_in:open_idle", python_path=[HERE])
    try:
        yield running
    finally:
        down(running.data_dir)


@pytest.fixture(scope="session")
def shared_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSet]:
    folder = tmp_path_factory.mktemp("shared")
    ray = RaySettings(dashboard=False, num_cpus=2, task_wait_s=2)
    settings = Settings(data_dir=str(folder), ray=ray)
    try:
        yield up(settings)
    finally:
        down(folder)
        forget(folder)
    assert processes_naming(folder) == []


@pytest.fixture(scope="session")
def api_url() -> Iterator[str]:
    """The fixture API in a process of its own."""
    with fixture_api() as url:
        yield url


@pytest.fixture(scope="session")
def cli(shared_set: LocalSet, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """The command line beside the set with the real roles."""
    return Cli(data_dir=Path(shared_set.data_dir), folder=tmp_path_factory.mktemp("person"))


@pytest.fixture(scope="session")
def joined(local_set: LocalSet) -> Iterator[LocalSet]:
    """This process as a driver of the set's Ray."""
    # Ray reads these while it loads, so it is imported only now.
    os.environ.update(client_environment(Path(local_set.data_dir)))
    import ray

    ray.init(
        address=local_set.ray_address,
        namespace="noetl",
        log_to_driver=False,
        logging_level="warning",
    )
    try:
        yield local_set
    finally:
        ray.shutdown()
