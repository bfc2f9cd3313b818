"""A queue of rows that cursor loops claim from, with transactions that die with their process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from noetl_ray.errors import ToolError
from noetl_ray.tools.cursor import Claimed, CursorClaim, Fate, Keep, Row
from noetl_ray.tools.port import ToolContext, ToolResult

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass
class Transaction:
    """A claim under way or done."""

    process: str
    queue: tuple[int, str]
    rows: list[Row]
    tag: str = ""
    fate: Fate = "running"


@dataclass
class Queues:
    """The database: it outlives every process."""

    waiting: dict[tuple[int, str], list[Row]] = field(default_factory=dict)
    transactions: dict[str, Transaction] = field(default_factory=dict)

    def begin(
        self, process: str, queue: tuple[int, str], size: int, rows_max: int, tag: str
    ) -> str:
        """Lock rows for a claim."""
        if queue not in self.waiting:
            self.waiting[queue] = [{"id": i} for i in range(size)]
        rows, self.waiting[queue] = self.waiting[queue][:rows_max], self.waiting[queue][rows_max:]
        token = str(len(self.transactions) + 1)
        self.transactions[token] = Transaction(process, queue, rows, tag)
        return token

    def commit(self, token: str) -> None:
        transaction = self.transactions[token]
        if transaction.fate != "running":
            msg = "the session was ended"
            raise ToolError(msg, "db_connection", True)
        transaction.fate = "committed"

    def abort(self, token: str) -> None:
        """Give the rows back."""
        transaction = self.transactions[token]
        if transaction.fate == "running":
            transaction.fate = "aborted"
            self.waiting[transaction.queue] = transaction.rows + self.waiting[transaction.queue]

    def crashed(self, process: str) -> None:
        """The server sees the connections of a dead process end."""
        for token, transaction in self.transactions.items():
            if transaction.process == process:
                self.abort(token)


class QueueTool:
    """Stands for the kind that has cursors."""

    kind: ClassVar[str] = "postgres"
    side_effects: ClassVar[bool] = True
    meta_key: ClassVar[str] = "pg"
    text_keys: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, world: World, process: str) -> None:
        self._world = world
        self._process = process
        self.cursor = self

    async def run(self, config: dict[str, Any], context: ToolContext) -> ToolResult:
        """Only its cursor is used."""
        return ToolResult(data={})

    async def claim(self, wanted: CursorClaim, keep: Keep, context: ToolContext) -> Claimed:
        """Lock, keep, commit, each at its own moment."""
        queues, clock, rng = self._world.queues, self._world.clock, self._world.loop.rng
        rows_max = int(wanted.statement(wanted.max_rows).split()[-1])
        size = int(wanted.config["rows"])
        token = queues.begin(
            self._process, (context.execution_id, context.step), size, rows_max, wanted.tag
        )
        rows = queues.transactions[token].rows
        try:
            await clock.sleep(rng.choice([0, 0.01, 1.0]))
            if rows:
                await keep(rows, token)
            await clock.sleep(rng.choice([0, 0.01, 1.0]))
            queues.commit(token)
        except BaseException:
            queues.abort(token)
            raise
        return Claimed(rows=rows, size_bytes=10 * len(rows))

    async def evict(self, config: dict[str, Any], tag: str, context: ToolContext) -> None:
        """End the sessions of a tag."""
        await self._world.clock.sleep(0)
        for token, transaction in list(self._world.queues.transactions.items()):
            if transaction.tag == tag:
                self._world.queues.abort(token)

    async def fate(self, config: dict[str, Any], token: str, context: ToolContext) -> Fate:
        """What became of a claim."""
        await self._world.clock.sleep(0)
        return self._world.queues.transactions[token].fate

    async def close(self) -> None:
        """Nothing to let go of."""
