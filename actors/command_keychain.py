"""The keychain of a command: where its values come from, and who is told of its secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl_ray.tools.keychain import Keychain
from noetl_ray.tools.keychain_kinds import KeychainSources
from noetl_ray.tools.port import ToolContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from actors.worker_ports import WorkerPorts
    from noetl_ray.credentials.port import Credential
    from noetl_ray.dsl.model import Playbook
    from noetl_ray.events.envelope import Event

REQUEST_S = 30.0
"""The most a token endpoint may take, unless its entry says otherwise."""


def command_keychain(
    ports: WorkerPorts,
    issued: Event,
    playbook: Playbook,
    context: dict[str, Any],
    credential: Callable[[str], Awaitable[Credential]],
    secrets: set[str],
) -> Keychain:
    """The keychain as a command's tasks use it; every secret they see joins ``secrets``."""

    async def request(entry: str, config: dict[str, Any]) -> Any:
        tool = ports.registry.get("http")
        result = await tool.run({"timeout": REQUEST_S, **config}, _asking(entry))
        return result.data.get("data") if isinstance(result.data, dict) else None

    def _asking(entry: str) -> ToolContext:
        return ToolContext(
            execution_id=issued.execution_id,
            step=issued.payload["step"],
            task=f"keychain.{entry}",
            attempt=1,
            # Asking for a token twice does no harm, and a token endpoint must not repeat itself.
            idempotency_key="",
            timeout_s=None,
            credential=credential,
            log=lambda _stream, _line: None,
        )

    return Keychain(
        playbook.keychain,
        execution=f"{issued.tenant_id}/{issued.organization_id}/{issued.execution_id}",
        workload=context.get("workload", {}),
        templates=ports.templates,
        clock=ports.clock,
        sources=KeychainSources(
            execution_id=issued.execution_id,
            env=ports.env,
            credential=credential,
            request=request,
        ),
        cache=ports.keychains,
        conceal=secrets.update,
    )
