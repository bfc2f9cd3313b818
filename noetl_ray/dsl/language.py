"""The keys of the language, said once: what may stand where, of what type, and what it is for.

The readers take from here which keys they know and which they refuse; the JSON Schema is made from
it. Owns words only; what a key does is with its reader.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = ("noetl.io/v2", "noetl.io/v10")
DOCUMENT_KINDS = ("Playbook", "Agent")
KINDS: frozenset[str] = frozenset(
    {"artifact", "callback", "duckdb", "http", "nats", "noop", "playbook", "postgres", "python"}
    | {"shell", "spark", "transfer", "wait"}
)
"""The tool kinds of this version."""
PLAYBOOK = "playbook"
"""The kind that runs another playbook; the worker lets go while it runs."""
CALLBACK = "callback"
"""The kind that waits for an answer from outside."""
PARKING = frozenset({PLAYBOOK, CALLBACK, "wait"})
"""Kinds whose tasks let their worker go; loops over them are better off without frames."""
WORKBOOK = "workbook"
"""The kind that stands for an item of the workbook; it never runs as such."""
KEYCHAIN_KINDS = ("static", "bearer", "oauth2", "credential", "credential_ref", "env")
KEYCHAIN_OUTSIDE = ("google_id_token", "secret_manager", "secrets")
"""Keychain kinds of other NoETL runtimes that need an account: they come with a package."""
ARC_MODES = ("exclusive", "inclusive")
NO_MATCH = ("complete", "quiet")
LOOP_MODES = ("sequential", "parallel", "cursor", "fanout")
PROCESS = ("row", "frame")
RETRY_MODES = ("whole_frame",)
ACTIONS = ("continue", "retry", "jump", "break", "fail")
BACKOFFS = ("none", "linear", "exponential", "fixed")

REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Key:
    """One key. ``type`` is a word of the schema; the text of a refused key says what to use."""

    name: str
    type: str
    text: str = ""
    needed: bool = False


def _numbers(*names: str) -> tuple[Key, ...]:
    return tuple(Key(name, "number") for name in names)


_SETS = (
    Key("set", "mapping", "Variables to write, as ctx.name, iter.name or a bare name."),
    Key("set_ctx", "mapping", "Like set, with ctx. before each name."),
    Key("set_iter", "mapping", "Like set, with iter. before each name."),
)
_INPUT = (
    Key("input", "mapping", "Values for the tool, and names in its other templates."),
    Key("args", "mapping", "Older name of input."),
)
_DESC = (Key("desc", "any", "What this is for."), Key("description", "any", "Same as desc."))

CONSTRUCTS: dict[str, tuple[Key, ...]] = {
    "playbook": (
        Key("apiVersion", f"one of {'|'.join(VERSIONS)}", "Version of the language.", needed=True),
        Key("kind", f"one of {'|'.join(DOCUMENT_KINDS)}", "What the document is.", needed=True),
        Key("metadata", "metadata", "Name and path in the catalog.", needed=True),
        Key("workload", "mapping", "Defaults, overlaid by what is submitted."),
        Key("workflow", "steps", "The steps, at least one.", needed=True),
        Key("executor", "executor", "Where to begin."),
        Key("workbook", "workbook", "Named tools that steps run by name."),
        Key("keychain", "keychain", "Named secrets that tasks read; workers get them when needed."),
    ),
    "keychain entry": (
        Key("name", "name", "What tasks call it: keychain.name.field, or auth: name.", needed=True),
        Key("kind", f"one of {'|'.join((*KEYCHAIN_KINDS, *KEYCHAIN_OUTSIDE))}", "Where from."),
        Key("type", "any", "Older name of kind; beside kind, how http uses it: bearer, basic."),
        Key("map", "mapping", "Fields of a static entry; for env, field to variable."),
        Key("token", "any", "Of a bearer entry."),
        Key("endpoint", "any", "Where an oauth2 entry gets its token."),
        Key("method", "any", "Of the token request; the default is POST."),
        Key("headers", "mapping", "Of the token request."),
        Key("data", "any", "Of the token request, sent as a form unless a header says JSON."),
        Key("auto_renew", "any", "False keeps the first token until it expires."),
        Key("auth", "any", "Credential the token request itself needs."),
        Key("timeout", "any", "Seconds for the token request."),
        Key("credential", "any", "Name of a stored credential; the default is the entry's name."),
        Key("credential_ref", "any", "Same as credential."),
        Key("key", "any", "Same as credential."),
        Key("ref", "any", "Same as credential."),
        Key("variable", "any", "Environment variable, read as keychain.name.value."),
        Key("provider", "any", "Of the kinds that need an account."),
        Key("scope", "any"),
        *_DESC,
    ),
    "metadata": (
        Key("name", "name", "Name of the playbook.", needed=True),
        Key("path", "any", "Path in the catalog; the default is the name."),
        Key("description", "any", "What the playbook is for."),
    ),
    "executor": (Key("spec", "executor spec"),),
    "executor spec": (
        Key("entry_step", "scalar", "Where to begin; the default is start, else the first step."),
    ),
    "workbook item": (
        Key("name", "name", "What steps call it.", needed=True),
        Key("tool", "any", "The tool: a mapping with a kind."),
    ),
    "step": (
        Key("step", "name", "Unique name.", needed=True),
        *_DESC,
        *_INPUT,
        Key("loop", "maybe loop", "Run the tasks once per item."),
        Key("tool", "tool", "One task, or a list of tasks run in order."),
        *_SETS,
        Key("next", "next", "Where to go: a name, names, arcs, or a mapping with arcs."),
        Key("spec", "step spec", "The timeout, and a policy that admits or skips the step."),
        Key("output", "mapping", "How results are stored."),
        Key("vars", "mapping", "Older form of set, where result and data are the step's result."),
        Key("when", "scalar", "A false condition skips the step and follows its arcs."),
        Key("timeout", "any", "Seconds, for each task that has none."),
        Key("case", REFUSED, "use next.arcs, or spec.policy.rules of the tool"),
        Key("sink", REFUSED, "add a task that saves the result"),
        Key("retry", REFUSED, "use spec.policy.rules of the tool with do: retry"),
        Key("pagination", REFUSED, "use arcs back to the step, or do: jump"),
    ),
    "step spec": (Key("policy", "mapping"), Key("timeout", "any", "Seconds.")),
    "loop": (
        Key("in", "any", "The items: a list, or a template that gives one."),
        Key("cursor", "cursor", "A query that claims rows, instead of in."),
        Key("iterator", "scalar", "Name of the item in templates; the default is item."),
        Key("spec", "loop spec"),
        Key("reduce", "reduce", "What makes one value of the partitions of a fanout."),
        Key("mode", "any", "Older place of spec.mode."),
        Key("max_in_flight", "any", "Older place of spec.max_in_flight."),
        Key("desc", "any"),
    ),
    "loop spec": (
        Key("mode", f"one of {'|'.join(LOOP_MODES)}", "The default is sequential."),
        Key("max_in_flight", "number", "How many run at once."),
        Key("policy", "any"),
        Key("frame", "frame", "How many rows a cursor claims at a time, and for how long."),
        Key("partitions", "number", "How many partitions a fanout makes."),
        Key("max_outstanding", "number", "Partitions under way or waiting for the reduce."),
    ),
    "reduce": (
        Key("tool", "tool", "Makes the new value of acc and a partition.", needed=True),
        Key("iterator", "scalar", "Name of a partition's value; the default is part."),
        Key("stream", "flag", "False runs the tasks once, over all partitions."),
        Key("initial", "any", "What acc is before the first partition."),
        Key("frame", "frame", "How many partitions a worker takes in at a time, and its lease."),
        *_DESC,
    ),
    "cursor": (
        Key("kind", "scalar", "The kind of store.", needed=True),
        Key("claim", "any", "The query that claims rows.", needed=True),
    ),
    "frame": (
        *_numbers("max_rows", "row_concurrency", "max_seconds", "max_bytes"),
        *_numbers("lease_seconds", "heartbeat_seconds", "max_attempts"),
        Key("retry_mode", f"one of {'|'.join(RETRY_MODES)}", "A frame is tried whole."),
        Key("row_barrier", "flag", "True records finished rows, so that a crash repeats none."),
        Key("process", f"one of {'|'.join(PROCESS)}"),
        Key("size", "number", "Other name of max_rows."),
        Key("duration_ms", "number", "Other name of max_seconds, in milliseconds."),
        Key("memory_bytes", "number", "Other name of max_bytes."),
        Key("parallelism", "number", "Other name of row_concurrency."),
    ),
    "next": (
        Key("spec", "next spec"),
        Key("arcs", "arcs", "The ways out, in the order they are tried."),
        Key("mode", "any", "Older place of spec.mode."),
        Key("step", "any"),
        Key("when", "any"),
        Key("cond", "any"),
        Key("set", "any"),
        Key("args", "any"),
        Key("desc", "any"),
    ),
    "next spec": (
        Key("mode", f"one of {'|'.join(ARC_MODES)}", "First match, or every match."),
        Key("on_no_match", f"perhaps {'|'.join(NO_MATCH)}"),
    ),
    "arc": (
        Key("step", "name", "Where it leads.", needed=True),
        Key("when", "scalar", "Condition; without one the arc always matches."),
        Key("cond", "any", "Older name of when."),
        *_SETS,
        Key("args", "mapping", "Values the target reads by bare name and as args."),
        Key("desc", "any"),
    ),
    "task": (
        Key("kind", "kind", "What runs.", needed=True),
        Key("name", "any", "Label of the task; for the kind workbook, the item."),
        *_INPUT,
        Key("spec", "task spec", "The policy; other keys count as if they stood in the task."),
        *_SETS,
        Key("output", "mapping", "How results are stored."),
        Key("eval", "rules", "Older place of spec.policy.rules."),
        Key("side_effects", "flag", "False when running it twice does no harm."),
        *_DESC,
        Key("auth", "any", "Name of a credential."),
        Key("timeout", "any", "Seconds."),
        Key("timeout_seconds", "any", "Same as timeout."),
        Key("sink", REFUSED, "add a task that saves the result"),
        Key("retry", REFUSED, "use spec.policy.rules with do: retry"),
        Key("pagination", REFUSED, "use arcs back to the step, or do: jump"),
        Key("case", REFUSED, "use next.arcs or spec.policy.rules"),
    ),
    "task spec": (
        Key("policy", "policy", "What to do with the outcome."),
        Key("business_object", "business object", "What the result is about."),
    ),
    "business object": (
        Key("type", "name", "What kind of thing, as order.", needed=True),
        Key("id", "name", "Which one; usually a template.", needed=True),
        Key("status", "scalar", "Where it stands now."),
        Key("attributes", "any", "More about it: a mapping, or a template that gives one."),
    ),
    "resources": (
        Key("num_cpus", "any", "CPUs of the Ray task; the default is 1."),
        Key("num_gpus", "any", "GPUs."),
        Key("memory", "any", "Bytes, or text such as 2GiB: reserved, and the most it may use."),
    ),
    "runtime env": (
        Key("env_vars", "any", "Environment variables of the Ray task."),
        Key("pip", "any", "Requirements to install for it."),
        Key("working_dir", "any", "Address of a zip file to run in."),
    ),
    "policy": (Key("rules", "rules", "The first that matches says what to do."),),
    "rule": (
        Key("when", "any", "Condition; without one the rule always matches."),
        Key("expr", "any", "Older name of when."),
        Key("then", "action", "What to do."),
        Key("else", "else", "A rule that always matches."),
    ),
    "action": (
        Key("do", f"one of {'|'.join(ACTIONS)}", "What happens next."),
        Key("attempts", "attempts", "Runs in all, for retry."),
        Key("backoff", f"perhaps {'|'.join(BACKOFFS)}", "How the delay grows."),
        Key("delay", "any", "Seconds before the next attempt."),
        Key("to", "any", "Label of a task, for jump."),
        *_SETS,
    ),
}
"""Every construct with its keys, in the order an editor should offer them."""

CONFIG: dict[str, tuple[str, ...]] = {
    "python": ("code", "code_b64", "script", "libs", "env", "resources", "runtime_env"),
    "postgres": (
        "query", "command", "queries", "commands", "cmd", "cmds", "script", "pool", "params",
        "credential", "exactly_once",
    ),
    "http": (
        "method", "url", "endpoint", "headers", "params", "json", "payload", "body", "data",
        "form", "verify", "verify_ssl", "follow_redirects", "output_select", "credential",
        "idempotency_header",
    ),
    "noop": ("result",),
    "playbook": (
        "path", "catalog_id", "version", "payload", "workload", "return_step", "return_result",
        "result_step", "wait", "async", "poll_interval", "retry",
    ),
    "shell": ("cmd", "cmds", "command", "commands", "env", "shell"),
    "duckdb": (
        "query", "command", "queries", "commands", "cmd", "cmds", "database", "db_path",
        "external",
    ),
    "nats": (
        "operation", "bucket", "key", "value", "create", "stream", "subject", "data", "headers",
        "seq", "credential",
    ),
    "artifact": ("action", "result_ref", "uri", "ref", "key", "value", "data", "content", "prefix"),
    "spark": ("sql", "code", "partitions", "inline_rows"),
    "callback": ("message",),
    "wait": ("for", "until", "message"),
    "transfer": ("source", "target", "mode", "key", "mapping", "chunk_size"),
}  # fmt: skip
"""What the tool of each kind reads, beside the keys of every task."""


def names(construct: str) -> tuple[str, ...]:
    """The keys of a construct, refused ones included: they are known, and have words of their own.

    Raises:
        KeyError: there is no such construct.
    """
    return tuple(key.name for key in CONSTRUCTS[construct])


def refused(construct: str) -> dict[str, str]:
    """The keys a construct does not take, with what to use instead."""
    return {key.name: key.text for key in CONSTRUCTS[construct] if key.type == REFUSED}
