"""The stories golden histories tell: a playbook each, and what happens to the world meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from noetl_ray.submit import Submission, cancel_execution, register_playbook, submit_execution
from noetl_ray.submit.outside import OutsideFact, tell
from tests.simulation.invariants import folded
from tests.simulation.world import World

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: golden/{name}}}\n"
Story = Callable[[World, str], Awaitable[list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One execution worth keeping."""

    name: str
    body: str
    status: str
    story: Story

    @property
    def playbook(self) -> str:
        return HEAD.format(name=self.name) + self.body.lstrip("\n")


async def submit(world: World, source: str, **more: Any) -> int:
    asked = Submission(source=source, **more)
    return (await submit_execution(world.submit_ports, world.scope, "default", asked)).execution_id


async def plain(world: World, source: str) -> list[int]:
    """Submit and let it run."""
    return [await submit(world, source)]


async def cancelled(world: World, source: str) -> list[int]:
    """Cancel while the second step runs."""
    execution_id = await submit(world, source)
    await world.clock.sleep(2)
    await cancel_execution(world.submit_ports, world.scope, execution_id, "no longer wanted")
    return [execution_id]


async def worker_lost(world: World, source: str) -> list[int]:
    """Kill the worker that holds the first step; it does not come back."""
    execution_id = await submit(world, source)
    await world.clock.sleep(1)
    world.crash("worker/0")
    return [execution_id]


async def twice(world: World, source: str) -> list[int]:
    """Submit under one key, and again hours after it ended."""
    first = await submit(world, source, idempotency_key="order-7", workload={"n": 2})
    await world.clock.sleep(6 * 3600)
    second = await submit(world, source, idempotency_key="order-7", workload={"n": 2})
    assert first == second
    return [first]


async def told(world: World, source: str) -> list[int]:
    """Tell it things from outside while it runs, one of them twice under one key."""
    execution_id = await submit(world, source)
    await world.clock.sleep(0.4)
    for _ in range(2):
        facts = [OutsideFact(name="door.opened", data={"by": "Ada"})]
        ports, scope = world.submit_ports, world.scope
        await tell(ports, scope, execution_id, facts, batch=False, key="door")
    batch = [OutsideFact(name="ping"), OutsideFact(name="pong", data={"n": 1})]
    await tell(world.submit_ports, world.scope, execution_id, batch, batch=True)
    return [execution_id]


async def calling(world: World, source: str) -> list[int]:
    """A playbook that calls itself, once; both executions are kept."""
    await register_playbook(world.submit_ports, world.scope, source)
    parent = await submit(world, source, workload={"inner": False})
    await world.clock.sleep(30)
    return sorted(state for state in folded(world.log) if state >= parent)


