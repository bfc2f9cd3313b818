"""Files that tasks may touch: only those below one folder that the operator chose."""

from __future__ import annotations

from pathlib import Path

from noetl_ray.errors import ToolError


def path_below(root: Path | None, name: str, what: str) -> Path:
    """The path of a file below the root, links followed.

    Args:
        root: The folder; None refuses every file.
        name: A relative path, ``file://`` in front allowed.
        what: What the file is, to start the message with.

    Raises:
        ToolError: of kind ``schema`` when the path leads elsewhere.
    """
    short = name.removeprefix("file://")
    if root is None:
        msg = f"{what} {short!r} refused: no data folder is set up for tasks"
        raise ToolError(msg, "schema")
    base = root.resolve()
    path = (base / short).resolve()
    if not short or Path(short).is_absolute() or path == base or not path.is_relative_to(base):
        msg = f"{what} {short!r} must be a relative path below the data folder"
        raise ToolError(msg, "schema")
    return path
