"""Commands cut into words before their templates are filled in, so that a value stays one word.

Cut afterwards, a value with a blank or a quote in it would add words of its own: options, files.
Two sorts of commands must be cut afterwards all the same: one that is a single expression, since
then the value is the command, and one with ``{% %}``, which may make several words.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_EXPRESSION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_FIRST_MARK = 0xE000
_MARKS_MAX = 6_400
"""As many as there are characters nobody uses."""


def fill_commands(value: Any, config: Mapping[str, Any], render: Callable[[str], str]) -> Any:
    """A command or a list of them with templates filled in.

    Args:
        value: As the playbook has it.
        config: The task, to see whether a shell is to read the text.
        render: Fills in one text.
    """
    if config.get("shell") not in (None, False, ""):
        return _whole(value, render)
    if isinstance(value, str):
        words = _words(value, render)
        return render(value) if words is None else [words]
    if not isinstance(value, list):
        return value
    made: list[Any] = []
    for item in value:
        words = _words(item, render) if isinstance(item, str) else None
        made.append(_whole(item, render) if words is None else words)
    return made


def cut(template: str) -> list[tuple[str, bool]] | None:
    """The words of a command as templates, each with whether it vanishes when it comes out empty.

    None when the command must be filled in first.
    """
    found = _EXPRESSION.findall(template)
    if not found or "{%" in template or "{#" in template or "\n" in template.strip():
        return None
    if template.strip() == found[0] or len(found) > _MARKS_MAX:
        return None
    if any(_FIRST_MARK <= ord(char) < _FIRST_MARK + _MARKS_MAX for char in template):
        return None
    marks = {chr(_FIRST_MARK + index): text for index, text in enumerate(found)}
    given = iter(marks)
    text = _EXPRESSION.sub(lambda _match: next(given), template)
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    made = []
    for word in words:
        bare = word in marks and f'"{word}"' not in text and f"'{word}'" not in text
        made.append(("".join(marks.get(char, char) for char in word), bare))
    return made


def _words(template: str, render: Callable[[str], str]) -> list[str] | None:
    words = cut(template)
    if words is None:
        return None
    filled = [(render(word), vanishes) for word, vanishes in words]
    return [word for word, vanishes in filled if word or not vanishes]


def _whole(value: Any, render: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return render(value)
    if isinstance(value, list):
        return [_whole(item, render) for item in value]
    return value
