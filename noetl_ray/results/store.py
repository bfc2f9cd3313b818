"""The result store: persist before emit (STG-1, STG-2, P28); reading is :mod:`.reading`.

``persist`` returns ``payload.result`` only when the bytes are durable; the caller publishes it
afterwards.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from noetl_ray.errors import (
    ObjectMissingError,
    StoreUnavailableError,
    ToolError,
)
from noetl_ray.events.canonical import canonical_json
from noetl_ray.locator.keys import Placement, result_key
from noetl_ray.payloads.content import get_payload, put_payload
from noetl_ray.payloads.shared import TierKey
from noetl_ray.results.codecs import (
    MEDIA_JSON,
    ROWS_KEY,
    TableShape,
    decode_result,
)
from noetl_ray.results.extracted import (
    EVERYTHING,
    EXTRACTED_MAX_BYTES,
    MASKED,
    bounded_marks,
    extract,
)
from noetl_ray.results.garbage import KEEP_EXT
from noetl_ray.results.options import NO_OPTIONS, StorageOptions, selected
from noetl_ray.results.reading import OFFLOAD_BYTES, ResultReader
from noetl_ray.results.redact import (
    MASK,
    columns_hold_credentials,
    has_credentials,
    mask,
    mask_marked,
)
from noetl_ray.results.ref import Status, build_result
from noetl_ray.results.tier import (
    CONTEXT_MAX_BYTES,
    TierDecision,
    decide_tier,
    is_larger_than,
    look_at,
)

if TYPE_CHECKING:
    from noetl_ray.locator.result import ResultName
    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.payloads.tiers import Tiers
    from noetl_ray.scope import Scope

Staged = Literal["present", "written", "missing", "mismatched"]

# Not canonical: a table's column order must survive until the materializer encodes it.
_ordered_json = msgspec.json.Encoder(decimal_format="string")


class ResultStore(ResultReader):
    """Results over one object store and one placement: persist before emit, and reading."""

    def __init__(
        self,
        objects: ObjectStore,
        placement: Placement,
        *,
        context_max_bytes: int = CONTEXT_MAX_BYTES,
        extracted_max_bytes: int = EXTRACTED_MAX_BYTES,
        producer_stage: bool = True,
        offload_bytes: int | None = OFFLOAD_BYTES,
        tiers: Tiers | None = None,
    ) -> None:
        """Bind the store.

        Args:
            objects: Where bytes go.
            placement: What keys need beside names.
            context_max_bytes: The inline budget (TIER-1).
            extracted_max_bytes: The budget of the extracted block (TIER-5).
            producer_stage: Write at the result's own key at once; else leave that to the
                materializer.
            offload_bytes: From which size on threads encode; None never (the simulator has no
                threads).
            tiers: Nearer copies of what is durable; None reads the store each time.
        """
        super().__init__(objects, placement, offload_bytes=offload_bytes, tiers=tiers)
        self.producer_stage = producer_stage
        self._context_max_bytes = context_max_bytes
        self._extracted_max_bytes = extracted_max_bytes

    async def persist(
        self,
        scope: Scope,
        name: ResultName,
        value: Any,
        *,
        status: Status = "ok",
        secret: bool = False,
        options: StorageOptions = NO_OPTIONS,
        now_ms: int = 0,
    ) -> dict[str, Any]:
        """Make a value durable where its size asks for it and return ``payload.result``.

        Args:
            scope: Whose result it is; its tenant must be the name's.
            name: The result's coordinates.
            value: Plain JSON data.
            status: How the task ended.
            secret: Everything in the value is secret, whatever its keys are called.
            options: What the task asks of its storage.
            now_ms: When that is, for how long it is wanted.

        Raises:
            StoreUnavailableError: nothing was made durable; nothing may be emitted.
            ToolError: the value has no JSON form.
        """
        self._check_tenant(scope, name)
        large = self._offload_bytes is not None and is_larger_than(value, self._offload_bytes)
        budget = options.inline_max_bytes
        decision, hidden = await self._work(
            large, lambda: self._decide(value, budget, secret=secret)
        )
        if decision.data is None:
            return build_result(decision, status=status)
        keep = options.keep(now_ms)
        made = partial(
            build_result,
            decision,
            status=status,
            uri=name.uri,
            store=self.objects.kind,
            selected={} if secret else mask(selected(value, options.select)),
            preview=self._preview(decision, options),
            keep=keep,
            secret=hidden,
        )
        if keep is not None:
            # Before the object itself, so that no result is collected that was to stay.
            place = result_key(self.placement, name, KEEP_EXT)
            await self.objects.put(place, canonical_json(keep))
        objects = self.objects.for_secrets() if hidden else self.objects
        if self.producer_stage and await self._stage(objects, name, decision):
            return made(ipc=None if hidden else await self._keep(scope, name, decision))
        data = await self._work(large, lambda: _ordered_json.encode(value))
        payload = await put_payload(objects, self.placement, scope, data, MEDIA_JSON)
        return made(payload_uri=payload.uri)

    async def ensure_staged(self, scope: Scope, result: dict[str, Any]) -> Staged:
        """See that a result's object lies at its own key, written from its payload if need be.

        Raises:
            NotFoundError, UsageError: the reference is not one of this scope.
            StoreError: the store failed; nothing is known.
        """
        reference = result["reference"]
        key = self._key(scope, reference)
        if await self.objects.info(key) is not None:
            return "present"
        payload_uri = reference.get("payload_uri")
        if payload_uri is None:
            return "missing"
        try:
            payload = await get_payload(self.objects, self.placement, scope, payload_uri)
        except ObjectMissingError:
            return "missing"
        decision = await self._work(
            self._is_large(len(payload)),
            lambda: decide_tier(decode_result(MEDIA_JSON, payload), force_tier=True),
        )
        if decision.data is None or decision.sha256 != reference["sha256"]:
            return "mismatched"
        objects = self.objects.for_secrets() if reference.get("secret") else self.objects
        await objects.put(key, decision.data)
        return "written"

    def _preview(self, decision: TierDecision, options: StorageOptions) -> Any:
        """A preview of the size that was asked for; it is cut from what may be shown."""
        if options.preview_max_bytes is None:
            return None
        sample, cut = extract(decision.extracted, options.preview_max_bytes)
        return {
            "truncated": bool(cut or decision.truncated),
            "bytes": len(canonical_json(sample)),
            "sample": sample,
        }

    async def _stage(self, objects: ObjectStore, name: ResultName, decision: TierDecision) -> bool:
        """Write at the result's own key; a failed write leaves that to the materializer (STG-2)."""
        assert decision.data is not None
        try:
            await objects.put(result_key(self.placement, name, decision.ext), decision.data)
        except StoreUnavailableError:
            return False
        return True

    def _decide(self, value: Any, budget: int | None, *, secret: bool) -> tuple[TierDecision, bool]:
        """The decision, and whether the bytes hold secrets."""
        limit = self._context_max_bytes
        decide = partial(
            decide_tier,
            value,
            context_max_bytes=limit if budget is None else min(budget, limit),
            extracted_max_bytes=self._extracted_max_bytes,
        )
        try:
            look = look_at(value, **decide.keywords)
            hidden = secret or _has_credentials(value, look.shape)
            decision = decide(force_tier=hidden, look=look)
        except (ValueError, RecursionError, TypeError, OverflowError) as error:
            msg = f"the result has no JSON form: {type(error).__name__}"
            raise ToolError(msg, "schema") from None
        if secret:
            return msgspec.structs.replace(
                decision, extracted=MASK, truncated={EVERYTHING: MASKED}
            ), True
        if not hidden:
            return decision, False
        block, cut = extract(mask(value), self._extracted_max_bytes)
        _, covered = mask_marked(block)
        marks = bounded_marks({**cut, **covered}, self._extracted_max_bytes // 2)
        return msgspec.structs.replace(decision, extracted=block, truncated=marks), True

    async def _keep(
        self, scope: Scope, name: ResultName, decision: TierDecision
    ) -> dict[str, Any] | None:
        """Offer durable bytes to the nearer tiers (CCH-2); the hint for the event."""
        if self.tiers is None:
            return None
        assert decision.data is not None
        key = TierKey(
            tenant_id=scope.tenant_id,
            organization_id=scope.organization_id,
            execution_id=name.execution_id,
            sha256=decision.sha256,
            size_bytes=decision.size_bytes,
            media_type=decision.media_type,
            schema_digest=decision.schema_digest,
            rows=decision.rows,
        )
        local = self.objects.local_path(result_key(self.placement, name, decision.ext))
        return await self.tiers.keep(key, decision.data, local=local)


def _has_credentials(value: Any, shape: TableShape | None) -> bool:
    """Whether a value holds credentials; of a table, only what is round its rows is walked."""
    if shape is None:
        return has_credentials(value)
    if columns_hold_credentials(zip(shape.schema.names, shape.cells, strict=True)):
        return True
    return isinstance(value, dict) and has_credentials(
        {key: item for key, item in value.items() if key != ROWS_KEY}
    )
