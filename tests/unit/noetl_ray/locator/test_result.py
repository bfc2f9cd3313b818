"""Result names read back, never collide, and refuse every other grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.errors import UsageError
from noetl_ray.locator.result import (
    LogicalName,
    ResultName,
    frame_coordinate,
    parse_logical_uri,
    parse_result_uri,
    split_frame_coordinate,
    split_step_coordinate,
    step_coordinate,
)

WORDS = st.text(min_size=1, max_size=8)
NUMBERS = st.integers(0, (1 << 63) - 1)
NAMES = st.builds(
    ResultName,
    tenant=WORDS.filter(lambda text: text not in {"tenant", "execution"}),
    project=WORDS,
    execution_id=NUMBERS,
    step=WORDS,
    frame=WORDS,
    row=NUMBERS,
    attempt=NUMBERS,
    version=NUMBERS,
)


def test_loc_1_spelling_of_a_result_name():
    name = ResultName(
        tenant="acme",
        project="billing",
        execution_id=241234567890123456,
        step=step_coordinate("load", "fetch page"),
        frame=frame_coordinate(2, 7),
        row=3,
        attempt=4,
        version=5,
    )
    assert name.uri == (
        "noetl://acme/billing/results/241234567890123456/load%3Afetch%20page/v2.f7/3/4@5"
    )


@given(NAMES)
def test_loc_1_every_name_reads_back(name):
    assert parse_result_uri(name.uri) == name


def test_loc_1_two_rows_of_one_step_have_two_names():
    names = [
        ResultName(tenant="t", project="p", execution_id=1, step="s", row=row) for row in range(2)
    ]
    assert names[0].uri != names[1].uri


def test_p17_visits_tasks_and_runs_never_collide():
    coordinates = [
        (step_coordinate(step, task), frame_coordinate(visit, frame), attempt)
        for step, task in [("a", None), ("a", "b"), ("a:b", None), ("a%3Ab", None), ("a", "b:c")]
        for visit in (1, 2)
        for frame in (0, 1)
        for attempt in (1, 2)
    ]
    names = {
        ResultName(
            tenant="t", project="p", execution_id=1, step=step, frame=frame, attempt=attempt
        ).uri
        for step, frame, attempt in coordinates
    }
    assert len(names) == len(coordinates)


@given(WORDS, st.none() | WORDS)
def test_p17_step_and_task_read_back(step, task):
    assert split_step_coordinate(step_coordinate(step, task)) == (step, task)


def test_p17_frame_reads_back():
    assert split_frame_coordinate(frame_coordinate(12, 0)) == (12, 0)
    for text in ("v1", "v01.f0", "1.0", "v1.f0.x"):
        with pytest.raises(UsageError):
            split_frame_coordinate(text)


def test_loc_1_general_form_reads_back():
    name = LogicalName(tenant="t", project="p", kind="manifests", path=("a/b", "c@2"), version=9)
    assert name.uri == "noetl://t/p/manifests/a%2Fb/c%402@9"
    assert parse_logical_uri(name.uri) == name


@pytest.mark.parametrize("tenant", ["tenant", "execution"])
def test_tn_6_other_grammars_are_reserved(tenant):
    with pytest.raises(UsageError, match="reserved"):
        ResultName(tenant=tenant, project="p", execution_id=1, step="s")
    with pytest.raises(UsageError, match="grammar"):
        parse_result_uri(f"noetl://{tenant}/p/results/1/s/v1.f0/0/1@1")


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://t/p/results/1/s/v1.f0/0/1@1",
        "noetl://t/p/results/1/s/v1.f0/0/1",
        "noetl://t/p/results/1/s/v1.f0/0@1",
        "noetl://t/p/results/1/s/v1.f0/0/1/2@1",
        "noetl://t/p/things/1/s/v1.f0/0/1@1",
        "noetl://t/p/results/01/s/v1.f0/0/1@1",
        "noetl://t/p/results/1/../v1.f0/0/1@1",
        "noetl://t/p/results/1/s%2f/v1.f0/0/1@1",
        "noetl://t/p/results/1/s/v1.f0/0/1@1?x=1",
        "noetl://t/p/results/1/s/v1.f0/0/1@-1",
        "noetl://t//results/1/s/v1.f0/0/1@1",
    ],
)
def test_loc_1_anything_else_is_refused(uri):
    with pytest.raises(UsageError):
        parse_result_uri(uri)
