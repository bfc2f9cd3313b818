"""What does one rule cost?

The conditions of arcs and policies are evaluated for every step and every task run, by the one
thread that decides. Each is measured over the names the engine gives, with templates compiled
before, and beside it:

- plain Python evaluating the same condition over the same data: the cost with no language;
- Jinja's own SandboxedEnvironment with a compiled expression: what a stock sandbox costs;
- the first evaluation, which compiles: what the cache saves.

Expectation: an evaluation under 50 microseconds (the requirement) and cheaper than the stock
sandbox, which copies all names for every call; a hundred times plain Python, which looks up keys;
compiling costs some hundred evaluations, so the cache decides.
"""

from __future__ import annotations

import argparse
import statistics
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jinja2 import ChainableUndefined
from jinja2.sandbox import SandboxedEnvironment

from bench._report import finish, median, say, show, spread, versions
from noetl_ray.dsl.template import Templates
from noetl_ray.engine.names import Names

NUMBER = 2_000
COLD = 50
REPEATS = 7

EXPECTATION = {
    "rule_us": "2 to 15; the requirement is 50",
    "of_python": "about 100",
    "of_stock": "under 1",
    "cold_us": "about 1000",
}
WORKLOAD: dict[str, Any] = {"limit": 3, "label": "run {{ execution_id }}"}
CTX: dict[str, Any] = {"page": 2}
FETCH: dict[str, Any] = {"rows": [{"id": n} for n in range(50)], "paging": {"hasMore": True}}
OUTPUT: dict[str, Any] = {
    "status": "error",
    "data": None,
    "error": {"kind": "rate_limit", "retryable": True},
    "http": {"status": 429, "headers": {}},
}
Rule = tuple[str, Callable[[], Any]]
RULES: dict[str, Rule] = {
    "an error to retry": (
        "output.status == 'error' and output.error.retryable",
        lambda: OUTPUT["status"] == "error" and OUTPUT["error"]["retryable"],
    ),
    "a status among some": (
        "output.http.status in [429, 502, 503]",
        lambda: OUTPUT["http"]["status"] in [429, 502, 503],
    ),
    "a variable and a limit": (
        "ctx.page < workload.limit",
        lambda: CTX["page"] < WORKLOAD["limit"],
    ),
    "another page": (
        "fetch.paging.hasMore and ctx.page + 1 <= limit",
        lambda: FETCH["paging"]["hasMore"] and CTX["page"] + 1 <= WORKLOAD["limit"],
    ),
    "rows there": (
        "fetch.rows | length > 0",
        lambda: len(FETCH["rows"]) > 0,
    ),
    "an undefined name": (
        "nothing.here is defined or ctx.page == 2",
        lambda: "nothing" in CTX or CTX["page"] == 2,
    ),
}


def names_of(templates: Templates) -> Names:
    """What the engine gives a rule."""
    return Names(
        templates,
        execution_id=4711,
        workload=WORKLOAD,
        ctx=CTX,
        steps={"fetch": FETCH},
        env={},
        locals_={"output": OUTPUT},
    )


def once_us(work: Callable[[], Any], number: int = NUMBER) -> float:
    """Microseconds of one call."""
    return timeit.timeit(work, number=number) / number * 1e6


def cold_us(template: str, names: Mapping[str, Any]) -> float:
    """Microseconds of a first evaluation, with nothing compiled."""
    fresh = iter([Templates() for _ in range(COLD)])
    return once_us(lambda: next(fresh).truth(template, names), COLD)


def measure(repeats: int) -> dict[str, dict[str, list[float]]]:
    """Each rule in every way, in turns, so that all see the same machine."""
    templates = Templates()
    names = names_of(templates)
    stock = SandboxedEnvironment(undefined=ChainableUndefined)
    flat = {"output": OUTPUT, "ctx": CTX, "workload": WORKLOAD, "fetch": FETCH, **WORKLOAD}
    ways: dict[str, dict[str, Callable[[], float]]] = {}
    for title, (text, plain) in RULES.items():
        template = f"{{{{ {text} }}}}"
        compiled = stock.compile_expression(text)
        if not templates.truth(template, names) or not plain() or not compiled(**flat):
            msg = f"the rule does not hold in every way: {text}"
            raise RuntimeError(msg)
        ways[title] = {
            "ours": partial(once_us, partial(templates.truth, template, names)),
            "python": partial(once_us, plain),
            "stock": partial(once_us, partial(compiled, **flat)),
            "cold": partial(cold_us, template, names),
        }
    seen: dict[str, dict[str, list[float]]] = {
        title: {way: [] for way in found} for title, found in ways.items()
    }
    for _ in range(repeats):
        for title, found in ways.items():
            for way, run in found.items():
                seen[title][way].append(run())
    return seen


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.render")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append to bench/results",
    )
    args = parser.parse_args()
    seen = measure(args.repeats)
    rows = []
    ratios: dict[str, list[float]] = {"python": [], "stock": [], "cold": []}
    for title, found in seen.items():
        ours = statistics.median(found["ours"])
        for way, values in ratios.items():
            values.append(ours / statistics.median(found[way]))
        beside = ", ".join(f"{way} {statistics.median(found[way]):.2f}" for way in ratios)
        rows.append((title, f"{ours:.2f}", f"{spread(found['ours'])}; {beside}"))
    show(f"one rule, us, medians of {args.repeats}", rows, ("", "ours", "range; beside it"))
    slowest = max(seen, key=lambda title: statistics.median(seen[title]["ours"]))
    say(f"slowest: {slowest}")
    result: dict[str, Any] = {
        "rule_us": median([statistics.median(found["ours"]) for found in seen.values()]),
        "slowest_rule_us": median(seen[slowest]["ours"]),
        "of_python": median(ratios["python"]),
        "of_stock": median(ratios["stock"]),
        "cold_us": median([statistics.median(found["cold"]) for found in seen.values()]),
        "rules_us": {title: median(found["ours"]) for title, found in seen.items()},
        "expectation": EXPECTATION,
        "versions": versions(),
    }
    finish("render", result, keep=args.keep)


if __name__ == "__main__":
    main()
