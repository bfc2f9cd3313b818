"""Wishes as Ray's options, and Ray's errors as ours; Ray itself is met in the cluster tests."""

from __future__ import annotations

import pytest
from ray import exceptions

from actors.bridge import failure, fits, infeasible, split_nodes, task_options
from noetl_ray.tools.python_remote import Wish


def test_a_wish_becomes_options_and_ray_retries_nothing():
    wish = Wish(
        num_cpus=2,
        num_gpus=0.5,
        memory_bytes=1000,
        custom={"licence": 1},
        runtime_env={"env_vars": {"A": "1"}},
    )
    options = task_options(wish, "7/s/t/1", pooled=False)
    assert options["name"] == "noetl/7/s/t/1"
    assert options["max_retries"] == 0
    assert (options["num_cpus"], options["num_gpus"], options["memory"]) == (2, 0.5, 1000)
    assert options["resources"] == {"licence": 1}
    assert options["runtime_env"] == {"env_vars": {"A": "1"}}
    bare = task_options(Wish(), "n", pooled=False)
    assert bare["num_cpus"] == 1
    assert not {"label_selector", "memory", "resources", "runtime_env"} & set(bare)


def test_nodes_kept_for_hosts_run_no_tasks():
    hosts = {"Labels": {"noetl.io/pool": "hosts"}, "Resources": {"CPU": 8.0}}
    batch = {"Labels": {"noetl.io/pool": "batch"}, "Resources": {"CPU": 2.0}}
    bare = {"Labels": None, "Resources": {"CPU": 1.0}}
    assert split_nodes([batch, bare]) == ([{"CPU": 2.0}, {"CPU": 1.0}], False)
    assert split_nodes([hosts, batch]) == ([{"CPU": 2.0}], True)
    selector = task_options(Wish(), "n", pooled=True)["label_selector"]
    assert selector == {"noetl.io/pool": "!hosts"}


@pytest.mark.parametrize(
    ("wish", "does"),
    [
        (Wish(num_cpus=2), True),
        (Wish(num_cpus=2.5), False),
        (Wish(num_gpus=1), False),
        (Wish(memory_bytes=101), False),
        (Wish(custom={"disk": 0.5}), True),
        (Wish(custom={"tape": 1}), False),
        (Wish(custom={"tape": 0}), True),
    ],
)
def test_a_node_fits_by_what_it_has_in_all(wish, does):
    assert fits(wish, {"CPU": 2.0, "memory": 100.0, "disk": 1.0}) is does


def test_a_wish_nobody_can_meet_is_told_with_what_there_is():
    nodes = [{"CPU": 2.0, "memory": float(1 << 31), "node:10.0.0.1": 1.0}, {}] + [{"CPU": 1.0}] * 5
    error = infeasible(Wish(num_gpus=4), nodes, 60)
    assert str(error) == (
        "no node of the Ray cluster can give the task CPU 1, GPU 4; waited 60 s; the nodes have: "
        "CPU 2, memory 2 GiB; nothing; CPU 1; CPU 1; CPU 1 and 2 more"
    )
    assert (error.retryable, error.details["code"]) == (False, "infeasible")
    assert str(infeasible(Wish(), [], 1)).endswith("the nodes have: nothing")


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "code"),
    [
        (exceptions.WorkerCrashedError(), "connection", True, "task_lost"),
        (exceptions.NodeDiedError("gone"), "connection", True, "task_lost"),
        (exceptions.OutOfMemoryError("full"), "unknown", True, "out_of_memory"),
        (exceptions.RuntimeEnvSetupError("a\nb\nno such package"), "unknown", False, "runtime_env"),
    ],
)
def test_rays_errors_say_whether_to_try_again(error, kind, retryable, code):
    ours = failure(error)
    assert (ours.kind, ours.retryable, ours.details["code"]) == (kind, retryable, code)
    assert ours.details["exception_type"] == type(error).__name__


def test_a_long_trace_is_cut_to_its_end():
    trace = "\n".join(f"frame {n}" for n in range(100)) + "\nno such package"
    ours = failure(exceptions.RuntimeEnvSetupError(trace))
    assert str(ours).endswith("frame 99 no such package")
    assert len(str(ours)) < 300
