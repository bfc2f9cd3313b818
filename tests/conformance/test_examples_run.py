"""Every small example, one per tool and construct, runs as it stands and gives what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetl_ray.embedded.nats import NatsProcess
from tests.contract.fixtures_nats import nats_server as nats_server
from tests.support.conformance import Runtime

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = ("tools", "constructs")
CALLED = {"tools/score"}
"""Examples that others call."""

EXPECTED: dict[str, dict[str, Any]] = {
    "tools/python": {"wait": {"text": "most often: sand"}},
    "tools/http": {"report": {"last_page": 5, "more": False, "limited": 200}},
    "tools/postgres": {"report": {"names": ["Ada", "O'Brien"], "inserted": 2}},
    "tools/shell": {
        "report": {
            "plain": "two words; and no command|end|",
            "piped": "TWO WORDS; AND NO COMMAND",
            "code": 0,
        }
    },
    "tools/transfer": {"report": {"read": 20, "chunks": 3, "written": 20}},
    "tools/nats": {"report": {"n": 7, "encoding": "json"}},
    "tools/playbook": {"report": {"first": 13, "how": "completed", "all": [13, 21]}},
    "tools/noop": {"start": {"turn": 4}},
    "constructs/cycle": {"report": {"count": 35, "last": 35, "pages": 4}},
    "constructs/pipeline": {"report": {"pages": [7, 4], "seen": [35, 35]}},
    "constructs/failures": {"mend": {"why": "ValueError"}, "last": {"done": True}},
    "constructs/loops": {"report": {"sums": [3, 4, 6], "squares": [9, 1, 4]}},
    "constructs/joins": {"merge": {"category": "high", "sum": 3}},
    "constructs/variables": {
        "report": {
            "typed": [1, 2],
            "text": "3 of 2",
            "arc": 2,
            "absent": "nothing",
            "named": True,
            "seeded": True,
        }
    },
}
PARTLY: dict[str, dict[str, Any]] = {
    "tools/duckdb": {
        "report": {
            "rows": [
                {"name": "Ada", "spent": 20, "orders": 5},
                {"name": "Bo", "spent": 25, "orders": 5},
            ]
        }
    },
    "tools/workbook": {"again": {"text": "Hello, Ada! And hello, Grace!"}},
    "constructs/policies": {"absent": {"missing": True, "tries": 1, "page": 2}},
    "constructs/cursor": {"report": {"rows": [{"done": 7, "doubled": 56, "processed": 7}]}},
}


@pytest.fixture(scope="module")
def servers(runtime: Runtime, pg: str, nats_server: NatsProcess) -> None:
    runtime.credential("nats_local", "nats", {"url": nats_server.url, "token": nats_server.token})
    score = (EXAMPLES / "tools" / "score.yaml").read_text()
    runtime.register_text(score)


def test_every_small_example_is_run_and_named_on_the_pages() -> None:
    found = {f"{path.parent.name}/{path.stem}" for path in EXAMPLES.glob("*/*.yaml")}
    small = {name for name in found if name.split("/")[0] in SMALL}
    assert small == set(EXPECTED) | set(PARTLY) | CALLED
    pages = EXAMPLES.parent / "docs" / "playbooks.md", EXAMPLES / "README.md"
    for page in pages:
        text = page.read_text()
        assert [name for name in sorted(small) if f"{name}.yaml" not in text] == [], page.name


@pytest.mark.parametrize("name", sorted({**EXPECTED, **PARTLY}))
def test_a_small_example(runtime: Runtime, servers: None, api_url: str, name: str) -> None:
    text = (EXAMPLES / f"{name}.yaml").read_text()
    payload = {"api_url": api_url} if "api_url" in text else {}
    ended = runtime.run(text, payload).completed()
    for step, expected in EXPECTED.get(name, {}).items():
        assert ended[step] == expected
    for step, fields in PARTLY.get(name, {}).items():
        assert {key: ended[step][key] for key in fields} == fields


def test_the_failures_example_admits_and_skips(runtime: Runtime) -> None:
    text = (EXAMPLES / "constructs" / "failures.yaml").read_text()
    ended = runtime.run(text).completed()
    assert {name: step.status for name, step in ended.state.steps.items()} == {
        "start": "failed",
        "mend": "completed",
        "guarded": "skipped",
        "skipped": "skipped",
        "last": "completed",
    }
    assert ended.state.failures_handled == 1
