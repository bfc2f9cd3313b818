"""Physical keys: where bytes lie, computed from a name and the placement alone (LOC-4).

Two namespaces (TN-23): ``results/`` under coordinates, where a repeated write replaces the same
bytes, and ``payloads/sha256/`` under the digest, immutable. The date is the UTC day an execution
id was minted, never today (TN-21), so a key is the same on any node at any time. Every key can be
read back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from noetl_ray.errors import UsageError
from noetl_ray.ids import mint_time_ms
from noetl_ray.locator.resource import check_sha256
from noetl_ray.locator.result import RESULTS_KIND, ResultName
from noetl_ray.locator.segments import decode_number, decode_segment, encode_segment
from noetl_ray.locator.shard import SHARD_COUNT_DEFAULT, shard_of

if TYPE_CHECKING:
    from noetl_ray.scope import Scope

ROOT = "noetl"
_LABELS = ("env", "region", "cell", "shard", "tenant", "project", "date", "execution")
_ARTIFACT_PARTS_MAX = 8
_EXT = re.compile(r"[a-z][a-z0-9]{0,15}")
_PAYLOAD = re.compile(
    ROOT + r"/env=[^/]+/tenant=[^/]+/org=[^/]+/payloads/sha256"
    r"/([0-9a-f]{2})/([0-9a-f]{2})/([0-9a-f]{64})"
)
_FILE = re.compile(r"([0-9]+)(?:@([0-9]+))?\.([a-z][a-z0-9]{0,15})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The part of a key that names do not carry."""

    env: str = "local"
    region: str = "local"
    cell: str = "cell-0"
    shard_count: int = SHARD_COUNT_DEFAULT

    def __post_init__(self) -> None:
        """Refuse what no key could hold."""
        for value in (self.env, self.region, self.cell):
            encode_segment(value)
        if self.shard_count < 1:
            msg = f"shard_count {self.shard_count} is not positive"
            raise UsageError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultKey:
    """A physical result key taken apart."""

    env: str
    region: str
    cell: str
    shard: int
    date: str
    name: ResultName
    ext: str

    @property
    def key(self) -> str:
        """Put together again."""
        name = self.name
        # The first version owns the bare key; a bumped one stands beside it (LOC-2).
        version = "" if name.version == 1 else f"@{name.version}"
        return (
            f"{ROOT}/env={encode_segment(self.env)}/region={encode_segment(self.region)}"
            f"/cell={encode_segment(self.cell)}/shard={self.shard}"
            f"/tenant={encode_segment(name.tenant)}/project={encode_segment(name.project)}"
            f"/date={self.date}/execution={name.execution_id}/{RESULTS_KIND}"
            f"/{encode_segment(name.step)}/{encode_segment(name.frame)}/{name.row}"
            f"/{name.attempt}{version}.{self.ext}"
        )


def result_key(placement: Placement, name: ResultName, ext: str) -> str:
    """Where the bytes of a result lie.

    Raises:
        UsageError: the name or extension cannot be part of a key.
    """
    if not _EXT.fullmatch(ext):
        msg = f"{ext[:40]!r} is not a file extension"
        raise UsageError(msg)
    return ResultKey(
        env=placement.env,
        region=placement.region,
        cell=placement.cell,
        shard=shard_of(name.tenant, name.project, name.execution_id, placement.shard_count),
        date=mint_date(name.execution_id),
        name=name,
        ext=ext,
    ).key


