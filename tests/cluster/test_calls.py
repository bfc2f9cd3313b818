"""Playbooks that call playbooks, from the command line on a real set."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SLOW = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: slow, path: calls/slow}
workflow:
  - step: start
    tool: {kind: shell, cmds: sleep 600}
"""
PARENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: calls/parent}
workflow:
  - step: start
    tool: {kind: playbook, path: calls/slow}
"""


def until(look, wait_s: float = 60.0):
    deadline = time.monotonic() + wait_s
    while not (found := look()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)
    return found


def test_the_playbook_example_shows_parent_and_children(cli, repository):
    tools = repository / "examples" / "tools"
    cli("register", tools / "score.yaml").ok()
    done = cli("run", tools / "playbook.yaml", "--json").ok().value
    assert done["status"] == "COMPLETED"
    own = done["execution_id"]
    assert cli("result", own, "report", "--json").ok().value["all"] == [13, 21]

    def children():
        found = cli("status", own, "--json").ok().value.get("children", [])
        return found if len(found) == 3 else None

    listed = until(children)
    assert {child["path"] for child in listed} == {"examples/tools/score"}
    child = listed[0]["execution_id"]
    assert f"child of {own}" in cli("status", child).ok().out
    rows = cli("list", "--parent", own, "--json").ok().out.splitlines()
    assert len(rows) == 3


def test_a_cancel_reaches_the_child_and_what_it_runs(cli, tmp_path):
    for name, text in (("slow", SLOW), ("parent", PARENT)):
        (tmp_path / f"{name}.yaml").write_text(text)
        cli("register", tmp_path / f"{name}.yaml").ok()
    own = cli("submit", "calls/parent", "--json").ok().value["execution_id"]

    def status(execution_id):
        return cli("status", execution_id, "--json").ok().value

    (child,) = until(lambda: status(own).get("children"))
    until(lambda: status(child["execution_id"])["status"] == "RUNNING")
    cli("cancel", own, "--reason", "enough").ok()
    until(lambda: status(own)["status"] == "CANCELLED")
    until(lambda: status(child["execution_id"])["status"] == "CANCELLED", 30)
