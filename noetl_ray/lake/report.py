"""The report: every ready question asked once, as tables and as one picture.

Owns how an answer is drawn. The picture has one panel per question; one without rows says so.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from noetl_ray.errors import UsageError
from noetl_ray.lake.query import ask
from noetl_ray.lake.questions import QUESTIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl_ray.lake.files import Files
    from noetl_ray.lake.questions import Question

BARS_MAX = 10
LABEL_CHARS_MAX = 34
COLUMNS = 2
_INK = "#2b3a4a"
_BAR = "#3b7ea1"


def answers(files: Files) -> dict[str, pa.Table]:
    """The answer to every ready question, by name."""
    return {name: ask(files, question.sql) for name, question in QUESTIONS.items()}


def picture(found: dict[str, pa.Table], *, heading: str) -> bytes:
    """All answers as one PNG.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        msg = "pictures need matplotlib: pip install 'noetl-ray[spark]'"
        raise UsageError(msg) from None
    lines = math.ceil(len(found) / COLUMNS)
    figure: Any = Figure(figsize=(13, 3.1 * lines + 0.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(heading, fontsize=14, color=_INK, x=0.01, ha="left")
    panels = figure.subplots(lines, COLUMNS, squeeze=False)
    flat = [panel for line in panels for panel in line]
    for panel, (name, table) in zip(flat, found.items(), strict=False):
        _draw(panel, QUESTIONS[name], table)
    for panel in flat[len(found) :]:
        panel.set_axis_off()
    sink = io.BytesIO()
    figure.savefig(sink, format="png")
    return sink.getvalue()


def _draw(panel: Any, question: Question, table: pa.Table) -> None:
    panel.set_title(question.title, fontsize=11, color=_INK, loc="left")
    rows = [row for row in table.to_pylist() if row[question.value] is not None][:BARS_MAX]
    if not rows:
        panel.set_axis_off()
        panel.text(0.02, 0.8, "nothing to show", color="#888888", transform=panel.transAxes)
        return
    labels = [_label(row, question.label) for row in rows]
    values = [float(row[question.value]) for row in rows]
    places = list(range(len(rows)))
    panel.barh(places, values, color=_BAR, height=0.65)
    panel.set_yticks(places, labels, fontsize=8)
    # The same height of a bar everywhere, however few there are; the first on top.
    panel.set_ylim(max(len(rows), BARS_MAX) - 0.4, -0.6)
    panel.set_xlim(0, max(values) * 1.18 or 1)
    for place, value in zip(places, values, strict=True):
        shown = f"{value:,.3f}".rstrip("0").rstrip(".")
        panel.text(value, place, f" {shown}", va="center", fontsize=8, color=_INK)
    panel.set_xlabel(question.value, fontsize=8, color=_INK)
    panel.tick_params(axis="x", labelsize=8)
    if all(value.is_integer() for value in values):
        # Half a call is no place on an axis.
        panel.xaxis.get_major_locator().set_params(integer=True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _label(row: dict[str, Any], columns: tuple[str, ...]) -> str:
    parts = []
    for column in columns:
        value = row[column]
        moment = getattr(value, "strftime", None)
        parts.append(moment("%H:%M") if moment else str(value if value is not None else "-"))
    whole = " · ".join(parts)
    return whole if len(whole) <= LABEL_CHARS_MAX else "…" + whole[1 - LABEL_CHARS_MAX :]
