"""A real distribution, installed for the test, brings a tool kind and a keychain kind."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

MODULE = """
from typing import ClassVar

from noetl_ray.tools.port import ToolResult


class Shout:
    kind: ClassVar[str] = "shout"
    side_effects: ClassVar[bool] = False
    meta_key: ClassVar[str] = "shout"
    text_keys: ClassVar[frozenset] = frozenset()

    async def run(self, config, context):
        return ToolResult(data={"text": str(config["text"]).upper()})

    async def close(self):
        pass


async def vault(config):
    return {"token": "from-" + config["provider"]}
"""
ENTRY_POINTS = """
[noetl_ray.tools]
shout = noetl_shout:Shout

[noetl_ray.keychain]
secret_manager = noetl_shout:vault
"""
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
keychain: [{name: k, kind: secret_manager, provider: here}]
workflow: [{step: a, tool: {kind: shout, text: "hello"}}]
"""
USE = """
import asyncio, sys
from noetl_ray.dsl.parse import check_playbook
from noetl_ray.tools.keychain_kinds import fetch
from noetl_ray.tools.port import ToolContext
from noetl_ray.tools.registry import default_registry

problems = [p.message for p in check_playbook(sys.argv[1]) if p.severity == "error"]
assert problems == [], problems
registry = default_registry(python_processes=1)
assert "shout" in registry.kinds()
assert not registry.side_effects("shout")
assert "noetl_shout" in sys.modules


async def main():
    result = await registry.get("shout").run({"text": "hello"}, None)
    assert result.data == {"text": "HELLO"}
    fetched = await fetch("k", "secret_manager", {"provider": "here"}, None)
    assert fetched.fields == {"token": "from-here"}
    assert fetched.secrets == {"from-here"}
    await registry.close()


asyncio.run(main())
print("used")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that a wheel was installed into, as an installer lays it out."""
    wheel = tmp_path / "noetl_shout-1.0-py3-none-any.whl"
    info = "noetl_shout-1.0.dist-info"
    files = {
        "noetl_shout.py": MODULE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: noetl-shout\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
        archive.writestr(f"{info}/RECORD", record)
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def run(code: str, *arguments: str, path: Path | None) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    return subprocess.run(
        [sys.executable, "-c", start + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_package_brings_a_kind(site: Path) -> None:
    done = run(USE, PLAYBOOK, path=site)
    assert done.stdout == "used\n", done.stderr


def test_without_the_package_the_kind_is_unknown() -> None:
    done = run(USE, PLAYBOOK, path=None)
    assert done.returncode == 1
    assert "unknown tool kind 'shout'" in done.stderr
