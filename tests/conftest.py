"""What holds for every test: unit and simulation tests never start Ray."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
_NO_RAY = (ROOT / "tests" / "unit", ROOT / "tests" / "simulation", ROOT / "tests" / "golden")


@pytest.fixture(autouse=True)
def _no_ray_in_fast_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    ray = sys.modules.get("ray")
    fast = any(request.path.is_relative_to(folder) for folder in _NO_RAY)
    if fast and ray is not None and ray.is_initialized():
        ray.shutdown()
        pytest.fail("a fast test started Ray; move it to tests/cluster")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT
