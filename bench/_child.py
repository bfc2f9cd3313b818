"""A process that answers lines: how a benchmark talks to its reference, once it is warm.

Owns pipes and deadlines. A question is one line of JSON, an answer is one line of JSON; what the
child says otherwise goes to its standard error.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parent.parent
ANSWER_S = 120.0
END_S = 20.0


class Child:
    """One run of a module of this package."""

    def __init__(self, module: str, *args: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *args],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, question: Any = None, within_s: float = ANSWER_S) -> Any:
        """Send a question and wait for its answer.

        Raises:
            RuntimeError: no answer came in time, or the process ended.
        """
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        sink.write(json.dumps(question).encode() + b"\n")
        sink.flush()
        ready, _, _ = select.select([source], [], [], within_s)
        line = source.readline() if ready else b""
        if not line:
            msg = f"{self._process.args!r} gave no answer"
            raise RuntimeError(msg)
        return json.loads(line)

    def close(self) -> None:
        """End it: first by closing its input, then by force."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def answer(work: Callable[[Any], Any]) -> None:
    """The child's side: answer each line until there are no more."""
    for line in sys.stdin:
        print(json.dumps(work(json.loads(line))), flush=True)
