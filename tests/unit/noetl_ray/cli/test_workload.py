"""The workload of the command line: file first, --set on top, dots go deeper, values are YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_ray.cli.args import parse
from noetl_ray.cli.run import workload_of
from noetl_ray.errors import UsageError


def workload(*options: str) -> dict[str, object]:
    return workload_of(parse(["run", "p.yaml", *options]))


def test_nothing_given() -> None:
    assert workload() == {}


def test_values_are_yaml() -> None:
    assert workload(
        "--set", "n=5", "--set", "s=text", "--set", "q='5'", "--set", "l=[1, 2]", "--set", "e="
    ) == {"n": 5, "s": "text", "q": "5", "l": [1, 2], "e": None}


def test_an_equals_sign_in_the_value_stays() -> None:
    assert workload("--set", "url=http://h/?a=b") == {"url": "http://h/?a=b"}


def test_file_and_sets_merge(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("a: 1\nlimits: {rows: 5, pages: 2}\n")
    got = workload("--workload", str(path), "--set", "limits.rows=9", "--set", "x.y.z=true")
    assert got == {"a": 1, "limits": {"rows": 9, "pages": 2}, "x": {"y": {"z": True}}}


@pytest.mark.parametrize("text", ["novalue", "=5", "a..b=1", ".a=1", "a.=1", "a=[1"])
def test_bad_sets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        workload("--set", text)


def test_nothing_stands_below_a_value() -> None:
    with pytest.raises(UsageError, match="'a' holds a value"):
        workload("--set", "a=1", "--set", "a.b=2")


@pytest.mark.parametrize("text", ["[1]", "a: ["])
def test_bad_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="workload file"):
        workload("--workload", str(path))
    with pytest.raises(UsageError, match="No such file"):
        workload("--workload", str(tmp_path / "none"))
