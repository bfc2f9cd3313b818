"""The catalog from the command line on a real set: two versions, each run by its path."""

from __future__ import annotations

import httpx
import pytest

from tests.support.patient import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SALE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: sale, path: shop/sale}}
workload: {{order: 7, password: hunter2-secret}}
workflow:
  - step: sell
    tool:
      kind: python
      input: {{order: "{{{{ workload.order }}}}", secret: "{{{{ workload.password }}}}"}}
      code: |
        result = {{"order": order, "version": {version}, "note": secret}}
      spec:
        business_object:
          type: order
          id: "{{{{ output.order }}}}"
          status: {status}
          attributes: {{version: "{{{{ output.version }}}}", note: "{{{{ output.note }}}}"}}
"""

SLOW = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: wait, path: shop/wait}
workflow:
  - step: nap
    tool: {kind: python, code: "import time; time.sleep(60)"}
"""


@pytest.fixture(scope="module")
def shop(cli):
    """Two versions of one playbook, registered from a folder and from a file."""
    folder = cli.folder / "shop"
    folder.mkdir()
    (folder / "sale.yaml").write_text(SALE.format(version=1, status="sold"))
    (folder / "values.yaml").write_text("a: 1\n")
    first = cli("register", "shop", "--json").ok().value
    assert (first["path"], first["version"], first["status"]) == ("shop/sale", 1, "registered")
    cli.write("sale2.yaml", SALE.format(version=2, status="shipped"))
    second = cli("register", "sale2.yaml", "--json").ok().value
    assert (second["version"], second["status"]) == (2, "registered")
    return cli


def test_each_version_runs_by_its_path(shop):
    ran = {}
    for name in ("shop/sale@1", "shop/sale", "shop/sale@latest"):
        found = shop("run", name, "--json").ok().value
        own = found["execution_id"]
        assert (found["path"], found["status"]) == ("shop/sale", "COMPLETED")
        result = shop("result", own, "sell", "--json").ok().value
        ran[name] = (found["playbook_version"], result["version"])
    assert ran == {"shop/sale@1": (1, 1), "shop/sale": (2, 2), "shop/sale@latest": (2, 2)}


def test_what_was_registered_can_be_seen(shop):
    assert shop("catalog", "show", "shop/sale@1").ok().out == SALE.format(version=1, status="sold")
    versions = shop("catalog", "list", "shop/sale", "--json").ok().values
    assert [each["version"] for each in versions] == [2, 1]
    again = shop("register", "sale2.yaml", "--json").ok().value
    assert (again["version"], again["status"]) == (2, "unchanged")
    until(lambda: "shop/sale" in shop("catalog", "list").ok().out, "the path is listed")
    lines = shop("catalog", "diff", "shop/sale").ok().out.splitlines()
    assert lines[:2] == ["--- shop/sale@1", "+++ shop/sale@2"]
    assert "+          status: shipped" in lines
    lost = shop("run", "shop/sael")
    assert lost.code == 2
    assert "did you mean 'shop/sale'?" in lost.err


def test_an_object_has_its_newest_status_and_its_history(shop):
    for version in (1, 2):
        shop("run", f"shop/sale@{version}", "--set", "order=42", "--json").ok()
    history = shop("objects", "order", "42", "--json").ok().values
    assert [each["status"] for each in history] == ["shipped", "sold"]
    assert [each["attributes"]["version"] for each in history] == [2, 1]
    assert history[0]["version"] > history[1]["version"]
    (now,) = [each for each in shop("objects", "order", "--json").ok().values if each["id"] == "42"]
    assert (now["status"], now["step"]) == ("shipped", "sell")
    assert "hunter2-secret" not in str(history), "a secret of the workload is nobody's attribute"


def test_outside_events_and_commands_over_http(shop, shared_set):
    shop.write("wait.yaml", SLOW)
    own = shop("submit", "wait.yaml", "--json").ok().value["execution_id"]
    headers = {"authorization": f"Bearer {shared_set.token}"} if shared_set.token else {}
    with httpx.Client(base_url=shared_set.gateway_url, headers=headers, timeout=30) as http:
        body = {"execution_id": own, "name": "door.opened", "idempotency_key": "one"}
        first = http.post("/api/events", json=body)
        assert first.status_code == 202, first.text
        assert http.post("/api/events", json=body).json()["event_id"] == first.json()["event_id"]

        def commands():
            answer = http.get("/api/commands", params={"execution_id": own})
            return answer.json().get("commands")

        until(commands, "the command is projected")
        (command,) = commands()
        shown = http.get(f"/api/commands/{command['command_id']}", params={"execution_id": own})
        claim = {
            "execution_id": own,
            "position": shown.json()["issued_position"],
            "worker_id": command["worker_id"],
            "incarnation": command["incarnation"],
        }
        taken = http.post(f"/api/commands/{command['command_id']}/claim", json=claim)
        assert taken.status_code == 409, taken.text
        assert "is held by" in taken.json()["error"]["message"]
    shop("cancel", own).ok()

    def ended():
        return shop("status", own, "--json").ok().value["status"] == "CANCELLED"

    until(ended, f"{own} is cancelled")
    kinds = [each["event_type"] for each in shop("events", own, "--json").ok().values]
    assert kinds.count("external.received") == 1
