from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.tools.sqlsplit import gives_no_rows, head_words, split_statements


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        (" ;; \n ;", []),
        ("-- only a comment", []),
        ("/* a; /* b; */ c; */ ;", []),
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("a; b ;c", ["a", "b", "c"]),
        ("select 'a;b'; c", ["select 'a;b'", "c"]),
        ("select 'it''s; fine'; c", ["select 'it''s; fine'", "c"]),
        (r"select 'back\'; c", [r"select 'back\'", "c"]),
        (r"select E'it\'s; fine'; c", [r"select E'it\'s; fine'", "c"]),
        (r"select e'\\'; c", [r"select e'\\'", "c"]),
        ("select E'a'\n'b\\';c'; d", ["select E'a'\n'b\\';c'", "d"]),
        (r"select typE'x\'; c", [r"select typE'x\'", "c"]),
        ('select "a;""b"; c', ['select "a;""b"', "c"]),
        ("select $$a;b$$; c", ["select $$a;b$$", "c"]),
        ("select $x$ $$;$y$; $x$; c", ["select $x$ $$;$y$; $x$", "c"]),
        ("select a$b$c; d$b$e", ["select a$b$c", "d$b$e"]),
        ("select $1; b", ["select $1", "b"]),
        ("-- don't; stop\nselect 1; b", ["-- don't; stop\nselect 1", "b"]),
        ("select 1 /* it's; */; b", ["select 1 /* it's; */", "b"]),
        ("select 1 - -1; b", ["select 1 - -1", "b"]),
        ("select 4 / 2; b", ["select 4 / 2", "b"]),
        ("select '100%' like '%'; b", ["select '100%' like '%'", "b"]),
        (
            "create rule r as on insert to t do (delete from a; delete from b); c",
            ["create rule r as on insert to t do (delete from a; delete from b)", "c"],
        ),
        (
            "create or replace function f() returns int begin atomic select 1; "
            "select case when true then 1 end; end; c",
            [
                "create or replace function f() returns int begin atomic select 1; "
                "select case when true then 1 end; end",
                "c",
            ],
        ),
        ("begin; insert; end; c", ["begin", "insert", "end", "c"]),
        ("select 'open; b", ["select 'open; b"]),
        ("select $a$ open; b", ["select $a$ open; b"]),
        ("/* open; b", []),
        ("select 'ä;ö', \"ü;\"; ñ", ["select 'ä;ö', \"ü;\"", "ñ"]),
    ],
)
def test_statements_end_where_the_server_says(sql, expected):
    assert split_statements(sql) == expected


_text = st.text(st.sampled_from(list("ab'\"\\;$-/*()\n é1")), max_size=12)
_piece = st.one_of(
    st.sampled_from(["select", "x", "1", ",", "=", "::int", "$1", "a$b"]),
    _text.map(lambda t: "'" + t.replace("'", "''") + "'"),
    _text.map(lambda t: "E'" + t.replace("\\", "\\\\").replace("'", "\\'") + "'"),
    _text.map(lambda t: '"' + t.replace('"', '""') + '"'),
    _text.map(lambda t: "$q$" + t.replace("$", "") + "$q$"),
    _text.map(lambda t: "$$" + t.replace("$", "") + "$$"),
    _text.map(lambda t: "--" + t.replace("\n", "") + "\n"),
    _text.map(lambda t: "/*" + t.replace("/", "").replace("*", "") + "/* ; ' */ */"),
)
_statement = st.lists(_piece, min_size=1, max_size=6).map(lambda p: "s " + " ".join(p))


@given(st.lists(_statement, min_size=1, max_size=5))
def test_joined_statements_come_apart_as_they_were(statements):
    assert split_statements(";".join(statements)) == [s.strip() for s in statements]


@given(_text)
def test_no_text_breaks_it_and_nothing_is_invented(sql):
    found = split_statements(sql)
    position = 0
    for statement in found:
        position = sql.index(statement, position) + len(statement)


def test_long_texts_take_linear_time():
    sql = "select '" + "x''" * 300_000 + "'; select " + "(" * 1000 + ")" * 1000
    assert len(split_statements(sql)) == 2


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select 1", ("SELECT",)),
        ("-- a\n /* b */ create temp table t (a int)", ("CREATE", "TEMP", "TABLE", "T")),
        ("(select a from b)", ("SELECT", "A", "FROM", "B")),
        ("", ()),
    ],
)
def test_head_words_skip_comments(statement, expected):
    assert head_words(statement) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("UPDATE t SET a = 1", True),
        ("-- why\ninsert into t values (1)", True),
        ("DELETE FROM t RETURNING a", False),
        ("SELECT 1", False),
        ("CREATE TABLE t (a int)", False),
        ("WITH x AS (SELECT 1) UPDATE t SET a = 1", True),
        ("WITH x (a, b) AS (SELECT 1, ')'), y AS MATERIALIZED (SELECT 2) DELETE FROM t", True),
        ("WITH x AS (INSERT INTO t VALUES (1)) SELECT 2", False),
        ("WITH update AS (SELECT 1) SELECT * FROM update", False),
        ("WITH x AS (SELECT $$)$$) /* ) */ INSERT INTO t SELECT * FROM x", True),
        ("WITH x AS (DELETE FROM t RETURNING a) INSERT INTO u SELECT a FROM x", False),
        ("UPDATE t SET a = 'returning soon'", False),
        ("", False),
        ("WITH x AS (SELECT 1", False),
    ],
)
def test_only_what_surely_answers_with_a_count_is_said_to_give_no_rows(statement, expected):
    assert gives_no_rows(statement) is expected
