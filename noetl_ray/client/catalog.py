"""The client's calls about the catalog, business objects and frames; ``Client`` has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.client.values import (
    BusinessObject,
    PlaybookText,
    PlaybookVersion,
    Registered,
    Validation,
    read,
)

if TYPE_CHECKING:
    from noetl_ray.client.transport import Transport


class CatalogCalls:
    """What can be asked about playbooks and about the things they are about."""

    _transport: Transport

    async def register(self, content: str) -> Registered:
        """Register a playbook's text; the newest version's own text makes no new version."""
        body = {"content": content}
        answer = await self._transport.call("POST", "/api/catalog/register", body=body)
        return read(Registered, answer)

    async def validate(self, content: str) -> Validation:
        """Say whether a text could be registered."""
        body = {"content": content}
        return read(Validation, await self._transport.call("POST", "/api/validate", body=body))

    async def catalog(self, *, limit: int = 100) -> list[PlaybookVersion]:
        """The newest version of every registered path, by path."""
        answer = await self._get("/api/catalog", limit=limit)
        return [read(PlaybookVersion, item) for item in answer["playbooks"]]

    async def playbook_versions(
        self, path: str, *, before: int | None = None, limit: int = 100
    ) -> list[PlaybookVersion]:
        """The versions of a path, newest first; ``before`` is the version to read on from."""
        answer = await self._get("/api/catalog/versions", path=path, before=before, limit=limit)
        return [read(PlaybookVersion, item) for item in answer["versions"]]

    async def playbook(self, path: str, *, version: int | None = None) -> PlaybookText:
        """A registered version with its text; the newest unless another is named."""
        answer = await self._get("/api/catalog/show", path=path, version=version)
        return read(PlaybookText, answer)

    async def business_objects(
        self,
        object_type: str | None = None,
        object_id: str | None = None,
        *,
        status: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[BusinessObject]:
        """Business objects as they are, last changed first."""
        answer = await self._get(
            "/api/business-objects",
            type=object_type,
            id=object_id,
            status=status,
            before=before,
            limit=limit,
        )
        return [read(BusinessObject, item) for item in answer["objects"]]

    async def business_object_history(
        self,
        object_type: str | None = None,
        object_id: str | None = None,
        *,
        execution_id: int | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[BusinessObject]:
        """Everything said about one object, or by one execution, newest first."""
        answer = await self._get(
            "/api/business-objects/history",
            type=object_type,
            id=object_id,
            execution_id=execution_id,
            before=before,
            limit=limit,
        )
        return [read(BusinessObject, item) for item in answer["objects"]]

    async def stages(self, execution_id: int) -> list[dict[str, Any]]:
        """Stages of an execution's cursor loops in the order they were opened."""
        answer = await self._get(f"/api/executions/{execution_id}/stages")
        found: list[dict[str, Any]] = answer["stages"]
        return found

    async def frames(
        self,
        execution_id: int,
        *,
        stage_id: str | None = None,
        status: str | None = None,
        limit: int = 1_000,
    ) -> list[dict[str, Any]]:
        """Frames of an execution, last changed first."""
        answer = await self._get(
            f"/api/executions/{execution_id}/frames", stage_id=stage_id, status=status, limit=limit
        )
        found: list[dict[str, Any]] = answer["frames"]
        return found

    async def replay(
        self,
        execution_id: int,
        *,
        position: int | None = None,
        event_id: int | None = None,
        time: str | None = None,
        projection: str = "execution",
        compare: bool = False,
    ) -> dict[str, Any]:
        """An execution folded anew from the log, with its six checksums.

        Args:
            execution_id: Which one.
            position: As of this position of the log.
            event_id: As of the record with this event.
            time: As of this moment, UTC in ISO form.
            projection: What of it to show.
            compare: Hold it against the read model as it is now.
        """
        return await self._get(
            "/api/replay/state",
            execution_id=execution_id,
            as_of_position=position,
            as_of_event_id=event_id,
            as_of_time=time,
            projection=projection,
            compare=compare or None,
        )

    async def _get(self, where: str, /, **params: Any) -> dict[str, Any]:
        return await self._transport.call("GET", where, params=params)
