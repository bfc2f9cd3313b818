"""``explain``: the drawing, the Mermaid text, the machine's answer, and what cannot be drawn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noetl_ray.cli.main import main

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pages, path: demo/pages, description: Reads pages.}
workflow:
  - step: start
    desc: Set out.
    next: [fetch, audit]
  - step: fetch
    tool: {kind: http, url: "http://localhost"}
    next:
      arcs:
        - {step: fetch, when: "{{ fetch.more }}"}
        - {step: join}
  - step: audit
    tool: [{kind: noop}, {kind: python, code: "x = 1"}]
    next: join
  - step: join
    tool: {kind: noop}
    next: end
  - step: lost
    tool: {kind: noop}
"""
DRAWING = """\
demo/pages  5 steps
Reads pages.

▶ start    routes only
│          Set out.
│          takes every arc that matches
├─▸ fetch
└─▸ audit

● fetch    http
├─↺ fetch  when fetch.more
└─▸ join   otherwise

● audit    noop + python
└─▸ join

◆ join     noop
│          joins fetch, audit
└─■ end

never reached
○ lost     noop
"""


@pytest.fixture
def pages(folder: Path) -> Path:
    path = folder / "pages.yaml"
    path.write_text(PLAYBOOK)
    return path


def test_the_drawing(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(pages)]) == 0
    shown = capsys.readouterr()
    assert [line.rstrip() for line in shown.out.splitlines()] == DRAWING.splitlines()
    assert "the step 'lost' is never reached" in shown.err


def test_mermaid(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(pages), "--mermaid"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("flowchart TD\n")
    assert '  s1 -.->|"fetch.more"| s1\n' in out
    assert "  class s4 unreached\n" in out


def test_the_answer_for_a_program(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(pages), "--json"]) == 0
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert answer["valid"] is True
    assert [step["name"] for step in answer["steps"]] == ["start", "fetch", "audit", "join", "lost"]
    assert answer["steps"][3]["joins"] == ["fetch", "audit"]
    assert answer["mermaid"].startswith("flowchart TD")
    assert [problem["severity"] for problem in answer["problems"]] == ["warning"]
    assert shown.err == ""


def test_a_playbook_with_errors_is_not_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.yaml").write_text(PLAYBOOK.replace("kind: http", "kind: htpt"))
    assert main(["explain", "bad.yaml"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "did you mean 'http'?" in shown.err
    assert main(["explain", "bad.yaml", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["valid"] is False


def test_a_file_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "none.yaml"]) == 2
    assert "cannot read none.yaml" in capsys.readouterr().err


def test_names_cannot_steer_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PLAYBOOK.replace("step: lost", 'step: "lo\\e[2Jst"')
    (folder / "odd.yaml").write_text(text)
    assert main(["explain", "odd.yaml"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "lo?[2Jst" in out
