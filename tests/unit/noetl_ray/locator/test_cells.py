"""Names to access plans: the nearest healthy copy, and no way round the scope."""

from __future__ import annotations

import pytest

from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.locator.cells import Cell, Location, resolve
from noetl_ray.locator.keys import Placement, parse_key
from noetl_ray.locator.resource import payload_locator
from noetl_ray.locator.result import ResultName
from noetl_ray.scope import Scope

MINE = Scope(tenant_id="acme")
NAME = ResultName(tenant="acme", project="p", execution_id=1 << 40, step="load")


def place(name, region, provider="s3"):
    return Location(
        name=name, provider=provider, bucket="b", prefix="", endpoint="http://x", region=region
    )


CELL = Cell(
    name="cell-0",
    region="us",
    locations=(place("primary", "us"), place("near", "eu"), place("disk", "us", "file")),
)


def plan(uri=NAME.uri, **asked):
    return resolve(CELL, Placement(), uri, **{"requester": MINE, **asked})


def names(found):
    return [location.name for location, _ in found.locations]


def test_loc_6_the_nearest_healthy_copy_is_chosen():
    assert names(plan()) == ["primary", "disk", "near"]
    assert names(plan(preferred_region="eu")) == ["near", "primary", "disk"]
    assert plan(preferred_region="eu", health={"near": "suspect"}).chosen.name == "primary"
    down = {"primary": "suspect", "disk": "suspect", "near": "suspect"}
    assert names(plan(health=down)) == ["primary", "disk", "near"]


def test_loc_6_failing_over_renames_nothing():
    assert plan().keys == plan(health={"primary": "suspect"}, preferred_region="eu").keys
    assert [parse_key(key).name for key in plan().keys] == [NAME, NAME]


def test_writes_and_repairs_ask_the_primary_first():
    for purpose in ("write", "repair"):
        assert plan(purpose=purpose, preferred_region="eu").chosen.name == "primary"


def test_a_required_capability_narrows_the_choice():
    assert names(plan(required_capability="map")) == ["disk"]
    assert names(plan(required_capability="range")) == ["primary", "near"]
    with pytest.raises(UsageError, match=r"no location .* can 'presign'"):
        plan(required_capability="presign")
    with pytest.raises(UsageError, match="purpose"):
        plan(purpose="steal")


def test_ten_2_names_of_others_do_not_exist():
    theirs = Scope(tenant_id="acme", organization_id="other")
    payload = payload_locator(theirs, "a" * 64)
    assert plan(payload, requester=theirs).keys[0].endswith("a" * 64)
    for uri in (payload, NAME.uri.replace("acme", "rival")):
        with pytest.raises(NotFoundError, match="no object"):
            plan(uri)


@pytest.mark.parametrize(
    "step", ["..", "%2f", "%2e%2e", "a b", "", "a/b", "x" * 10_000, "../../etc/passwd"]
)
def test_strange_names_are_refused_with_words(step):
    uri = f"noetl://acme/p/results/{1 << 40}/{step}/v1.f0/0/1@1"
    with pytest.raises(UsageError) as caught:
        plan(uri)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("uri", ["", "x", "http://a", "noetl://", "noetl://tenant/acme/org/o/w/1"])
def test_what_names_no_bytes_is_refused(uri):
    with pytest.raises(UsageError):
        plan(uri)


def test_a_cell_needs_places_with_names_of_their_own():
    for locations in ((), (place("a", "us"), place("a", "eu"))):
        with pytest.raises(UsageError):
            Cell(name="c", region="us", locations=locations)
