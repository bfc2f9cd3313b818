"""Every rule of the language has a test that holds the runtime to it, and none is named in vain.

Reads the table in ``tests/conformance/rules.toml`` and the names of tests; starts nothing. Where
the language page itself lies beside the checkout, its rules are counted too.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from noetl_ray.dsl.language import KINDS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "conformance"
PAGES = [folder / "shared" / "spec" / "dsl.md" for folder in ROOT.parents]
SECTIONS = range(16)
"""Section 16 of the page only repeats what others say."""


def table() -> list[dict[str, Any]]:
    """The sections with their rules."""
    return list(tomllib.loads((FOLDER / "rules.toml").read_text())["section"])


def test_names(path: Path) -> list[str]:
    """The test functions of a module."""
    return [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    ]


test_names.__test__ = False  # type: ignore[attr-defined]


def own_tests() -> list[str]:
    """The tests of the suite; those that run the examples of the language page are apart."""
    files = sorted(set(FOLDER.glob("test_*.py")) - set(FOLDER.glob("test_examples*.py")))
    return [name for path in files for name in test_names(path)]


def exists(name: str, own: Iterable[str]) -> bool:
    """Whether a test is there: one of the suite by its name, any other by path and name."""
    path, _, function = name.rpartition("::")
    if not path:
        return name in own
    return (ROOT / path).is_file() and function in test_names(ROOT / path)


def wrong_with(sections: list[dict[str, Any]], own: list[str], kinds: Iterable[str]) -> list[str]:
    """Everything wrong with a table; empty when all holds."""
    wrong = []
    numbers = [section["number"] for section in sections]
    if numbers != list(SECTIONS):
        wrong.append(f"sections are {numbers}")
    ids: Counter[str] = Counter()
    for section in sections:
        number, binding = section["number"], section["binding"]
        wanted = {f"R{number}.{n + 1}" for n in range(binding)}
        known = re.compile(rf"S{number}\.[1-9][0-9]*")
        for rule in section["rules"]:
            ids[rule["id"]] += 1
            if rule["id"] not in wanted and not known.fullmatch(rule["id"]):
                wrong.append(f"{rule['id']}: no such rule in section {number}")
            if not rule["text"].endswith("."):
                wrong.append(f"{rule['id']}: its text is no sentence")
            waits = "needs_kind" in rule and rule["needs_kind"] not in kinds
            if not rule.get("tests") and not waits:
                wrong.append(f"{rule['id']}: no test")
            wrong += [
                f"{rule['id']}: there is no test {name}"
                for name in rule.get("tests", [])
                if not exists(name, own)
            ]
        wrong += [f"{rule}: not in the table" for rule in sorted(wanted - set(ids))]
    wrong += [f"{rule} stands {count} times" for rule, count in ids.items() if count > 1]
    mapped = {name for s in sections for rule in s["rules"] for name in rule.get("tests", [])}
    wrong += [f"{name}: belongs to no rule" for name in own if name not in mapped]
    wrong += [f"{name}: two tests have this name" for name, n in Counter(own).items() if n > 1]
    return wrong


def test_every_rule_of_the_language_has_its_tests():
    assert wrong_with(table(), own_tests(), KINDS) == []


def test_the_page_has_the_rules_of_the_table():
    page = next((path for path in PAGES if path.is_file()), None)
    if page is None:
        pytest.skip("the language page does not lie beside this checkout")
    found: Counter[int] = Counter()
    number = 0
    for line in page.read_text().splitlines():
        heading = re.match(r"## ([0-9]+)\. ", line)
        if heading:
            number = int(heading[1])
        found[number] += line.count("RULE") - line.startswith("**RULE** =")
    assert set(found) <= {*SECTIONS, 16}
    expected = {section["number"]: section["binding"] for section in table()}
    assert {n: found[n] for n in (*SECTIONS, 16)} == {**expected, 16: 0}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tests": []}, "R0.1: no test"),
        ({"tests": ["test_nowhere"]}, "R0.1: there is no test test_nowhere"),
        (
            {"tests": ["tests/test_tidy.py::test_nowhere"]},
            "no test tests/test_tidy.py::test_nowhere",
        ),
        ({"id": "R0.2"}, "R0.2: no such rule in section 0"),
        ({"id": "S0.1"}, "R0.1: not in the table"),
        ({"text": "No sentence"}, "R0.1: its text is no sentence"),
        ({"tests": [], "needs_kind": "noop"}, "R0.1: no test"),
    ],
)
def test_a_table_with_a_gap_is_refused(change: dict[str, Any], told: str):
    sections = table()
    sections[0]["rules"][0].update(change)
    assert any(told in line for line in wrong_with(sections, own_tests(), KINDS))


def test_a_test_without_a_rule_is_refused():
    own = [*own_tests(), "test_of_nothing", "test_of_nothing"]
    wrong = wrong_with(table(), own, KINDS)
    assert "test_of_nothing: belongs to no rule" in wrong
    assert "test_of_nothing: two tests have this name" in wrong
