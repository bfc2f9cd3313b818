"""What each kind of task takes and gives, said once: for the validator, editors and people.

Owns words only. ``language.CONFIG`` names the keys; here stands what they are for, which of them a
task cannot do without, and what its result holds. Kinds of other packages are known by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points

from noetl_ray.dsl.language import KINDS

PLUGIN_GROUP = "noetl_ray.tools"
OUTSIDE_KINDS: frozenset[str] = frozenset(
    {
        "agent", "container", "ducklake", "gateway", "gcs", "mcp", "rhai", "script", "secrets",
        "snowflake", "subscription", "wasm",
    }
)  # fmt: skip
"""Kinds of other NoETL runtimes that need an account or a service of their own: never built in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSchema:
    """One kind. A task needs at least one key of each group of ``needs``."""

    text: str
    keys: dict[str, str]
    needs: tuple[tuple[str, ...], ...] = ()
    result: tuple[str, ...] = ()


_SQL = ("query", "command", "queries", "commands", "cmd", "cmds")
_SQL_KEYS = dict.fromkeys(_SQL, "SQL: one text or a list; statements run in order.")
_ROWS = ("status", "columns", "rows", "row_count", "statement_count", "command_<i>")
_COMMANDS = ("cmds", "cmd", "command", "commands")

SCHEMAS: dict[str, ToolSchema] = {
    "artifact": ToolSchema(
        text="Reads stored values by reference and keeps values under names.",
        keys={
            "action": "get (the default), put or list.",
            "result_ref": "The record of a stored value, such as step._ref.",
            "uri": "A noetl:// name.",
            "ref": "Same as uri or result_ref.",
            "key": "Name of an artifact.",
            "value": "What to put.",
            "data": "Same as value.",
            "content": "Same as value.",
            "prefix": "What names must begin with, for list.",
        },
        result=("data", "name", "uri", "result_ref", "items", "names", "count"),
    ),
    "callback": ToolSchema(
        text="Waits for an answer to its token; nobody holds the step meanwhile.",
        keys={"message": "What is asked, for people who look at the execution."},
    ),
    "duckdb": ToolSchema(
        text="SQL in the worker's process over rows given as input.",
        keys={
            **_SQL_KEYS,
            "database": "A file below the data folder; the default is memory.",
            "db_path": "Same as database.",
            "external": "True lets the SQL reach files and addresses.",
        },
        needs=((*_SQL, "sql"),),
        result=_ROWS,
    ),
    "http": ToolSchema(
        text="One request.",
        keys={
            "method": "The default is GET.",
            "url": "Address, http or https.",
            "endpoint": "Same as url.",
            "headers": "Mapping of header names.",
            "params": "Mapping of query parameters.",
            "json": "Body, sent as JSON.",
            "payload": "Same as json.",
            "body": "Body: text as it is, data as JSON.",
            "data": "Body, or the query of a GET; {query, body} gives both.",
            "form": "Body, sent as a form.",
            "verify": "False takes any certificate.",
            "verify_ssl": "Same as verify.",
            "follow_redirects": "The default is true.",
            "output_select": "Accepted; means nothing here.",
            "credential": "Older name of auth.",
            "idempotency_header": "Header for the key of an unsafe call; false sends none.",
        },
        needs=(("url", "endpoint"),),
        result=("status_code", "headers", "url", "elapsed", "data", "body"),
    ),
    "nats": ToolSchema(
        text="One operation on a NATS server.",
        keys={
            "operation": "kv_get, kv_put, object_get, js_publish and others.",
            "bucket": "Name of a bucket.",
            "key": "Key in the bucket.",
            "value": "What to put.",
            "create": "True makes the bucket when there is none.",
            "stream": "Name of a stream.",
            "subject": "Subject to publish to.",
            "data": "Same as value.",
            "headers": "Headers of the message.",
            "seq": "Position of a message.",
            "credential": "Older name of auth.",
        },
        needs=(("operation",),),
        result=("status", "operation", "bucket", "key", "value", "keys", "stream", "seq"),
    ),
    "noop": ToolSchema(
        text="Does nothing; exists for its policy.",
        keys={"result": "What it gives."},
        result=("status",),
    ),
    "playbook": ToolSchema(
        text="Runs another playbook of the catalog and waits for it.",
        keys={
            "path": "Path in the catalog.",
            "catalog_id": "Digest of a registered text, instead of a path.",
            "version": "The default is the newest when it is called.",
            "payload": "Same as input: what the child's workload gets on top of its defaults.",
            "workload": "Same as input.",
            "return_step": "Step whose result it gives; the default is the last one.",
            "return_result": "True gives that result alone, without the status record.",
            "result_step": "Same as return_step.",
            "wait": "False starts the child and goes on.",
            "async": "True is wait: false.",
            "poll_interval": "Accepted; means nothing here.",
            "retry": "Accepted; means nothing here. Use spec.policy.rules.",
        },
        needs=(("path", "catalog_id"),),
        result=("execution_id", "status", "path", "version"),
    ),
    "postgres": ToolSchema(
        text="SQL on a PostgreSQL database, each statement its own transaction.",
        keys={
            **_SQL_KEYS,
            "script": "SQL as {source: {code}}.",
            "pool": "Accepted; means nothing here.",
            "params": "Accepted; means nothing here.",
            "credential": "Older name of auth.",
            "exactly_once": "True commits all statements and a mark that they ran together.",
        },
        needs=((*_SQL, "sql", "script"), ("auth", "credential")),
        result=(*_ROWS, "affected_rows", "message"),
    ),
    "python": ToolSchema(
        text="Python in a process of its own.",
        keys={
            "code": "The code; a template.",
            "code_b64": "The same in base64.",
            "script": "The same from a file or an address.",
            "libs": "Modules to import, by alias.",
            "env": "Environment variables.",
            "resources": "What it needs of Ray: num_cpus, num_gpus or others.",
            "runtime_env": "Ray's runtime environment to run it in.",
        },
        needs=(("code", "code_b64", "script"),),
    ),
    "shell": ToolSchema(
        text="Commands, run as they are; a shell only when asked for.",
        keys={
            **dict.fromkeys(_COMMANDS, "A command, or a list of them."),
            "env": "Environment variables.",
            "shell": "True hands the text to a shell.",
        },
        needs=(_COMMANDS,),
        result=("stdout", "stderr", "exit_code", "text"),
    ),
    "spark": ToolSchema(
        text="SQL or code on the cluster's Spark session, over results by name.",
        keys={
            "sql": "Statements over the inputs as tables; the last one's rows are the result.",
            "code": "Python: main(spark, ...) of the session and named inputs gives a DataFrame.",
            "partitions": "Parts of the result at most; the default is 64.",
            "inline_rows": "Up to so many rows are in the answer too; the default is 200.",
        },
        needs=(("sql", "code"),),
        result=(
            "status",
            "row_count",
            "columns",
            "schema",
            "parts",
            "result_ref",
            "rows",
            "value",
            "stages",
            "tasks",
            "took_s",
        ),
    ),
    "transfer": ToolSchema(
        text="Moves rows from a source to a target in chunks.",
        keys={
            "source": "Where from: {type, ...}.",
            "target": "Where to: {type, ...}.",
            "mode": "append, replace or upsert.",
            "key": "Columns that say which row is which, for upsert.",
            "mapping": "Column of the target to field of the source.",
            "chunk_size": "Rows at a time.",
        },
        needs=(("source",), ("target",)),
        result=("status", "rows_read", "rows_written", "chunks"),
    ),
    "wait": ToolSchema(
        text="Goes on after a time or at a moment; nobody holds the step meanwhile.",
        keys={
            "for": "Seconds, or a text such as 90s, 15m, 1h30m or 2d.",
            "until": "A moment such as 2027-01-31T18:00:00Z.",
            "message": "What for, for people who look at the execution.",
        },
        needs=(("for", "until"),),
        result=("status", "until"),
    ),
}
"""By kind."""


@cache
def installed_kinds() -> frozenset[str]:
    """The kinds that can be named here: built in, or brought by an installed package."""
    return KINDS | {point.name for point in entry_points(group=PLUGIN_GROUP)}


def missing_needs(kind: str, given: frozenset[str]) -> list[tuple[str, ...]]:
    """The groups of keys of which a task has none."""
    schema = SCHEMAS.get(kind)
    return [group for group in schema.needs if not given & set(group)] if schema else []
