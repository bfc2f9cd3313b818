"""Which names of the context the code of a task can reach."""

from __future__ import annotations

import base64

import pytest

from noetl_ray.dsl.pycode import code_reads


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"code": "result = 1"}, set()),
        ({}, set()),
        ({"code": "def main(a, b=2):\n    return c"}, {"a", "b"}),
        ({"code": "async def main(\n    a: int = (1),\n    *, b,\n): pass"}, {"a", "int", "b"}),
        ({"code": "def mainly(a): pass"}, set()),
        ({"code": "def main(a"}, {"a"}),
        ({"code_b64": base64.b64encode(b"def main(z): pass").decode()}, {"z"}),
        ({"script": "def main(s): pass"}, {"s"}),
        ({"script": {"source": {"type": "inline", "code": "def main(i): pass"}}}, {"i"}),
        ({"script": {"code": "def main(i): pass"}}, {"i"}),
        ({"code": "result = context['x']"}, None),
        ({"code_b64": base64.b64encode(b"context").decode()}, None),
        ({"code_b64": "/w=="}, None),
        ({"script": {"uri": "s3://b/k.py", "source": {"type": "s3"}}}, None),
    ],
)
def test_p24_what_code_reads_is_found_without_running_it(config, names):
    found = code_reads(config)
    assert found == (None if names is None else frozenset(names))


def test_the_input_comes_before_the_context():
    assert code_reads({"code": "def main(a, b): pass"}, {"a"}) == {"b"}
