"""A secret in the workload that a task sends along and gets back: no record may hold it."""

from __future__ import annotations

import random
from typing import Any

SECRET = "SIMULATED-SECRET-7d1f"
"""Checked against the bytes of every record that is stored (invariant 5)."""


def add_secret(_rng: random.Random, book: dict[str, Any]) -> None:
    """Let the first task outside read a password and answer with it under a telling name."""
    for step in book["workflow"]:
        tool = step.get("tool")
        if isinstance(tool, dict) and tool["kind"] == "http" and "loop" not in step:
            book["workload"]["password"] = SECRET
            tool["value"] = {**tool["value"], "password": "{{ workload.password }}"}
            return
