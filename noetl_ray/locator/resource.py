"""Resource locators: key/value names of compute, streams and payloads (LOC-9).

``noetl://tenant/<t>/org/<o>/…/<kind>/<id>``: every value follows its key, the last pair says what
the thing is. Payloads are the one kind written in two words, ``…/payloads/sha256/<sha>``. Queries
and fragments are refused; these names are join keys, not requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from noetl_ray.errors import UsageError
from noetl_ray.locator.result import SCHEME
from noetl_ray.locator.segments import decode_segment, encode_segment
from noetl_ray.scope import Scope

PAYLOADS = "payloads/sha256"
"""The key of a content-addressed payload; its value is the digest."""

_KEY = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PAIRS_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLocator:
    """A resource of a scope; ``pairs`` run from coarse to fine."""

    scope: Scope
    pairs: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        """Refuse keys that could be taken for something else."""
        if not 0 < len(self.pairs) <= _PAIRS_MAX:
            msg = f"a resource locator has 1..{_PAIRS_MAX} pairs after its scope"
            raise UsageError(msg)
        for key, value in self.pairs:
            if key == PAYLOADS:
                check_sha256(value)
            elif not _KEY.fullmatch(key) or key in {"tenant", "org", "payloads"}:
                msg = f"{key!r} cannot be a key of a resource locator"
                raise UsageError(msg)

    @property
    def kind(self) -> str:
        """What the thing is."""
        return self.pairs[-1][0]

    @property
    def id(self) -> str:
        """Which one of its kind."""
        return self.pairs[-1][1]

    def get(self, key: str) -> str | None:
        """The value of a key, None when the locator does not say."""
        return dict(self.pairs).get(key)

    @property
    def uri(self) -> str:
        """The canonical spelling."""
        head = f"{SCHEME}tenant/{self.scope.tenant_id}/org/{self.scope.organization_id}"
        return head + "".join(f"/{key}/{encode_segment(value)}" for key, value in self.pairs)


def parse_resource_uri(uri: str) -> ResourceLocator:
    """Read a resource locator back.

    Raises:
        UsageError: wrong scheme or shape, a query or fragment, or not the canonical spelling.
    """
    if "?" in uri or "#" in uri:
        msg = f"{uri[:120]!r}: a resource locator has no query and no fragment"
        raise UsageError(msg)
    segments = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(f"{SCHEME}tenant/") or len(segments) < 6 or segments[2] != "org":
        msg = f"{uri[:120]!r} is not {SCHEME}tenant/<t>/org/<o>/…/<kind>/<id>"
        raise UsageError(msg)
    scope = Scope(
        tenant_id=decode_segment(segments[1]), organization_id=decode_segment(segments[3])
    )
    rest = segments[4:]
    pairs: list[tuple[str, str]] = []
    while rest:
        key = rest.pop(0)
        if key == "payloads" and rest:
            key = f"{key}/{rest.pop(0)}"
        if not rest:
            msg = f"{uri[:120]!r}: {key!r} has no value"
            raise UsageError(msg)
        pairs.append((key, decode_segment(rest.pop(0))))
    return ResourceLocator(scope=scope, pairs=tuple(pairs))


def role_locator(
    scope: Scope, *, region: str, zone: str, cluster: str, node: str, role: str, instance: str
) -> str:
    """The producer name of one incarnation of a role, coarse to fine (TN-7)."""
    pairs = (
        ("region", region),
        ("zone", zone),
        ("cluster", cluster),
        ("node", node),
        (role, instance),
    )
    return ResourceLocator(scope=scope, pairs=pairs).uri


def worker_locator(
    scope: Scope, region: str, zone: str, cluster: str, node: str, worker: str
) -> str:
    """The name of a worker, and where it stands."""
    return role_locator(
        scope, region=region, zone=zone, cluster=cluster, node=node, role="worker", instance=worker
    )


def payload_locator(scope: Scope, sha256: str) -> str:
    """The name of content-addressed bytes within a scope (TN-23)."""
    return ResourceLocator(scope=scope, pairs=((PAYLOADS, sha256),)).uri


def check_sha256(text: str) -> str:
    """Give a lowercase hex SHA-256 back, refuse anything else."""
    if not _SHA256.fullmatch(text):
        msg = f"{text[:80]!r} is not a SHA-256 in lowercase hex"
        raise UsageError(msg)
    return text
