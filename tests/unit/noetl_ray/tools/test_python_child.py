"""The rules of user code (dsl section 7), run in this process for speed."""

from __future__ import annotations

import sys

import pytest

from noetl_ray.events.canonical import to_jsonable
from noetl_ray.tools import python_child as child
from noetl_ray.tools.python_child import load_module


def run(code, given=None, names=None, loop=None, **more):
    request = {
        "code": code,
        "input": given or {},
        "names": names or {},
        "loop": loop or {},
        "execution_id": "42",
        **more,
    }
    try:
        return to_jsonable(child.run_user_code(request))
    finally:
        sys.modules.pop(child.MODULE_NAME, None)


@pytest.mark.parametrize(
    ("code", "given", "expected"),
    [
        ("x = 1", {}, {}),
        ("result = x + 1", {"x": 1}, 2),
        ("result = input_data['x'] + args['x']", {"x": 2}, 4),
        ("result = input_data", {"input_data": "own"}, "own"),
        ("result = execution_id", {}, "42"),
        (
            "result = [json.dumps(1), os.sep, datetime.date(2020, 1, 2), len(str(uuid.uuid4()))]",
            {},
            ["1", "/", "2020-01-02", 36],
        ),
        ("result = None\ndef main():\n    return 5", {}, 5),
        ("def main(a, b=2):\n    return a + b", {"a": 1}, 3),
        ("def main(a, /, *, b):\n    return a + b", {"a": 1, "b": 5}, 6),
        ("def main(**rest):\n    return rest", {"a": 1}, {"a": 1}),
        ("def main(anything):\n    return anything['a']", {"a": 1}, 1),
        (
            "def main(input_data, execution_id):\n    return [input_data, execution_id]",
            {"a": 1},
            [{"a": 1}, "42"],
        ),
        ("async def main(a):\n    return a", {"a": 7}, 7),
        ("def main():\n    pass", {}, {}),
        ("return 5", {}, 5),
        ("    y = 1\n    return y", {}, 1),
        ("x = x + 1\nreturn x", {"x": 1}, 2),
        ("y: int = 2\nz: int\ndef f():\n    return y\nreturn f()", {}, 2),
        ("from __future__ import annotations\nimport math\nreturn math.floor(1.5)", {}, 1),
        ("result = 1\nreturn 2", {}, 1),
        ("if x:\n    return 'early'\nresult = 'late'", {"x": 0}, "late"),
        ("def f(n):\n    return 1 if n < 2 else n * f(n - 1)\nresult = f(5)", {}, 120),
        ("k = 3\nresult = [k * i for i in range(2)]", {}, [0, 3]),
        ("result = result + 1", {"result": 1}, 2),
        ("result['b'] = 2", {"result": {"a": 1}}, {"a": 1, "b": 2}),
        ("def main(result):\n    return result * 2", {"result": 4}, 8),
        ("import sys\nresult = 3\nsys.exit()", {}, 3),
        ("import sys\nsys.exit(0)", {}, {}),
        ("text = '''\n    kept\n'''\nresult = text", {}, "\n    kept\n"),
        ("result = {'status': 'error'}", {}, {"status": "error"}),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    a: int\nresult = P(1).a",
            {},
            1,
        ),
    ],
)
def test_what_a_task_gives(code, given, expected):
    assert run(code, given) == expected


def test_main_takes_names_of_the_context_after_the_input():
    assert run("def main(a, b):\n    return [a, b]", {"a": 1}, {"a": 9, "b": 2}) == [1, 2]


def test_the_context_is_a_mapping_with_the_execution():
    found = run("result = [context['x'], context.get('execution_id')]", names={"x": 1})
    assert found == [1, "42"]


def test_loop_names_are_globals_and_the_input_wins():
    assert run("result = [item, _index]", {"_index": 9}, loop={"item": "a", "_index": 1}) == [
        "a",
        9,
    ]


def test_libs_are_imported_first():
    libs = {"m": "math", "J": {"from": "json", "import": "JSONDecoder"}}
    assert run("result = [m.floor(2.5), J.__name__]", libs=libs) == [2, "JSONDecoder"]
    assert run("result = math.floor(2.5)", libs=["math"]) == 2
    assert run("result = 1", libs=["psycopg2-binary", "math"]) == 1


def test_auth_is_a_mapping():
    assert run("result = auth['token'][0]", auth={"token": "t0k"}) == "t"


def test_what_main_needs_and_nobody_has_is_named():
    with pytest.raises(TypeError, match="main\\(\\) needs 'b'"):
        run("def main(a, b):\n    pass", {"a": 1})


def test_an_exception_is_told_by_the_users_own_lines():
    with pytest.raises(ValueError, match="Expecting value") as caught:
        run("import json\ndef f():\n    return json.loads('nope')\nf()")
    told = child.describe(caught.value)
    assert told["exception_type"] == "JSONDecodeError"
    assert told["line"] == 3
    lines = told["traceback"].splitlines()
    assert lines[0] == "line 4, in code: f()"
    assert lines[1] == "line 3, in f: return json.loads('nope')"
    assert len(lines) == 3
    assert lines[2].startswith("JSONDecodeError: ")


def test_lines_are_right_under_a_top_level_return():
    with pytest.raises(ZeroDivisionError) as caught:
        run("x = 1\nif x:\n    y = 1 / 0\nreturn y")
    assert child.describe(caught.value)["line"] == 3


def test_a_syntax_error_names_its_line():
    with pytest.raises(SyntaxError) as caught:
        run("x = 1\nif x\n    pass")
    told = child.describe(caught.value)
    assert (told["exception_type"], told["line"]) == ("SyntaxError", 2)


def test_an_exception_without_text_can_be_told():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert "cannot be shown" in child.describe(Mute())["message"]


def test_compiled_code_is_kept_within_a_bound():
    compiling = load_module("tools/python_compile.py")
    for number in range(compiling._COMPILED_MAX + 10):
        compiling.compile_user_code(f"result = {number}")
    assert len(compiling._compiled) == compiling._COMPILED_MAX
    again = compiling.compile_user_code("result = 70")
    assert again is compiling.compile_user_code("result = 70")


def test_lines_of_uniformly_indented_code_are_the_users_own():
    with pytest.raises(ZeroDivisionError) as caught:
        run("\n    x = 1\n    y = x / 0\n    return y")
    told = child.describe(caught.value)
    assert told["line"] == 3
    assert told["traceback"].splitlines()[0] == "line 3, in code: y = x / 0"


def test_a_main_that_was_given_as_input_is_not_called():
    assert run("x = 1", {"main": "text"}) == {}


def test_one_namespace_serves_functions_classes_and_comprehensions():
    code = (
        "import math\nlimit = 2\n"
        "def small(n):\n    return n < limit\n"
        "class C:\n    def f(self):\n        return small(1) and math.floor(1.5)\n"
        "limit = 3\nresult = [C().f(), [small(n) for n in (1, 2, 3)]]"
    )
    assert run(code) == [1, [True, True, False]]
    returned = code.replace("result = ", "return ")
    assert run(returned) == [1, [True, True, False]]


def test_an_async_main_may_use_the_loop_and_top_level_code_may_return_a_coroutine():
    slow = "import asyncio\nasync def main(n):\n    await asyncio.sleep(0)\n    return n"
    assert run(slow, {"n": 3}) == 3
    assert run(slow.replace("main", "job") + "\nreturn job(4)") == 4
