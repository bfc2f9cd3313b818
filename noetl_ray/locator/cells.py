"""The cell map and the way from a name to the copy that should be read (LOC-5, LOC-6).

A cell is where the objects of a deployment live; it has one or more locations that each hold all of
them. Which location is asked never shows in a name or a key, so failing over renames nothing. Pure:
health is an argument, and nothing here touches a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from noetl_ray.errors import NotFoundError, UsageError
from noetl_ray.locator.keys import Placement, payload_key, result_key
from noetl_ray.locator.resource import PAYLOADS, parse_resource_uri
from noetl_ray.locator.result import SCHEME, parse_result_uri

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl_ray.scope import Scope

Purpose = Literal["read", "write", "repair"]
ReplicaState = Literal["healthy", "suspect"]

PURPOSES: tuple[Purpose, ...] = ("read", "write", "repair")
RESULT_EXTENSIONS = ("feather", "json")
"""A name does not say in which form its bytes lie; both places are part of a plan."""
_CAPABILITIES = {"file": ("read", "write", "list", "map"), "memory": ("read", "write", "list")}
_REMOTE = ("read", "write", "list", "range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """One place that holds the objects of a cell."""

    name: str
    provider: str
    """``file``, ``s3``, ``memory``: the scheme of its address."""
    bucket: str
    prefix: str
    endpoint: str
    region: str

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What can be asked of it: ``map`` is a file on this machine, ``range`` a part of one."""
        return _CAPABILITIES.get(self.provider, _REMOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell and its locations, the primary first."""

    name: str
    region: str
    locations: tuple[Location, ...]

    def __post_init__(self) -> None:
        """Refuse a cell without a place, or with two of one name."""
        names = [location.name for location in self.locations]
        if not names or len(set(names)) != len(names):
            msg = f"cell {self.name!r} needs locations with names of their own, not {names}"
            raise UsageError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPlan:
    """Where to go for a name: locations best first, and the keys the bytes may lie at."""

    uri: str
    purpose: Purpose
    requester: str
    cell: str
    keys: tuple[str, ...]
    locations: tuple[tuple[Location, ReplicaState], ...]

    @property
    def chosen(self) -> Location:
        """The nearest healthy copy; the nearest at all when none is known to be healthy."""
        return self.locations[0][0]


def resolve(
    cell: Cell,
    placement: Placement,
    uri: str,
    *,
    requester: Scope,
    purpose: Purpose = "read",
    preferred_region: str = "",
    required_capability: str = "",
    health: Mapping[str, ReplicaState] | None = None,
) -> AccessPlan:
    """Say where the bytes of a name are to be asked for, without asking anybody.

    Args:
        cell: The cell of this deployment.
        placement: What keys need beside names.
        uri: The name of a result or of a payload.
        requester: Who asks; another tenant's name does not exist for them.
        purpose: Repairs and writes go to the primary first, reads to the nearest.
        preferred_region: Where the reader is; empty means the cell's own.
        required_capability: What the location must be able to do.
        health: What is known of locations by name; unknown ones count as healthy.

    Raises:
        NotFoundError: the name belongs to another tenant or organization.
        UsageError: it is no name, or no location can do what is required.
    """
    if purpose not in PURPOSES:
        msg = f"purpose {purpose!r} is not one of {', '.join(PURPOSES)}"
        raise UsageError(msg)
    able = [
        location
        for location in cell.locations
        if not required_capability or required_capability in location.capabilities
    ]
    if not able:
        msg = (
            f"no location of cell {cell.name!r} can {required_capability!r}; "
            f"there are {', '.join(location.name for location in cell.locations)}"
        )
        raise UsageError(msg)
    region = "" if purpose != "read" else preferred_region or cell.region
    known = health or {}
    return AccessPlan(
        uri=uri,
        purpose=purpose,
        requester=f"{requester.tenant_id}/{requester.organization_id}",
        cell=cell.name,
        keys=keys_of(placement, uri, requester),
        locations=tuple(
            (location, known.get(location.name, "healthy"))
            for location in in_order(able, region, known)
        ),
    )


def in_order(
    locations: Sequence[Location], region: str, health: Mapping[str, ReplicaState]
) -> list[Location]:
    """Healthy before suspect, then those of the region, then as configured."""
    return sorted(
        locations,
        key=lambda each: (
            health.get(each.name, "healthy") != "healthy",
            bool(region) and each.region != region,
        ),
    )


def keys_of(placement: Placement, uri: str, requester: Scope) -> tuple[str, ...]:
    """Every key the bytes of a name may lie at.

    Raises:
        NotFoundError: the name belongs to another tenant or organization.
        UsageError: it names neither a result nor a payload.
    """
    if uri.startswith(f"{SCHEME}tenant/"):
        locator = parse_resource_uri(uri)
        if locator.kind != PAYLOADS:
            msg = f"{uri[:120]!r} names something that has no bytes"
            raise UsageError(msg)
        if locator.scope != requester:
            raise _absent(uri)
        return (payload_key(placement, requester, locator.id),)
    name = parse_result_uri(uri)
    if name.tenant != requester.tenant_id:
        raise _absent(uri)
    return tuple(result_key(placement, name, ext) for ext in RESULT_EXTENSIONS)


def _absent(uri: str) -> NotFoundError:
    # The same words as for a name that never was: nobody learns what others hold.
    return NotFoundError(f"no object {uri[:200]}")
