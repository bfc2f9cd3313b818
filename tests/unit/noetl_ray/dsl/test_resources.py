"""What a python task may ask of Ray, with the exact words of every refusal."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import check_playbook
from noetl_ray.dsl.resources import resource_flaws, runtime_env_flaws, size_bytes

HEAD = (
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\nworkflow:\n  - step: start\n"
)


def found(tool: str) -> list[str]:
    """Findings of a tool in flow style; it starts in line 6, column 11."""
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(f"{HEAD}    tool: {tool}\n")
    ]


@pytest.mark.parametrize(
    "wish",
    [
        "resources: {num_cpus: 2, num_gpus: 0.5, memory: 2GiB, licence: 1}",
        "resources: {num_cpus: '{{ cpus }}', memory: 1000000}",
        "resources: '{{ wish }}'",
        "resources: {}",
        "runtime_env: {pip: [polars==1.0], env_vars: {A: 1, B: x}}",
        "runtime_env: {working_dir: 's3://bucket/code.zip', pip: '{{ pip }}'}",
        "runtime_env: null",
    ],
)
def test_what_makes_sense_has_no_findings(wish: str) -> None:
    assert found(f"{{kind: python, code: x = 1, spec: {{{wish}}}}}") == []
    assert found(f"{{kind: python, code: x = 1, {wish}}}") == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, ["'resources' must be a mapping"]),
        ({"num_cpus": "two"}, ["'num_cpus' must be 0 or a number from 0.0001"]),
        ({"num_cpus": -1}, ["'num_cpus' must be 0 or a number from 0.0001"]),
        ({"num_cpus": True}, ["'num_cpus' must be 0 or a number from 0.0001"]),
        ({"num_cpus": 0.00001}, ["'num_cpus' must be 0 or a number from 0.0001"]),
        ({"num_gpus": 1.5}, ["'num_gpus' above 1 must be a whole number"]),
        ({"licence": {"limit": 1}}, ["'licence' must be 0 or a number from 0.0001"]),
        ({"num_cpus": float("inf")}, ["'num_cpus' must be 0 or a number from 0.0001"]),
        (
            {"memory": "lots"},
            ["'memory' must be a number of bytes above 0, or text such as 2GiB"],
        ),
        ({"memory": 0}, ["'memory' must be a number of bytes above 0, or text such as 2GiB"]),
        ({"CPU": 1}, ["'CPU' is no resource of its own (use num_cpus)"]),
        ({"num_gpu": 1}, ["'num_gpu' is no resource of its own (use num_gpus)"]),
        (
            {"object_store_memory": 1, "gpus": 2},
            [
                "'object_store_memory' is no resource of its own (use memory)",
                "'gpus' is no resource of its own (use num_gpus)",
            ],
        ),
    ],
)
def test_resources_that_make_no_sense(value: object, said: list[str]) -> None:
    flaws = resource_flaws(value)
    assert [f"{f.message} ({f.hint})" if f.hint else f.message for f in flaws] == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x", ["'runtime_env' must be a mapping"]),
        ({"pip": "polars"}, ["'pip' must be a list of requirements (write pip: [polars])"]),
        ({"pip": [1]}, ["'pip' must be a list of requirements"]),
        ({"env_vars": ["A"]}, ["'env_vars' must be a mapping"]),
        ({"env_vars": {"A B": 1}}, ["'A B' is no name of an environment variable"]),
        ({"env_vars": {"RAY_ADDRESS": "x"}}, ["'RAY_ADDRESS' belongs to Ray itself"]),
        ({"env_vars": {"A": [1]}}, ["the environment variable 'A' must be text"]),
        (
            {"working_dir": "./code"},
            [
                "'working_dir' must be the address of a zip file "
                "(it starts with https://, s3://, gs:// or file://)"
            ],
        ),
        ({"envvars": {}}, ["a runtime_env has no key 'envvars' (did you mean 'env_vars'?)"]),
        (
            {"conda": "x"},
            ["a runtime_env has no key 'conda' (keys are env_vars, pip, working_dir)"],
        ),
    ],
)
def test_environments_that_make_no_sense(value: object, said: list[str]) -> None:
    flaws = runtime_env_flaws(value)
    assert [f"{f.message} ({f.hint})" if f.hint else f.message for f in flaws] == said


def test_a_finding_stands_where_the_key_stands() -> None:
    tool = "{kind: python, code: x = 1, spec: {resources: {num_cpus: -1}, runtime_env: [1]}}"
    assert found(tool) == [
        "error 6:58 workflow[0].tool.spec.resources.num_cpus: "
        "'num_cpus' must be 0 or a number from 0.0001",
        "error 6:86 workflow[0].tool.spec.runtime_env: 'runtime_env' must be a mapping",
    ]


def test_other_kinds_may_use_the_word_as_they_like() -> None:
    assert found("{kind: noop, resources: {limits: {cpu: 1}}}") == []


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (5, 5),
        ("5", 5),
        ("1.5 kB", 1_500),
        ("2GiB", 2 << 30),
        ("2g", 2 * 10**9),
        ("3MI", 3 << 20),
        ("1 TB", 10**12),
        ("x", None),
        ("-1", None),
        (None, None),
        ([], None),
    ],
)
def test_sizes(value: object, size: int | None) -> None:
    assert size_bytes(value) == size
