"""Which code folded a state: a digest over the sources that decide what a fold comes to.

A checkpoint or snapshot made by other code is not used; the log is folded anew instead. A number
kept by hand would be forgotten with the first careless change.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import resources

from noetl_ray import __version__

FOLD = ("noetl_ray.engine", "noetl_ray.dsl", "noetl_ray.events", "noetl_ray.locator")
"""Packages that decide what a state comes to."""


@lru_cache(maxsize=4)
def code_version(packages: tuple[str, ...] = FOLD) -> str:
    """SHA-256 over the sources of some packages."""
    found = hashlib.sha256(__version__.encode())
    for package in packages:
        for file in sorted(resources.files(package).iterdir(), key=lambda each: each.name):
            if file.name.endswith(".py"):
                found.update(f"{package}/{file.name}\0".encode())
                found.update(file.read_bytes())
    return found.hexdigest()
