"""A value in a command stays one word, whatever is in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.dsl.template import Templates
from noetl_ray.tools.shell_words import cut, fill_commands

TEMPLATES = Templates()
EVIL = "a b; rm -rf '\" $(x) --force"


def filled(value: Any, config: dict[str, Any] | None = None, **names: Any) -> Any:
    return fill_commands(value, config or {}, lambda text: TEMPLATES.text(text, names))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat {{ x }}", [["cat", EVIL]]),
        ("cat '{{ x }}' --n={{ n }}", [["cat", EVIL, "--n=3"]]),
        ('echo "a {{ x }} b" c', [["echo", f"a {EVIL} b", "c"]]),
        (
            ["cat {{ x }}", "echo plain", ["ls", "{{ x }}"]],
            [["cat", EVIL], "echo plain", ["ls", EVIL]],
        ),
        ("echo {{ absent }} end", [["echo", "end"]]),
        ('echo "{{ absent }}" end', [["echo", "", "end"]]),
        ("echo {{ 'a b' }}", [["echo", "a b"]]),
        ("echo {{ x | length }}", [["echo", str(len(EVIL))]]),
        ("plain words", "plain words"),
        (3, 3),
    ],
)
def test_values_stay_whole(command: Any, expected: Any) -> None:
    assert filled(command, x=EVIL, n=3) == expected


@pytest.mark.parametrize(
    "command",
    ["{{ c }}", " {{ c }} ", "{% if c %}{{ c }}{% endif %}", "ls {{ c }}\nls", "echo '{{ c }}"],
)
def test_some_commands_are_filled_in_first(command: str) -> None:
    assert cut(command) is None
    assert filled(command, c="ls -l") == TEMPLATES.text(command, {"c": "ls -l"})


def test_a_shell_gets_the_text_as_it_is() -> None:
    assert filled("echo {{ x }}", {"shell": True}, x="a; b") == "echo a; b"
    assert filled(["echo {{ x }}"], {"shell": "{{ s }}"}, x="a; b") == ["echo a; b"]
    assert filled("echo {{ x }}", {"shell": False}, x="a; b") == [["echo", "a; b"]]


@given(st.text(min_size=1, max_size=40))
def test_nothing_in_a_value_makes_another_word(value: str) -> None:
    assert filled("run -- {{ x }} '{{ x }}' p={{ x }}", x=value) == [
        ["run", "--", value, value, f"p={value}"]
    ]
