"""Secrets in results, prints and errors: steps can use them, and they are written down nowhere.

Values are put together at run time, so that the playbook's own text does not hold them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actors.ray_head import temp_dir_of
from tests.support.cli import Done
from tests.support.journal import raw_messages, tables_as_text
from tests.support.patient import ask, check_execution, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRETS = ("hunter22", "tok-5f31c7a9", "open-sesame-41")

LOGIN = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: login}
workflow:
  - step: login
    tool:
      kind: python
      code: |
        token = "tok-5f" + "31c7a9"
        result = {"user": "ada", "password": "hunt" + "er22", "deep": [{"token": token}]}
      spec:
        policy:
          rules:
            - when: "{{ output.status == 'ok' }}"
              then:
                do: continue
                set:
                  ctx.token: "{{ output.data.deep[0].token }}"
                  ctx.innocent: "Bearer {{ output.data.deep[0].token }}"
    set: {ctx.user: "{{ login.user }}", ctx.session_token: "{{ output.data.deep[0].token }}"}
    next: {arcs: [{step: use}]}
  - step: use
    tool:
      kind: python
      input: {p: "{{ login.password }}", t: "{{ login.deep[0].token }}"}
      code: |
        print("the password is", p, "and the token", t)
        result = {"user": "ada", "right": [p == "hunt" + "er22", t == "tok-5f" + "31c7a9"]}
    next: {arcs: [{step: complain}]}
  - step: complain
    tool:
      kind: python
      input: {p: "{{ login.password }}"}
      code: |
        raise ValueError(f"{p} was refused")
"""

CREDENTIAL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: uses_credential}
workflow:
  - step: show
    tool:
      kind: python
      auth: vault
      code: |
        import sys
        print("it is", auth["password"])
        print("on the other stream", auth["password"], file=sys.stderr)
        result = {"user": "ada", "echo": f"<{auth['password']}>"}
"""


@pytest.fixture
def told() -> list[Done]:
    """Everything the command line said."""
    return []


def test_a_secret_in_a_result_is_used_and_written_nowhere(cli, shared_set, told):
    told.append(cli("run", cli.write("login.yaml", LOGIN), "--json"))
    assert told[0].code == 1
    execution_id = int(told[0].value["execution_id"])
    used = cli("result", execution_id, "use", "--json").ok()
    assert used.value == {"user": "ada", "right": [True, True]}
    shown = cli("result", execution_id, "login", "--json").ok()
    assert shown.value == {"user": "ada", "password": "***", "deep": [{"token": "***"}]}
    lines = until(lambda: cli("logs", execution_id).ok().out, "the printed line")
    assert "the password is *** and the token ***" in lines
    assert "*** was refused" in told[0].value["error"]["message"]
    told += [used, shown, *(cli(verb, execution_id) for verb in ("status", "events", "logs"))]
    told += [cli("events", execution_id, "--json"), cli("status", execution_id, "--json")]
    check_execution(shared_set, execution_id)
    check_written_nowhere(shared_set, told)


def test_a_printed_password_of_a_credential_is_masked(cli, shared_set, told):
    data = json.dumps({"password": "open-" + "sesame-41", "username": "ada"})
    told.append(cli("credential", "add", "vault", "--type", "generic", text=data).ok())
    told.append(cli("credential", "list", "--json").ok())
    (entry,) = [each for each in told[1].values if each["name"] == "vault"]
    assert set(entry["fields"]) == {"password", "username"}
    told.append(cli("run", cli.write("vault.yaml", CREDENTIAL), "--json").ok())
    execution_id = told[2].value["execution_id"]
    result = cli("result", execution_id, "show", "--json").ok()
    assert result.value == {"user": "ada", "echo": "<***>"}

    def lines() -> list[str] | None:
        found = [each["text"] for each in cli("logs", execution_id, "--json").ok().values]
        return found if len(found) == 2 else None

    assert sorted(until(lines, "two printed lines")) == ["it is ***", "on the other stream ***"]
    told += [result, cli("logs", execution_id), cli("events", execution_id, "--json")]
    check_written_nowhere(shared_set, told)
    cli("credential", "remove", "vault").ok()
    names = [each.name for each in ask(shared_set, lambda client: client.credential_list())]
    assert "vault" not in names


def check_written_nowhere(running, told: list[Done]) -> None:
    """Not in any stream of NATS, table of Postgres, log file, or word of the command line."""
    places: dict[str, list[str]] = {"command line": [each.out + each.err for each in told]}
    for stream, messages in raw_messages(running).items():
        places[f"stream {stream}"] = [data.decode(errors="replace") for data in messages]
    for table, rows in tables_as_text(running.postgres_dsn).items():
        places[f"table {table}"] = rows
    # What is no secret is found, so the search itself works.
    assert any('"ada"' in text for text in places["stream noetl_events"])
    assert any('"ada"' in text for text in places["table event"])
    for path in log_files(running):
        places[str(path)] = [path.read_text(errors="replace")]
    found = [
        (place, secret, text[max(0, text.index(secret) - 60) : text.index(secret) + 60])
        for place, texts in places.items()
        for text in texts
        for secret in SECRETS
        if secret in text
    ]
    assert found == []


def log_files(running) -> list[Path]:
    data_dir = Path(running.data_dir)
    found = [*data_dir.glob("*.log"), *temp_dir_of(data_dir).glob("session_2*/logs/*")]
    assert len(found) > 3
    return [path for path in found if path.is_file()]