CASES = (
    Case(
        name="sub_playbook",
        status="COMPLETED",
        story=calling,
        body="""
workload: {inner: true, n: 3}
workflow:
  - step: start
    next:
      spec: {mode: exclusive}
      arcs: [{step: work, when: "{{ workload.inner }}"}, {step: call}]
  - step: work
    tool: {kind: http, url: effect, value: {doubled: 6}, takes_ms: 400}
  - step: call
    tool:
      - {name: before, kind: http, url: effect, value: {n: 5}}
      - name: child
        kind: playbook
        path: golden/sub_playbook
        input: {inner: true}
        return_step: work
      - {name: after, kind: noop, result: {sum: "{{ child.doubled + before.n }}"}}
""",
    ),
    Case(
        name="chain",
        status="COMPLETED",
        story=plain,
        body="""
workload: {greeting: hello}
workflow:
  - step: start
    next: a
  - step: a
    tool: {kind: noop, result: {n: 1, text: "{{ workload.greeting }}"}}
    set: {ctx.seen: "{{ a.text }}"}
    next: b
  - step: b
    tool: {kind: http, url: effect, value: {n: "{{ a.n + 1 }}", seen: "{{ ctx.seen }}"}}
    next: end
  - step: end
    tool: {kind: noop, result: "{{ b.n }}"}
""",
    ),
    Case(
        name="inclusive_join",
        status="COMPLETED",
        story=plain,
        body="""
workflow:
  - step: start
    tool: {kind: noop, result: {n: 5}}
    next:
      spec: {mode: inclusive}
      arcs:
        - step: slow
        - {step: quick, set: {ctx.via: "{{ start.n }}"}}
        - {step: never, when: "{{ start.n > 9 }}"}
  - step: slow
    tool: {kind: http, url: effect, value: {n: 1}, takes_ms: 700}
    next: join
  - step: quick
    tool: {kind: http, url: effect, value: {n: 2}}
    next: join
  - step: never
    tool: {kind: noop}
    next: join
  - step: join
    tool: {kind: noop, result: "{{ slow.n + quick.n + ctx.via }}"}
""",
    ),
    Case(
        name="exclusive_merge",
        status="COMPLETED",
        story=plain,
        body="""
workload: {amount: 70}
workflow:
  - step: start
    tool: {kind: noop, result: {amount: "{{ workload.amount }}"}}
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: high, when: "{{ start.amount > 50 }}"}
        - {step: low, when: "{{ start.amount > 10 }}"}
        - step: none
  - step: high
    tool: {kind: noop, result: {category: high}}
    next: merge
  - step: low
    tool: {kind: noop, result: {category: low}}
    next: merge
  - step: none
    next: merge
  - step: merge
    tool: {kind: noop, result: "{{ high.category if high else low.category }}"}
""",
    ),
    Case(
        name="cycle_with_set",
        status="COMPLETED",
        story=plain,
        body="""
workload: {page: 1, pages: 3}
workflow:
  - step: fetch
    tool: {kind: http, url: "effect/{{ ctx.page }}", value: {page: "{{ ctx.page }}"}}
    set: {ctx.page: "{{ ctx.page + 1 }}", ctx.last: "{{ fetch.page }}"}
    next:
      arcs:
        - {step: fetch, when: "{{ ctx.page <= workload.pages }}"}
        - step: done
  - step: done
    tool: {kind: noop, result: "{{ ctx.last }}"}
""",
    ),
    Case(
        name="retry_then_handled",
        status="COMPLETED",
        story=plain,
        body="""
workflow:
  - step: call
    tool:
      kind: http
      url: effect
      value: {n: 1}
      fail_first: 9
      spec:
        policy:
          rules:
            - when: "{{ output.status == 'error' }}"
              then:
                do: retry
                attempts: 3
                backoff: exponential
                delay: 1
                set: {ctx.tries: "{{ _attempt }}"}
    next:
      arcs:
        - {step: mend, when: "{{ event.name == 'call.error' }}"}
        - step: never
  - step: mend
    tool: {kind: noop, result: {after: "{{ ctx.tries }}"}}
  - step: never
    tool: {kind: noop}
""",
    ),
    Case(
        name="unrouted_failure",
        status="FAILED",
        story=plain,
        body="""
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: good}]}
  - step: bad
    tool: {kind: http, url: effect, value: {n: 1}, fail_first: 9}
    next: after
  - step: good
    tool: {kind: http, url: effect, value: {n: 1}, takes_ms: 900}
    next: after
  - step: after
    tool: {kind: noop}
""",
    ),
    Case(
        name="cancel",
        status="CANCELLED",
        story=cancelled,
        body="""
workflow:
  - step: start
    tool: {kind: noop, result: {n: 1}}
    next: long
  - step: long
    tool: {kind: http, url: effect, value: {n: 1}, takes_ms: 600000}
    next: never
  - step: never
    tool: {kind: noop}
""",
    ),
    Case(
        name="worker_lost",
        status="COMPLETED",
        story=worker_lost,
        body="""
workflow:
  - step: work
    tool: {kind: http, url: effect, value: {n: 4}, takes_ms: 4000}
    next: after
  - step: after
    tool: {kind: noop, result: "{{ work.n }}"}
""",
    ),
    Case(
        name="keyed_submit",
        status="COMPLETED",
        story=twice,
        body="""
workload: {n: 1, m: 10}
workflow:
  - step: sum
    tool: {kind: noop, result: {total: "{{ workload.n + workload.m }}"}}
""",
    ),
    Case(
        name="large_result",
        status="COMPLETED",
        story=plain,
        body="""
workflow:
  - step: load
    tool:
      - name: rows
        kind: noop
        result: "{{ [{'id': 1, 'text': 'x' * 60}] * 40 }}"
      - name: shape
        kind: noop
        result: {rows: "{{ rows }}", source: "{{ _prev | length }}"}
    next:
      arcs:
        - {step: many, when: "{{ load.rows | length > 10 and load.rows[0].id == 1 }}"}
  - step: many
    tool: {kind: noop, result: "{{ load.rows | length }}"}
""",
    ),
    Case(
        name="objects_and_outside",
        status="COMPLETED",
        story=told,
        body="""
workload: {order: 7}
workflow:
  - step: sell
    tool:
      - name: reserve
        kind: http
        url: effect
        value: {order: "{{ workload.order }}", n: 2}
        takes_ms: 600
        spec:
          business_object: {type: order, id: "{{ output.order }}", status: reserved}
      - name: charge
        kind: http
        url: effect
        value: {total: 12.5}
        takes_ms: 600
        spec:
          business_object:
            type: order
            id: "{{ reserve.order }}"
            status: paid
            attributes: {total: "{{ output.total }}", token: "{{ output.total }}"}
    next: done
  - step: done
    tool: {kind: noop, result: "{{ sell.total }}"}
""",
    ),
)
