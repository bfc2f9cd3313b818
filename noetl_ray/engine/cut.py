"""What a decision sees of a result that lives in the tier.

The extracted part, aware of what it lacks.

Reading what is there works; reading what was cut raises :class:`NotInlineError` naming the step, so
that the conductor can fetch the whole value and decide again. Nothing is ever guessed (P27).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from noetl_ray.errors import NotInlineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOT = "$"
_EVERYTHING = "*"


class _Cut:
    """Shared by the cut shapes: which step, which path, how long the whole is."""

    _step: str
    _path: str
    _length: int

    def refuse(self) -> NoReturn:
        """Say what is missing and where it is."""
        msg = (
            f"{self._step}.{self._path} has {self._length} elements and lives in the result tier; "
            "only its length and what was extracted can be read here"
        )
        raise NotInlineError(msg, "", self._step)


class CutList(list[Any], _Cut):
    """The first element of a longer array."""

    def __init__(self, kept: list[Any], length: int, step: str, path: str) -> None:
        super().__init__(kept)
        self._length, self._step, self._path = length, step, path

    def __len__(self) -> int:
        """The length of the whole array."""
        return self._length

    def __getitem__(self, index: Any) -> Any:
        """Only what is here can be read."""
        if isinstance(index, int) and 0 <= index < list.__len__(self):
            return list.__getitem__(self, index)
        return self.refuse()

    def __iter__(self) -> Iterator[Any]:
        """Walking the array would need all of it."""
        self.refuse()

    def __contains__(self, item: object) -> bool:
        """So would searching it."""
        self.refuse()

    def __eq__(self, other: object) -> bool:
        """And comparing it."""
        self.refuse()

    __hash__ = None  # type: ignore[assignment]


class CutMap(dict[str, Any], _Cut):
    """A mapping some of whose keys were dropped."""

    def __init__(self, kept: dict[str, Any], length: int, step: str, path: str) -> None:
        super().__init__(kept)
        self._length, self._step, self._path = length, step, path

    def __missing__(self, key: str) -> Any:
        """A key that is not here may have been dropped."""
        self.refuse()

    def __contains__(self, key: object) -> bool:
        """Known when it is here; otherwise nobody knows."""
        return dict.__contains__(self, key) or self.refuse()

    def __iter__(self) -> Iterator[str]:
        """Walking the mapping would need all of it."""
        self.refuse()

    def __len__(self) -> int:
        """How many keys the whole has."""
        return self._length


class CutText(str, _Cut):
    """The marker of a long text; its length can be read."""

    __slots__ = ("_length", "_path", "_step")

    def __new__(cls, kept: str, length: int, step: str, path: str) -> CutText:
        """Remember what the marker stands for."""
        self = super().__new__(cls, kept)
        self._length, self._step, self._path = length, step, path
        return self

    def __len__(self) -> int:
        """The length of the whole text."""
        return self._length

    def __eq__(self, other: object) -> bool:
        """Comparing needs the text."""
        self.refuse()

    def __ne__(self, other: object) -> bool:
        """Comparing needs the text."""
        self.refuse()

    def __str__(self) -> str:
        """Showing needs the text."""
        self.refuse()

    def __getitem__(self, index: Any) -> str:
        """Slicing needs the text."""
        self.refuse()

    def __contains__(self, part: object) -> bool:
        """Searching needs the text."""
        self.refuse()

    def __iter__(self) -> Iterator[str]:
        """Walking needs the text."""
        self.refuse()

    __hash__ = str.__hash__


def restore(extracted: Any, truncated: Mapping[str, int], step: str) -> Any:
    """An extracted block whose cut parts refuse to be read."""
    if not truncated:
        return extracted
    if _EVERYTHING in truncated:
        return CutMap({}, 0, step, "result")
    return _restore(extracted, truncated, step, ())


def whole(value: Any) -> Any:
    """The value itself, once it is sure that no part of it was cut.

    Raises:
        NotInlineError: some part lives in the tier only.
    """
    if isinstance(value, _Cut):
        value.refuse()
    if isinstance(value, dict):
        for item in dict.values(value):
            whole(item)
    elif isinstance(value, list):
        for item in list.__iter__(value):
            whole(item)
    return value


def _restore(value: Any, marks: Mapping[str, int], step: str, path: tuple[str, ...]) -> Any:
    name = ".".join(path) if path else _ROOT
    length = marks.get(name, -1)
    if isinstance(value, dict):
        kept = {
            key: _restore(item, marks, step, (*path, _escaped(key))) for key, item in value.items()
        }
        return CutMap(kept, length, step, name) if length >= 0 else kept
    if isinstance(value, list):
        inner = [_restore(item, marks, step, (*path, str(i))) for i, item in enumerate(value)]
        return CutList(inner, length, step, name) if length >= 0 else inner
    if length >= 0:
        return CutText(str(value), length, step, name)
    return value


def _escaped(key: str) -> str:
    return key.replace("%", "%25").replace(".", "%2E")
