"""What the import linter cannot see: lazy and dynamic imports, proved in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("ray", "raydp", "nats", "asyncpg", "pyarrow", "pandas", "pyspark", "fsspec")


def loaded_by(*modules: str) -> set[str]:
    """The heavy packages that importing these modules pulls in."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def modules_below(*folders: str) -> list[str]:
    return sorted(
        path.relative_to(ROOT)
        .with_suffix("")
        .as_posix()
        .replace("/", ".")
        .removesuffix(".__init__")
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    )


def test_the_pure_middle_is_light() -> None:
    pure = modules_below("noetl_ray/engine", "noetl_ray/events", "noetl_ray/dsl", "placement")
    assert "noetl_ray.engine.fold" in pure
    assert loaded_by(*pure) == set()


def test_the_names_are_light() -> None:
    assert loaded_by(*modules_below("noetl_ray/locator", "noetl_ray/config")) == set()


@pytest.mark.parametrize("module", ["noetl_ray.cli.main", "noetl_ray.client"])
def test_starting_the_command_line_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(module) == set()
