"""What random playbooks are made of: one module per feature of the language.

A feature is a function that is given the random numbers and the step drawn so far and changes it.
To add one: write a module here, name its function in ``STEP_FEATURES`` (tried on every step, with
its chance) or ``BOOK_FEATURES`` (tried on every playbook). Whatever it adds must have an outcome
that does not depend on timing, because a rough run is held against a calm one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.simulation.features.flow import add_cycle
from tests.simulation.features.loops import add_cursor, add_fanout, add_loop
from tests.simulation.features.secrets import add_secret
from tests.simulation.features.tools import add_tool, set_variable
from tests.simulation.features.waits import add_wait

Step = dict[str, Any]
Book = dict[str, Any]
StepFeature = Callable[[random.Random, Step], None]
BookFeature = Callable[[random.Random, Book], None]

STEP_FEATURES: list[tuple[float, StepFeature]] = [
    (0.88, add_tool),
    (0.25, add_loop),
    (0.15, add_cursor),
    (0.15, add_fanout),
    (0.3, add_wait),
    (0.4, set_variable),
]
"""Tried in this order; each leaves a step alone that it does not suit."""

BOOK_FEATURES: list[tuple[float, BookFeature]] = [
    (0.4, add_cycle),
    (0.2, add_secret),
]
"""Tried once the steps and the arcs between them stand."""
