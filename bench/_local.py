"""A local set of a benchmark's own: started in a temporary folder, always taken down again."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from actors import local, ray_head
from bench._report import say
from noetl_ray.config.environ import environ
from noetl_ray.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.local import LocalSet


@contextlib.contextmanager
def local_set(settings: Settings | None = None) -> Iterator[LocalSet]:
    """The set a laptop gets, in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nb-"))
    # The embedded Postgres may run as another user, who must reach its folder.
    folder.chmod(0o711)
    say(f"starting a local set in {folder}")
    try:
        yield local.up(replace(settings or Settings(), data_dir=str(folder)))
    finally:
        local.down(folder)
        ray_head.forget(folder)
        shutil.rmtree(folder, ignore_errors=True)


def ray_environment(running: LocalSet) -> dict[str, str]:
    """The environment of a process that joins the set's Ray."""
    return {**environ(), **ray_head.client_environment(Path(running.data_dir))}


def chain(name: str, steps: int) -> str:
    """The text of a playbook of no-op steps, one after the other."""
    lines = [
        "apiVersion: noetl.io/v2",
        "kind: Playbook",
        f"metadata: {{name: {name}}}",
        "workflow:",
    ]
    for index in range(steps):
        lines += [f"  - step: s{index}", "    tool: {kind: noop}"]
        if index < steps - 1:
            lines.append(f"    next: s{index + 1}")
    return "\n".join(lines) + "\n"
