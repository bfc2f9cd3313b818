from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noetl_ray.dsl.problems import Findings, Problem
from noetl_ray.dsl.source import NODES_MAX, SOURCE_BYTES_MAX, Node, line_count, read_source


def read(text: str) -> tuple[Node | None, list[Problem]]:
    findings = Findings()
    return read_source(text, findings), findings.sorted()


def data(text: str) -> Any:
    node, problems = read(text)
    assert node is not None, problems
    return node.data()


def shown(text: str) -> str:
    node, problems = read(text)
    assert node is None
    return problems[0].shown("f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", {"a": 1}),
        (
            "a: [1, 1.5, true, null, ~, text, '1', \"2\"]",
            {"a": [1, 1.5, True, None, None, "text", "1", "2"]},
        ),
        ("on: yes\n1: x\nnull: y", {"on": True, "1": "x", "null": "y"}),
        (
            "a: 2024-01-01\nb: 2024-01-01T00:00:00Z",
            {"a": "2024-01-01", "b": "2024-01-01T00:00:00Z"},
        ),
        ("a: 0x1F", {"a": 31}),
        ("a: 'x: y'\nb: |\n  l1\n  l2\n", {"a": "x: y", "b": "l1\nl2\n"}),
        ("a: &x {k: 1}\nb: *x", {"a": {"k": 1}, "b": {"k": 1}}),
        ("a: &x {k: 1, j: 2}\nb: {<<: *x, j: 3}", {"a": {"k": 1, "j": 2}, "b": {"j": 3, "k": 1}}),
        ("b: {<<: [{k: 1}, {k: 2, m: 3}]}", {"b": {"k": 1, "m": 3}}),
        ("a: !!str 5\nb: !!int '7'", {"a": "5", "b": 7}),
        ("a: =", {"a": "="}),
        ("--- \na: 1\n...", {"a": 1}),
    ],
)
def test_plain_values(text: str, expected: Any) -> None:
    assert data(text) == expected


def test_places_are_from_one_and_keys_have_theirs() -> None:
    node, _ = read("a:\n  - b: 1\n    cd: |\n      text\n")
    assert node is not None
    item = node.value["a"].value[0]
    assert (item.line, item.column) == (2, 5)
    assert item.key_place("cd").line == 3
    assert item.value["cd"].literal
    assert (item.value["cd"].line, item.value["cd"].column) == (3, 9)
    assert item.key_place("absent").line == 2


def test_aliases_share_nothing_once_read() -> None:
    made = data("a: &x [1]\nb: *x")
    made["a"].append(2)
    assert made["b"] == [1]


def test_a_key_twice_is_a_warning() -> None:
    node, problems = read("a: 1\nb: 2\na: 3")
    assert node is not None
    assert node.data() == {"a": 3, "b": 2}
    assert problems[0].shown("f") == "f:3:1: the key 'a' appears twice (the last one is used)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2", "f:1:9: the YAML is broken: did not find expected ',' or ']'"),
        ("a: b: c", "f:1:5: the YAML is broken: mapping values are not allowed in this context"),
        ("a:\n\t- 1", "f:2:1: the YAML is broken: found character that cannot start any token"),
        ("a: *nope", "f:1:4: there is no anchor 'nope' (quote text that starts with *)"),
        ("a: &x [*x]", "f:1:8: the alias 'x' contains itself"),
        ("a: 1\n---\nb: 2", "f:2:1: there is more than one YAML document"),
        ("? [a]\n: 1", "f:1:3: a key must be plain text"),
        (
            "a: !!python/object/apply:os.system [x]",
            "f:1:4: the tag 'tag:yaml.org,2002:python/object",
        ),
        ("a: !!python/name:os.system ''", "f:1:4: the tag 'tag:yaml.org,2002:python/name"),
        ("a: !!binary aGk=", "f:1:4: the tag 'tag:yaml.org,2002:binary' is not allowed"),
        ("a: !!set {x}", "f:1:4: the tag 'tag:yaml.org,2002:set' is not allowed"),
        ("a: !Custom 1", "f:1:4: the tag '!Custom' is not allowed (write plain values only)"),
        ("a: .inf", "f:1:4: the number .inf cannot be written as JSON (quote it)"),
        ("a: .nan", "f:1:4: the number .nan cannot be written as JSON (quote it)"),
        ("a: 99999999999999999999", "f:1:4: the number 99999999999999999999 cannot be written"),
        ("a: " + "9" * 5000, "f:1:4: '" + "9" * 40 + "' is not a value (quote it)"),
        ("a: !!int x", "f:1:4: 'x' is not a value (quote it)"),
        ("a: !!bool x", "f:1:4: 'x' is not a value (quote it)"),
        ("a: {<<: 1}", "f:1:9: '<<' takes a mapping or a list of mappings"),
        ("a: 1\nb: \x00", "f:2:4: the YAML has a character it may not have"),
        ("a: 1\nb: \ud800", "f:2:4: the YAML has a character it may not have"),
        ("a: " + "[" * 100 + "]" * 100, "f:1:67: the YAML is nested deeper than 64 levels"),
        ("a: " + "x" * SOURCE_BYTES_MAX, "f:1:1: the playbook is larger than 1048576 bytes"),
        ("a: " + "ü" * (SOURCE_BYTES_MAX // 2), "f:1:1: the playbook is larger than 1048576 bytes"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    assert shown(text).startswith(message)


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    expected = f"the YAML holds more than {NODES_MAX} values once its aliases are expanded"
    assert expected in shown("\n".join(lines))


def test_a_merge_bomb_is_refused() -> None:
    wide = ", ".join(f"k{n}: 1" for n in range(300))
    merges = "\n".join(f"m{n}: {{<<: *w}}" for n in range(1000))
    assert "once its aliases are expanded" in shown(f"w: &w {{{wide}}}\n{merges}")


def test_aliases_cannot_nest_past_the_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 80)]
    assert "nested deeper than 64 levels" in shown("\n".join(lines))


def test_deep_text_does_not_crash() -> None:
    assert "nested deeper" in shown("[" * 200_000)
    assert read("- " * 200_000)[1]


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#%@`,? \n\t<=~.0129")))
@example("0x_")
@example("0b_")
@example("1:99:99")
@example("-_")
@example("? ")
@example("{a, b}")
@example("!")
@example("! a")
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    node, problems = read(text)
    if node is None and text.strip():
        assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)
    elif node is not None:
        node.data()


@pytest.mark.parametrize("mark", ["\n", "\r\n", "\r", "\x85", "\u2028", "\u2029"])
def test_lines_are_counted_as_yaml_breaks_them(mark: str) -> None:
    assert line_count(f"a: 1{mark}b: 2") == 2
    node, _ = read(f"a: 1{mark}b: 2")
    assert node is not None
    assert node.value["b"].line == 2
