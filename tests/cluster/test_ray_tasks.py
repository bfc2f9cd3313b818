"""Playbooks whose tasks ask for resources, from the command line to Ray and back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.support.journal import raw_messages, tables_as_text

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: %s}\n"

LOOP = (
    HEAD % "ray_loop"
    + """
workload: {cpus: 0.5, base: 10}
workflow:
  - step: each
    loop: {in: "{{ [1, 2, 3, 4] }}", iterator: n, spec: {mode: parallel, max_in_flight: 4}}
    tool:
      kind: python
      auth: ray_vault
      code: |
        def main(n, base):
            print("the key is", auth["token"])
            return {"square": base + n * n, "ray": sorted(k for k in os.environ if "RAY" in k)}
      spec:
        resources: {num_cpus: "{{ cpus }}", "node:127.0.0.1": 0.1}
        runtime_env: {env_vars: {LEVEL: low}}
    next: {arcs: [{step: large}]}
  - step: large
    tool:
      kind: python
      input: {squares: "{{ each.results }}"}
      code: |
        result = {"sum": sum(s["square"] for s in squares), "text": "x" * 3_000_000}
      spec: {resources: {num_cpus: 1, memory: 300MiB}}
"""
)

INFEASIBLE = (
    HEAD % "ray_infeasible"
    + """
workflow:
  - step: start
    tool:
      kind: python
      code: result = 1
      spec: {resources: {licence: 3}}
"""
)

SLOW = (
    HEAD % "ray_slow"
    + """
workload: {sign: ""}
workflow:
  - step: start
    tool:
      kind: python
      input: {sign: "{{ sign }}"}
      code: |
        import time
        open(sign, "w").write(str(os.getpid()))
        time.sleep(120)
      spec: {resources: {num_cpus: 0.1}}
"""
)


def test_a_loop_of_ray_tasks_gives_results_prints_and_no_secret(cli, shared_set):
    secret = "vault-" + "8c1f22"
    data = json.dumps({"token": secret})
    cli("credential", "add", "ray_vault", "--type", "bearer", text=data).ok()
    path = cli.write("ray_loop.yaml", LOOP)
    done = cli("run", path, "--json").ok()
    execution = done.values[-1]["execution_id"]
    each = cli("result", execution, "each", "--json").ok().value
    assert [one["square"] for one in each["results"]] == [11, 14, 19, 26]
    assert [one["ray"] for one in each["results"]] == [[]] * 4
    large = cli("result", execution, "large", "--json").ok().value
    assert large["sum"] == 70
    assert len(large["text"]) == 3_000_000
    logs = cli("logs", execution, "each").ok().out
    assert logs.count("the key is ***") == 4
    assert secret not in logs + str(tables_as_text(shared_set.postgres_dsn))
    kept = raw_messages(shared_set).values()
    assert not any(secret.encode() in message for messages in kept for message in messages)


def test_a_wish_nobody_can_meet_fails_with_what_there_is(cli):
    path = cli.write("ray_infeasible.yaml", INFEASIBLE)
    done = cli("run", path, "--json")
    assert done.code == 1
    said = done.out + done.err
    assert "no node of the Ray cluster can give the task CPU 1, licence 3" in said
    assert "the nodes have: CPU 2, memory" in said


def test_cancel_ends_the_ray_task(cli, tmp_path):
    sign = tmp_path / "pid"
    path = cli.write("ray_slow.yaml", SLOW)
    sent = cli("submit", path, "--set", f"sign={sign}", "--json").ok().value
    deadline = time.monotonic() + 60
    while not (sign.exists() and sign.read_text()):
        assert time.monotonic() < deadline, "the task did not start"
        time.sleep(0.02)
    pid = int(sign.read_text())
    os.kill(pid, 0)
    cli("cancel", sent["execution_id"]).ok()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the code still runs"
        time.sleep(0.02)
