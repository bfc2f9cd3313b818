"""Result names: what state, dedup and replay call a result, however it is stored (LOC-1).

``noetl://<tenant>/<project>/results/<execution_id>/<step>/<frame>/<row>/<attempt>@<version>`` is
one case of ``noetl://<tenant>/<project>/<kind>/<logical_path>@<version>``. No placement is
encoded. A first segment ``tenant`` or ``execution`` belongs to other grammars (TN-6) and is
refused here.

Within the coordinates (P17) the step carries ``step`` or ``step:task``, the frame carries visit
and frame index (``v1.f0``), the attempt is the ordinal of the task run. A bumped version keeps the
older bytes beside the newer, a repeated one overwrites them (LOC-2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from noetl_ray.errors import UsageError
from noetl_ray.locator.segments import decode_number, decode_segment, encode_segment

SCHEME = "noetl://"
RESULTS_KIND = "results"
RESERVED_TENANTS = frozenset({"tenant", "execution"})
BIGINT_MAX = (1 << 63) - 1

_FRAME = re.compile(r"v(0|[1-9][0-9]*)\.f(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalName:
    """The general form: any kind of versioned thing of a tenant's project."""

    tenant: str
    project: str
    kind: str
    path: tuple[str, ...]
    version: int = 1

    def __post_init__(self) -> None:
        """Refuse what would select another grammar or could not be read back."""
        if self.tenant in RESERVED_TENANTS:
            msg = f"tenant {self.tenant!r} is reserved: it selects another noetl:// grammar"
            raise UsageError(msg)
        if not self.path:
            msg = "a logical name needs a path"
            raise UsageError(msg)
        _natural(self.version, "version")

    @property
    def uri(self) -> str:
        """The canonical spelling."""
        segments = (self.tenant, self.project, self.kind, *self.path)
        return f"{SCHEME}{'/'.join(map(encode_segment, segments))}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultName:
    """Coordinates of one result."""

    tenant: str
    project: str
    execution_id: int
    step: str
    """``step`` or ``step:task`` as :func:`step_coordinate` joins them."""
    frame: str = "v1.f0"
    row: int = 0
    attempt: int = 1
    version: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that have no one decimal spelling, and reserved tenants."""
        if self.tenant in RESERVED_TENANTS:
            msg = f"tenant {self.tenant!r} is reserved: it selects another noetl:// grammar"
            raise UsageError(msg)
        for label in ("execution_id", "row", "attempt", "version"):
            _natural(getattr(self, label), label)

    @property
    def uri(self) -> str:
        """The canonical spelling."""
        return (
            f"{SCHEME}{encode_segment(self.tenant)}/{encode_segment(self.project)}/{RESULTS_KIND}"
            f"/{self.execution_id}/{encode_segment(self.step)}/{encode_segment(self.frame)}"
            f"/{self.row}/{self.attempt}@{self.version}"
        )


def parse_logical_uri(uri: str) -> LogicalName:
    """Read the general form.

    Raises:
        UsageError: it is not in that form, or not in its canonical spelling.
    """
    if not uri.startswith(SCHEME):
        msg = f"{uri[:120]!r} does not start with {SCHEME}"
        raise UsageError(msg)
    body, at, version = uri[len(SCHEME) :].rpartition("@")
    segments = body.split("/")
    if not at or len(segments) < 4:
        msg = f"{uri[:120]!r} is not {SCHEME}<tenant>/<project>/<kind>/<path>@<version>"
        raise UsageError(msg)
    if segments[0] in RESERVED_TENANTS:
        msg = f"{uri[:120]!r} is in the {segments[0]!r} grammar, not a logical name"
        raise UsageError(msg)
    tenant, project, kind, *path = map(decode_segment, segments)
    return LogicalName(
        tenant=tenant,
        project=project,
        kind=kind,
        path=tuple(path),
        version=decode_number(version, "version"),
    )


def parse_result_uri(uri: str) -> ResultName:
    """Read a result's name back into its coordinates.

    Raises:
        UsageError: it is not a result name in canonical spelling.
    """
    name = parse_logical_uri(uri)
    if name.kind != RESULTS_KIND or len(name.path) != 5:
        msg = f"{uri[:120]!r} is not a result name"
        raise UsageError(msg)
    execution_id, step, frame, row, attempt = name.path
    return ResultName(
        tenant=name.tenant,
        project=name.project,
        execution_id=decode_number(execution_id, "execution_id"),
        step=step,
        frame=frame,
        row=decode_number(row, "row"),
        attempt=decode_number(attempt, "attempt"),
        version=name.version,
    )


def step_coordinate(step: str, task: str | None = None) -> str:
    """Join step and task so that no two pairs give the same text."""
    return _escape_colon(step) if task is None else f"{_escape_colon(step)}:{_escape_colon(task)}"


def split_step_coordinate(coordinate: str) -> tuple[str, str | None]:
    """The inverse of :func:`step_coordinate`."""
    step, colon, task = coordinate.partition(":")
    return _unescape_colon(step), _unescape_colon(task) if colon else None


def frame_coordinate(visit: int = 1, frame: int = 0) -> str:
    """Visit and frame index as one coordinate."""
    return f"v{_natural(visit, 'visit')}.f{_natural(frame, 'frame')}"


def split_frame_coordinate(coordinate: str) -> tuple[int, int]:
    """The inverse of :func:`frame_coordinate`.

    Raises:
        UsageError: it is something else.
    """
    found = _FRAME.fullmatch(coordinate)
    if found is None:
        msg = f"frame coordinate {coordinate[:40]!r} is not v<visit>.f<frame>"
        raise UsageError(msg)
    return int(found[1]), int(found[2])


def _escape_colon(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _unescape_colon(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")


def _natural(value: int, label: str) -> int:
    if not 0 <= value <= BIGINT_MAX:
        msg = f"{label} {value} is not in 0..{BIGINT_MAX}"
        raise UsageError(msg)
    return value
