"""Playbooks by digest, parsed once per process.

The source lies in the object store under its digest (P12).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from noetl_ray.dsl.parse import parsed_playbook
from noetl_ray.engine.inputs import Program
from noetl_ray.locator.resource import payload_locator
from noetl_ray.payloads.content import get_payload
from noetl_ray.tools.kinds import KNOWN_KINDS

if TYPE_CHECKING:
    from noetl_ray.dsl.template import Templates
    from noetl_ray.locator.keys import Placement
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.scope import Scope

PROGRAMS_MAX = 256


class Programs:
    """A bounded cache of programs in front of the object store."""

    def __init__(
        self,
        objects: ObjectStore,
        placement: Placement,
        templates: Templates,
        known_kinds: frozenset[str] = KNOWN_KINDS,
    ) -> None:
        self._objects = objects
        self._placement = placement
        self._templates = templates
        self._known_kinds = known_kinds
        self._cache: OrderedDict[tuple[Scope, str], Program] = OrderedDict()

    def cached(self, scope: Scope, digest: str) -> Program | None:
        """The program if this process has it already."""
        program = self._cache.get((scope, digest))
        if program is not None:
            self._cache.move_to_end((scope, digest))
        return program

    async def get(self, scope: Scope, digest: str) -> Program:
        """The program, read from the object store when it is new here."""
        program = self.cached(scope, digest)
        if program is None:
            uri = payload_locator(scope, digest)
            source = await get_payload(self._objects, self._placement, scope, uri)
            playbook = parsed_playbook(source.decode(), self._known_kinds)
            program = Program(playbook, self._templates)
            self._cache[scope, digest] = program
            while len(self._cache) > PROGRAMS_MAX:
                self._cache.popitem(last=False)
        return program
