"""A picture of one run: rows done over time, every frame, and when a process was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from bench.pft.drive import Ran

_DOTS_MAX = 40
"""Size of a frame's dot at its largest."""


def plot(ran: Ran, path: Path, title: str) -> None:
    """Draw a run into a PNG file."""
    steps = list(dict.fromkeys(frame["step"] for frame in ran.told.frames))
    colors = {step: plt.get_cmap("tab10")(index % 10) for index, step in enumerate(steps)}
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(10, 7), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    done = 0
    times, rows = [0.0], [0]
    for frame in ran.told.frames:
        done += frame["rows"] or 0
        times.append(frame["ended"])
        rows.append(done)
    above.step(times, rows, where="post", color="#222222", linewidth=1.6, label="rows done")
    above.set_ylabel("rows done")
    above.set_title(title, loc="left", fontsize=11)
    for step in steps:
        mine = [frame for frame in ran.told.frames if frame["step"] == step and frame["rows"]]
        calm = [frame for frame in mine if frame["attempts"] == 1]
        again = [frame for frame in mine if frame["attempts"] > 1]
        for found, marker, size in ((calm, "o", 14), (again, "X", _DOTS_MAX)):
            below.scatter(
                [frame["ended"] for frame in found],
                [frame["ended"] - frame["began"] for frame in found],
                color=[colors[step]] * len(found),
                marker=marker,
                s=size,
                label=step if marker == "o" else None,
                linewidths=0,
            )
    below.scatter([], [], color="#666666", marker="X", s=_DOTS_MAX, label="tried again")
    below.set_ylabel("seconds from dispatch to end")
    below.set_xlabel("seconds since the execution began")
    for axes in (above, below):
        for number, at in enumerate(ran.kills):
            label = f"a worker killed ({len(ran.kills)})" if axes is above and not number else None
            axes.axvline(at, color="#cc3311", linewidth=0.8, alpha=0.6, label=label)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    above.legend(loc="upper left", framealpha=0.95, edgecolor="none")
    below.legend(loc="upper right", framealpha=0.95, edgecolor="none", ncols=4, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
