"""What a Ray task for user Python does, run without Ray."""

from __future__ import annotations

import msgspec
import pytest

from actors.bridge_task import Order, run_request


def items(code: str, **order):
    body = {"code": code, "input": {}, "names": {}, "loop": {}, "execution_id": "1"}
    wanted = {"timeout_s": 20.0, "memory_bytes": 0, "env_names": (), "in_working_dir": False}
    return list(run_request(msgspec.json.encode(body), Order(**(wanted | order))))


def test_it_says_that_it_starts_what_it_prints_and_how_it_ended():
    first, *lines, last = items("print('a')\nprint('b')\nresult = 5")
    assert first == ("started", None)
    assert [line for _, batch in lines for line in batch] == [("stdout", "a"), ("stdout", "b")]
    assert last[0] == "reply"
    assert msgspec.json.decode(last[1])["result"] == 5


def test_more_lines_than_fit_at_once_all_arrive():
    _, *lines, _ = items("for n in range(12000): print(n)")
    assert [line for _, batch in lines for _, line in batch] == [str(n) for n in range(12_000)]
    assert len(lines) > 1


@pytest.mark.parametrize(
    ("code", "order", "end"),
    [
        ("import time; time.sleep(30)", {"timeout_s": 0.5}, ("timeout", None)),
        ("os._exit(3)", {}, ("ended", (3, True))),
        ("import ctypes; ctypes.string_at(0)", {}, ("ended", (-11, True))),
        (
            "x = bytearray(200 << 20); import time; time.sleep(30)",
            {"memory_bytes": 100 << 20},
            ("memory", 100 << 20),
        ),
    ],
)
def test_every_way_to_end(code, order, end):
    assert items(code, **order)[-1] == end


def test_it_sees_the_names_its_environment_added_and_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("OTHERS", "no")
    (tmp_path / "beside.py").write_text("value = 7")
    monkeypatch.chdir(tmp_path)
    code = (
        "import beside\nresult = [beside.value, os.getcwd(), os.environ.get('MINE'),"
        " os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('OTHERS')]"
    )
    reply = items(code, env_names=("MINE",), in_working_dir=True)[-1][1]
    assert msgspec.json.decode(reply)["result"] == [7, str(tmp_path), "yes", "3", None]
