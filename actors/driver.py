"""The process that talks to Ray on behalf of the local set.

Ray keeps its driver, its threads and its token in the process that joins it. Here that is a
process of its own, :mod:`actors.cluster` as a program: one request in, one answer out. Owns that
exchange, and refuses to know what is asked.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class HostsDriver:
    """One run of ``python -m actors.cluster``; loads Ray at once, then waits for its request."""

    def __init__(self, verb: str, *, log_path: Path, environment: Mapping[str, str]) -> None:
        self._log_path = log_path
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "actors.cluster", verb],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, request: dict[str, Any], *, wait_s: float) -> Any:
        """Send the request and wait for the answer, which ends the process.

        Raises:
            InternalError: The answer is an error, does not come in time, or the process died.
        """
        try:
            output, _ = self._process.communicate(json.dumps(request) + "\n", timeout=wait_s)
        except subprocess.TimeoutExpired:
            self.abandon()
            msg = f"Ray gave no answer in {wait_s:g} s; see {self._log_path}"
            raise InternalError(msg) from None
        lines = output.splitlines()
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        if "ok" not in answer:
            lost = f"the process that talks to Ray died; see {self._log_path}"
            msg = str(answer.get("error", lost))
            raise InternalError(msg)
        return answer["ok"]

    def abandon(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        # An exchange that was cut short leaves its pipes open, perhaps with a request half written.
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
