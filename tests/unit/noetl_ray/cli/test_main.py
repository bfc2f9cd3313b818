"""Exit codes and how errors look: one clear line, a hint, no traceback unless asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noetl_ray import errors
from noetl_ray.cli.main import exit_code, hint, main


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOETL_CONFIG", raising=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("noetl-ray ")
    assert main(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version", "python"}


@pytest.mark.parametrize(
    "call",
    [["status", "1"], ["list"], ["logs", "1"], ["credential", "list"], ["cancel", "1"]],
    ids=" ".join,
)
def test_nothing_up_says_what_to_do(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*call, "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: nothing runs in ")
    assert "noetl-ray up" in shown.err
    assert "Traceback" not in shown.err


def test_a_bad_setting_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    Path("noetl-ray.yaml").write_text("runtime: {wrkers: 2}")
    assert main(["list"]) == 2
    error, advice = capsys.readouterr().err.splitlines()
    assert error.startswith("error: runtime.wrkers")
    assert "did you mean 'workers'?" in error
    assert advice.startswith("hint: ")


def test_a_missing_file_is_bad_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "none.yaml"]) == 2
    assert "cannot read none.yaml: No such file" in capsys.readouterr().err


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "status", "1"]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "error: nothing runs" in shown


@pytest.mark.parametrize("call", [["--address", "host:1"], ["--token-file", "none"]])
def test_bad_addresses_and_token_files(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*call, "list"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_an_empty_token_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("token").write_text("\n")
    assert main(["--address", "http://127.0.0.1:1", "--token-file", "token", "list"]) == 2
    assert "is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.ConfigError("k", 1, "r"), 2),
        (errors.NotFoundError("x"), 2),
        (errors.ConflictError("x"), 2),
        (errors.PlaybookError("x"), 2),
        (errors.LogUnavailableError("x"), 2),
        (errors.StoreUnavailableError("x"), 2),
        (errors.InternalError("x"), 1),
        (errors.StoreError("x"), 1),
        (errors.ToolError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_exit_codes(error: errors.NoetlError, code: int) -> None:
    assert exit_code(error) == code


def test_hints_do_not_repeat_what_the_message_says() -> None:
    assert hint(errors.NotFoundError("no execution 5")) != ""
    assert hint(errors.NotFoundError("add it with: noetl-ray credential add x")) == ""
    assert "--debug" in hint(errors.InternalError("x"))


def test_down_without_a_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--data-dir", "d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopped"] is False
