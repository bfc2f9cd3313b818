"""Random playbooks whose outcome does not depend on timing.

So that a faulty run can be held against a calm one. What they are made of lies in ``features``.
"""

from __future__ import annotations

import json
import random
from typing import Any

from tests.simulation.features import BOOK_FEATURES, STEP_FEATURES
from tests.simulation.features.calls import CHILDREN, add_calls
from tests.simulation.features.flow import arcs_of


def random_playbook(
    rng: random.Random, *, name: str | None = None, calls: tuple[str, ...] = (), steps_max: int = 9
) -> str:
    """A playbook of 3 to 9 steps, as JSON, which is YAML that is quick to write.

    With ``calls`` some of its tasks run the playbooks of these paths.
    """
    names = [f"s{i}" for i in range(rng.randint(min(3, steps_max), steps_max))]
    book: dict[str, Any] = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": name or f"random{rng.randint(0, 10**9)}"},
        "workload": {"limit": rng.randint(1, 3), "label": "x"},
        "workflow": [_step(rng, names, index) for index in range(len(names))],
    }
    if calls:
        add_calls(rng, book["workflow"], calls)
    for chance, feature in BOOK_FEATURES:
        if rng.random() < chance:
            feature(rng, book)
    return json.dumps(book, indent=1)


def _step(rng: random.Random, names: list[str], index: int) -> dict[str, Any]:
    step: dict[str, Any] = {"step": names[index]}
    for chance, feature in STEP_FEATURES:
        if rng.random() < chance:
            feature(rng, step)
    later = names[index + 1 :]
    if later:
        step["next"] = arcs_of(rng, names[index], later)
    return step


def random_children(rng: random.Random) -> list[str]:
    """Playbooks to be called."""
    first, second = CHILDREN
    return [
        random_playbook(rng, name=first, steps_max=3),
        random_playbook(rng, name=second, calls=(first,), steps_max=3),
    ]