def parse_key(key: str) -> ResultKey:
    """Take a result key apart; garbage collection rests on this (LOC-8).

    Raises:
        UsageError: it is not a result key in the one spelling :func:`result_key` gives.
    """
    parts = key.split("/")
    if len(parts) != 14 or parts[0] != ROOT or parts[9] != RESULTS_KIND:
        msg = f"{key[:160]!r} is not a result key"
        raise UsageError(msg)
    values: dict[str, str] = {}
    for label, part in zip(_LABELS, parts[1:9], strict=True):
        if not part.startswith(f"{label}="):
            msg = f"{key[:160]!r} is not a result key: {label}= is missing"
            raise UsageError(msg)
        values[label] = part[len(label) + 1 :]
    file = _FILE.fullmatch(parts[13])
    if file is None:
        msg = f"{key[:160]!r} is not a result key: bad file name"
        raise UsageError(msg)
    name = ResultName(
        tenant=decode_segment(values["tenant"]),
        project=decode_segment(values["project"]),
        execution_id=decode_number(values["execution"], "execution"),
        step=decode_segment(parts[10]),
        frame=decode_segment(parts[11]),
        row=decode_number(parts[12], "row"),
        attempt=decode_number(file[1], "attempt"),
        version=decode_number(file[2], "version") if file[2] else 1,
    )
    found = ResultKey(
        env=decode_segment(values["env"]),
        region=decode_segment(values["region"]),
        cell=decode_segment(values["cell"]),
        shard=decode_number(values["shard"], "shard"),
        date=mint_date(name.execution_id),
        name=name,
        ext=file[3],
    )
    if found.key != key:
        msg = f"{key[:160]!r} contradicts itself: expected {found.key!r}"
        raise UsageError(msg)
    return found


def payload_key(placement: Placement, scope: Scope, sha256: str) -> str:
    """Where content-addressed bytes of a scope lie (PAY-2)."""
    check_sha256(sha256)
    return f"{payload_prefix(placement, scope)}/{sha256[:2]}/{sha256[2:4]}/{sha256}"


def payload_prefix(placement: Placement, scope: Scope) -> str:
    """The folder of a scope's payloads."""
    return (
        f"{ROOT}/env={encode_segment(placement.env)}/tenant={scope.tenant_id}"
        f"/org={scope.organization_id}/payloads/sha256"
    )


def payload_sha256(key: str) -> str | None:
    """The digest a payload's key names; None for a key that is none."""
    found = _PAYLOAD.fullmatch(key)
    return found[3] if found and found[3].startswith(found[1] + found[2]) else None


def tenant_prefixes(placement: Placement, tenant: str) -> tuple[str, ...]:
    """The folders that hold all results of a tenant, one per shard."""
    return tuple(
        f"{ROOT}/env={encode_segment(placement.env)}/region={encode_segment(placement.region)}"
        f"/cell={encode_segment(placement.cell)}/shard={shard}/tenant={encode_segment(tenant)}"
        for shard in range(placement.shard_count)
    )


def artifact_prefix(placement: Placement, scope: Scope) -> str:
    """The folder of a scope's named artifacts."""
    return (
        f"{ROOT}/env={encode_segment(placement.env)}/tenant={scope.tenant_id}"
        f"/org={scope.organization_id}/artifacts"
    )


def artifact_key(placement: Placement, scope: Scope, name: str) -> str:
    """Where the record of a named artifact lies; a slash in a name makes a folder.

    Raises:
        UsageError: the name has no parts, empty parts or too many.
    """
    parts = name.split("/")
    if not 0 < len(parts) <= _ARTIFACT_PARTS_MAX:
        msg = f"{name[:80]!r} cannot name an artifact: at most {_ARTIFACT_PARTS_MAX} parts"
        raise UsageError(msg)
    path = "/".join(encode_segment(part) for part in parts)
    return f"{artifact_prefix(placement, scope)}/{path}.json"


def artifact_name(key: str) -> str | None:
    """The name an artifact's key was made from; None for a key that is none."""
    _, found, path = key.partition("/artifacts/")
    if not found or not path.endswith(".json"):
        return None
    return "/".join(decode_segment(part) for part in path.removesuffix(".json").split("/"))


def cursor_key(placement: Placement, consumer: str) -> str:
    """Where a consumer of the log notes how far it came."""
    return f"{ROOT}/env={encode_segment(placement.env)}/cursors/{encode_segment(consumer)}.json"


@lru_cache(maxsize=4096)
def mint_date(execution_id: int) -> str:
    """The UTC day an execution id was minted."""
    return f"{datetime.fromtimestamp(mint_time_ms(execution_id) // 1000, UTC):%Y-%m-%d}"
