"""The command line as a person has it: the installed program, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = Path(sys.executable).with_name("noetl-ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a call ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> list[Any]:
        """Standard output of a ``--json`` call."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def value(self) -> Any:
        """The only JSON value of standard output."""
        (found,) = self.values
        return found

    def ok(self) -> Done:
        """The same, once it is clear that the call went well."""
        assert self.code == 0, f"exit {self.code}\n{self.out[-2000:]}\n{self.err[-4000:]}"
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """Calls with one data directory and working folder, and nothing of the tests' own settings."""

    data_dir: Path
    folder: Path

    def __call__(self, *words: object, wait_s: float = 120.0, text: str | None = None) -> Done:
        """Run to the end."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=wait_s,
            check=False,
        )
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """Start a call that the test will interrupt."""
        return subprocess.Popen(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, *words: object) -> list[str]:
        return [str(PROGRAM), *(str(word) for word in words), "--data-dir", str(self.data_dir)]

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NOETL", "RAY_"))}
        return {**kept, "COLUMNS": "200", "NO_COLOR": "1"}

    def write(self, name: str, text: str) -> str:
        """A file in the working folder."""
        (self.folder / name).write_text(text)
        return name


def processes_naming(data_dir: Path) -> list[str]:
    """Every other process that has this directory in its command line or environment."""
    wanted = str(data_dir).encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            if wanted in command or wanted in (folder / "environ").read_bytes():
                shown = command.replace(b"\0", b" ").decode(errors="replace")[:120]
                found.append(f"{folder.name} {shown}")
        except OSError:
            # It ended while we looked, or is not ours to look at.
            continue
    return found
