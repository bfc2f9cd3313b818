"""One example per dialect, run as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.conformance import Runtime
from tests.support.dialects import EXPECTED


@pytest.mark.parametrize("dialect", list(EXPECTED))
def test_an_example_of_each_dialect_runs(
    runtime: Runtime, api_url: str, pg: str, repository: Path, dialect: str
):
    source = (repository / "examples" / "dialects" / f"{dialect}.yaml").read_text()
    report = runtime.run(source, {"api_url": api_url, "pg_auth": pg}).completed()["report"]
    assert {key: report[key] for key in EXPECTED[dialect]} == EXPECTED[dialect]
