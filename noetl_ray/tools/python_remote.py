"""Python tasks that ask for resources: what they ask for, and the port to whoever can give it.

Owns the wish as a value and its reading from a rendered task. The other side of the port lives
where the cluster is known; without one such a task fails and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from noetl_ray.dsl.resources import (
    RESOURCE_KEYS,
    Flaw,
    quantity,
    resource_flaws,
    runtime_env_flaws,
    size_bytes,
)
from noetl_ray.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_CPUS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Where user code must run: with these resources, in this environment."""

    num_cpus: float = DEFAULT_CPUS
    num_gpus: float = 0.0
    memory_bytes: int = 0
    """Reserved, and the most the code may use; 0 reserves nothing."""
    custom: dict[str, float] = field(default_factory=dict)
    runtime_env: dict[str, Any] = field(default_factory=dict)

    def amounts(self) -> dict[str, float]:
        """Everything asked for, by the names a cluster counts it under; what is 0 is left out."""
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": float(self.memory_bytes)}
        return {name: amount for name, amount in {**named, **self.custom}.items() if amount}

    def __str__(self) -> str:
        return said(self.amounts()) or "no resources"


class RemotePython(Protocol):
    """Runs one request of user Python somewhere else, by the rules of the local processes."""

    async def call(
        self,
        request: bytes,
        wish: Wish,
        *,
        name: str,
        log: Callable[[str, str], None],
        timeout_s: float | None,
    ) -> bytes:
        """The reply of the code's process.

        Args:
            request: What the process gets.
            wish: Where it must run.
            name: What people see it as.
            log: Called with stream and line while it runs.
            timeout_s: From the start of the code; waiting for resources is not counted.

        Raises:
            TimeoutError: The time was over; nothing of it runs any more.
            ProcessEndedError, MemoryExceededError, ReplyTooLargeError: As the local pool does.
            ToolError: It could not be run there, or whoever ran it was lost.
        """
        ...


def read_wish(config: dict[str, Any]) -> Wish | None:
    """What a rendered task asks for; None when it asks for nothing and runs here.

    Raises:
        ToolError: A value makes no sense.
    """
    resources, runtime_env = config.get("resources"), config.get("runtime_env")
    _refuse("resources", resource_flaws(resources))
    _refuse("runtime_env", runtime_env_flaws(runtime_env))
    asked = {str(k): v for k, v in (resources or {}).items() if v is not None}
    environment = {k: v for k, v in (runtime_env or {}).items() if v}
    if not asked and not environment:
        return None
    if "env_vars" in environment:
        named = environment["env_vars"].items()
        environment["env_vars"] = {str(name): _text(value) for name, value in named}
    return Wish(
        num_cpus=_amount(asked.get("num_cpus", DEFAULT_CPUS)),
        num_gpus=_amount(asked.get("num_gpus", 0)),
        memory_bytes=size_bytes(asked.get("memory", 0)) or 0,
        custom={k: _amount(v) for k, v in asked.items() if k not in RESOURCE_KEYS},
        runtime_env=environment,
    )


def nobody(wish: Wish) -> ToolError:
    """The failure of a task that asks for resources where there is no cluster."""
    msg = (
        f"the task asks for {wish} of a Ray cluster, and this worker is not part of one; "
        "run the playbook on Ray, or take `resources` and `runtime_env` out of the task"
    )
    return ToolError(msg, "schema")


def said(amounts: dict[str, float]) -> str:
    """Amounts for people: ``CPU 2, memory 1 GiB``."""
    return ", ".join(
        f"{name} {_size(amount) if name == 'memory' else format(amount, 'g')}"
        for name, amount in sorted(amounts.items())
    )


def _size(amount: float) -> str:
    for unit, least in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if amount >= least:
            return f"{amount / least:.4g} {unit}"
    return f"{amount:g} bytes"


def _refuse(key: str, flaws: list[Flaw]) -> None:
    if flaws:
        flaw = flaws[0]
        where = f"{key}.{flaw.key}" if flaw.key else key
        hint = f" ({flaw.hint})" if flaw.hint else ""
        msg = f"{where}: {flaw.message}{hint}"
        raise ToolError(msg, "schema")


def _amount(value: Any) -> float:
    number = quantity(value)
    assert number is not None  # the flaws were refused before
    return number


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
