"""The grammar: every verb parses, has help with an example, and bad use ends with 2."""

from __future__ import annotations

import pytest

from noetl_ray.cli.args import build, parse
from noetl_ray.cli.main import VERBS

CALLS = [
    ["up"],
    ["down"],
    ["doctor"],
    ["demo"],
    ["version"],
    ["validate", "p.yaml"],
    ["explain", "p.yaml", "--mermaid"],
    ["run", "p.yaml", "--set", "a=1", "--set", "b.c=2", "--workload", "w.yaml"],
    ["run", "-", "--idempotency-key", "k", "--timeout", "2.5"],
    ["submit", "p.yaml", "--idempotency-key", "k"],
    ["submit", "a/b@2", "--set", "a=1"],
    ["run", "a/b", "--version", "2"],
    ["register", "p.yaml", "folder"],
    ["catalog", "list", "a/b", "--limit", "3"],
    ["catalog", "show", "a/b", "--version", "2"],
    ["catalog", "diff", "a/b@1", "a/b@2"],
    ["objects", "order", "1", "--status", "paid"],
    ["list", "--parent", "7"],
    ["list", "--status", "FAILED", "--path", "a/b", "--limit", "5"],
    ["status", "1"],
    ["events", "1", "--follow", "--after", "7"],
    ["logs", "1", "step", "-f"],
    ["result", "1", "step"],
    ["cancel", "1", "--reason", "why"],
    ["pause", "1", "--reason", "why"],
    ["resume", "1"],
    ["answer", "1", "step", "--data", "true", "--index", "2"],
    ["rerun", "1", "--from", "load"],
    ["rerun", "1"],
    ["frames", "1", "--status", "RUNNING"],
    ["shards"],
    ["replay", "1"],
    ["gc", "--delete"],
    ["repair", "1", "--dry-run"],
    ["backup", "folder", "--objects", "copy", "--with-keys"],
    ["restore", "folder", "--check"],
    ["trace", "1", "report"],
    ["replay", "1", "--as-of-position", "7"],
    ["lake", "build", "--no-compact"],
    ["lake", "query", "slowest_steps", "--spark"],
    ["lake", "report", "--out", "r.png"],
    ["credential", "add", "n", "--type", "postgres", "--data-file", "f"],
    ["credential", "list"],
    ["credential", "remove", "n"],
]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_verb_parses(call: list[str]) -> None:
    args = parse(call)
    assert args.verb == call[0]
    assert args.json is False
    assert args.config is None


def test_every_verb_is_bound() -> None:
    assert {call[0] for call in CALLS} == set(VERBS)


@pytest.mark.parametrize(
    "call",
    [["--json", "--data-dir", "d", "list"], ["list", "--json", "--data-dir", "d"]],
    ids=["before", "after"],
)
def test_common_options_stand_on_either_side(call: list[str]) -> None:
    args = parse(call)
    assert args.json is True
    assert args.data_dir == "d"


def test_options_of_a_nested_verb() -> None:
    assert parse(["credential", "list", "--json"]).json is True
    assert parse(["--json", "credential", "list"]).json is True


@pytest.mark.parametrize(
    "call",
    [
        [],
        ["fly"],
        ["run"],
        ["status"],
        ["status", "abc"],
        ["status", "-1"],
        ["status", str(1 << 63)],
        ["list", "--limit", "0"],
        ["list", "--lim", "3"],
        ["credential"],
        ["result", "1"],
    ],
    ids=lambda call: " ".join(call) or "nothing",
)
def test_bad_use_ends_with_2(call: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(call)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "usage: noetl-ray" in shown.err


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse([verb, "--help"])
    assert caught.value.code == 0
    assert f"example:\n  noetl-ray {verb}" in capsys.readouterr().out


def test_the_examples_of_help_parse() -> None:
    parser = build()
    verbs = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert verbs is not None
    for sub in verbs.values():
        line = sub.epilog.split("example:\n  noetl-ray ")[1]
        assert parse(line.split()).verb
