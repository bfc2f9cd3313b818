"""Resource locators read back and refuse queries, fragments and odd shapes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.errors import UsageError
from noetl_ray.locator.resource import (
    PAYLOADS,
    ResourceLocator,
    parse_resource_uri,
    payload_locator,
    role_locator,
    worker_locator,
)
from noetl_ray.scope import Scope

SCOPE = Scope(tenant_id="acme", organization_id="ops")
SHA = "ab" * 32


def test_loc_9_worker_runs_from_coarse_to_fine():
    uri = worker_locator(SCOPE, "eu", "eu-1", "main", "host/3", "w 1")
    assert uri == (
        "noetl://tenant/acme/org/ops/region/eu/zone/eu-1/cluster/main/node/host%2F3/worker/w%201"
    )
    locator = parse_resource_uri(uri)
    assert (locator.kind, locator.id, locator.get("node")) == ("worker", "w 1", "host/3")
    assert locator.get("shard") is None
    assert locator.scope == SCOPE


def test_loc_9_roles_have_producer_names():
    uri = role_locator(
        SCOPE, region="r", zone="z", cluster="c", node="n", role="conductor", instance="0-abc"
    )
    assert parse_resource_uri(uri).kind == "conductor"


def test_loc_9_payload_is_named_by_its_digest():
    uri = payload_locator(SCOPE, SHA)
    assert uri == f"noetl://tenant/acme/org/ops/payloads/sha256/{SHA}"
    locator = parse_resource_uri(uri)
    assert (locator.kind, locator.id) == (PAYLOADS, SHA)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["region", "node", "shard", "lease", "cache"]),
            st.text(min_size=1, max_size=8),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_loc_9_every_locator_reads_back(pairs):
    locator = ResourceLocator(scope=SCOPE, pairs=tuple(pairs))
    assert parse_resource_uri(locator.uri) == locator


@pytest.mark.parametrize(
    "uri",
    [
        "http://tenant/a/org/b/worker/w",
        "noetl://tenant/a/org/b",
        "noetl://tenant/a/org/b/worker",
        "noetl://tenant/a/org/b/worker/w?x=1",
        "noetl://tenant/a/org/b/worker/w#x",
        "noetl://tenant/a/group/b/worker/w",
        "noetl://tenant/a/org/b/Worker/w",
        "noetl://tenant/a/org/b/tenant/c",
        "noetl://tenant/a/org/b/worker/..",
        "noetl://tenant/a/org/b/payloads/sha256",
        "noetl://tenant/a/org/b/payloads/md5/00",
        f"noetl://tenant/a/org/b/payloads/sha256/{SHA.upper()}",
        "noetl://tenant/../org/b/worker/w",
        "noetl://acme/p/results/1/s/v1.f0/0/1@1",
    ],
)
def test_loc_9_anything_else_is_refused(uri):
    with pytest.raises(UsageError):
        parse_resource_uri(uri)


def test_payload_digest_is_checked():
    with pytest.raises(UsageError):
        payload_locator(SCOPE, "../../etc")
