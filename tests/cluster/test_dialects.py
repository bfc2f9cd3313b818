"""A playbook of each dialect from the command line, on Ray, with its rows in Postgres."""

from __future__ import annotations

import pytest

from actors.local import DEMO_DATABASE
from noetl_ray.embedded.postgres import with_database
from tests.support.dialects import EXPECTED
from tests.support.journal import fetch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SAVED = {
    "docs": ("SELECT sum(amount)::int AS n FROM dialect_docs WHERE execution_id = $1::bigint", 70),
    "python": ("SELECT count(*)::int AS n FROM dialect_python WHERE run = 'users_' || $1", 35),
    "rust": (
        "SELECT (best->>'score')::int AS n FROM dialect_rust WHERE execution_id = $1::bigint",
        55,
    ),
}


@pytest.mark.parametrize("dialect", list(EXPECTED))
def test_a_playbook_of_each_dialect_runs_from_the_command_line(
    cli, shared_set, api_url, repository, dialect
):
    playbook = repository / "examples" / "dialects" / f"{dialect}.yaml"
    done = cli("run", playbook, "--set", f"api_url={api_url}", "--json").ok().value
    assert done["status"] == "COMPLETED"
    own = done["execution_id"]
    report = cli("result", own, "report", "--json").ok().value
    assert {key: report[key] for key in EXPECTED[dialect]} == EXPECTED[dialect]
    query, expected = SAVED[dialect]
    (saved,) = fetch(
        with_database(shared_set.postgres_dsn, DEMO_DATABASE),
        query,
        own if dialect == "python" else int(own),
    )
    assert saved["n"] == expected
