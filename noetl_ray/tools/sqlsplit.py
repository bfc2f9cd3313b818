"""Cuts SQL text into statements at the semicolons that end one. It knows words, not grammar.

Survived: quoted texts and names, E'' escapes, $tag$ quotes, line comments, nested block comments,
parentheses (rule bodies) and BEGIN ATOMIC bodies of SQL functions. Text is never changed, only cut:
what cannot be read as PostgreSQL goes to the server as it is, which then says what is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<line>--[^\r\n]*)
    | (?P<block>/\*)
    | (?P<escaped>(?<![\w$])[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\Z))
    | (?P<text>'[^']*(?:''[^']*)*(?:'|\Z))
    | (?P<name>"[^"]*(?:""[^"]*)*(?:"|\Z))
    | (?P<dollar>(?<![\w$])\$(?:[^\W\d]\w*)?\$)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<mark>[;()])
    | (?P<space>\s+)
    | (?P<other>[\d][\w$]*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTINUED = re.compile(r"[ \t\f\v]*[\r\n]\s*'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\Z)", re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_HEAD_WORDS_MAX = 6


@dataclass(slots=True)
class _Statement:
    """What must be remembered while inside one statement."""

    start: int
    filled: bool = False
    parens: int = 0
    begins: int = 0
    head: tuple[str, ...] = ()

    def take_word(self, word: str) -> None:
        """Follow the nesting of BEGIN ... END in bodies of CREATE FUNCTION and PROCEDURE."""
        if len(self.head) < _HEAD_WORDS_MAX:
            self.head = (*self.head, word)
        if not self._is_routine():
            return
        if word == "BEGIN" or (word == "CASE" and self.begins):
            self.begins += 1
        elif word == "END" and self.begins:
            self.begins -= 1

    def _is_routine(self) -> bool:
        head = self.head
        if head[:1] != ("CREATE",):
            return False
        rest = head[3:] if head[1:3] == ("OR", "REPLACE") else head[1:]
        return rest[:1] in (("FUNCTION",), ("PROCEDURE",))


def split_statements(sql: str) -> list[str]:
    """The statements of a text, in order, without their semicolons; empty ones are left out."""
    found: list[str] = []
    current = _Statement(0)
    position, end = 0, len(sql)
    while position < end:
        match = _TOKEN.match(sql, position)
        assert match is not None, "the pattern's last branch takes any character"
        kind = match.lastgroup
        position = match.end()
        if kind in ("line", "space"):
            continue
        if kind == "block":
            position = _after_comment(sql, position)
            continue
        if kind == "mark" and match.group() == ";" and not (current.parens or current.begins):
            if current.filled:
                found.append(sql[current.start : match.start()].strip())
            current = _Statement(position)
            continue
        current.filled = True
        if kind == "word":
            current.take_word(match.group().upper())
        elif kind == "dollar":
            closing = sql.find(match.group(), position)
            position = end if closing < 0 else closing + len(match.group())
        elif kind == "escaped":
            position = _after_continuations(sql, position)
        elif kind == "mark":
            depth = {"(": 1, ")": -1}.get(match.group(), 0)
            current.parens = max(0, current.parens + depth)
    if current.filled:
        found.append(sql[current.start :].strip())
    return found


def head_words(statement: str, count: int = 4) -> tuple[str, ...]:
    """The first words of a statement in upper case, comments skipped."""
    words: list[str] = []
    position = 0
    while position < len(statement) and len(words) < count:
        match = _TOKEN.match(statement, position)
        assert match is not None, "the pattern's last branch takes any character"
        position = match.end()
        if match.lastgroup == "block":
            position = _after_comment(statement, position)
        elif match.lastgroup == "word":
            words.append(match.group().upper())
        elif match.lastgroup not in ("line", "space") and match.group() != "(":
            break
    return tuple(words)


_QUIET_HEADS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})


def gives_no_rows(statement: str) -> bool:
    """Whether a statement surely changes data and answers with a count only.

    Said of an INSERT, UPDATE, DELETE or MERGE, also below WITH, whose text nowhere says RETURNING.
    """
    head = head_words(statement, 1)
    if not head or (head[0] != "WITH" and head[0] not in _QUIET_HEADS):
        return False
    if "RETURNING" in statement.upper():
        return False
    return head[0] in _QUIET_HEADS or _main_word(statement) in _QUIET_HEADS


def _main_word(statement: str) -> str:
    """The word after the last of the WITH clauses, each of which ends with a parenthesis."""
    position = depth = 0
    closed = False
    while position < len(statement):
        match = _TOKEN.match(statement, position)
        assert match is not None, "the pattern's last branch takes any character"
        position = match.end()
        word = match.group().upper()
        match match.lastgroup:
            case "line" | "space":
                continue
            case "block":
                position = _after_comment(statement, position)
                continue
            case "escaped":
                position = _after_continuations(statement, position)
            case "dollar":
                closing = statement.find(match.group(), position)
                position = len(statement) if closing < 0 else closing + len(match.group())
            case "mark":
                depth += {"(": 1, ")": -1}.get(word, 0)
            case "word" if closed and word != "AS":
                # Names may be words too: `WITH update AS (SELECT 1) SELECT ...`.
                return word
        closed = word == ")" and depth == 0
    return ""


def _after_comment(sql: str, position: int) -> int:
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(sql, position)
        if edge is None:
            return len(sql)
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return position


def _after_continuations(sql: str, position: int) -> int:
    """A text on the next line continues an E'' text, and keeps its escapes."""
    while (match := _CONTINUED.match(sql, position)) is not None:
        position = match.end()
    return position
