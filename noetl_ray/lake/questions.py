"""Questions asked so often that they are written down: one SQL text each, for DuckDB and Spark.

Owns the texts and nothing else. Times are in seconds; the longest or most come first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with a name."""

    name: str
    title: str
    sql: str
    label: tuple[str, ...]
    """The columns that name a row, for a picture."""
    value: str
    """The column that is drawn."""


def _took(start: str, end: str) -> str:
    return f"(unix_millis({end}) - unix_millis({start})) / 1000.0"


_STEP_S = _took("s.entered_at", "s.exited_at")
_CALL_S = _took("claimed_at", "ended_at")
_WAIT_S = _took("issued_at", "claimed_at")

QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        Question(
            name="slowest_steps",
            title="Slowest steps, mean seconds",
            sql=f"""
                SELECT e.path, s.step, count(*) AS visits, round(avg({_STEP_S}), 3) AS mean_s,
                       round(max({_STEP_S}), 3) AS longest_s, round(sum({_STEP_S}), 3) AS total_s
                FROM steps s JOIN executions e
                  ON s.execution_id = e.execution_id AND s.tenant_id = e.tenant_id
                WHERE s.exited_at IS NOT NULL AND s.entered_at IS NOT NULL
                GROUP BY e.path, s.step ORDER BY mean_s DESC, e.path, s.step LIMIT 20
            """,
            label=("path", "step"),
            value="mean_s",
        ),
        Question(
            name="retry_storms",
            title="Failed attempts by minute and step",
            sql="""
                SELECT date_trunc('minute', event_time) AS minute, step,
                       count(*) AS failed_attempts, count(DISTINCT execution_id) AS executions,
                       max(kind) AS kind
                FROM errors WHERE event_type = 'task.attempt.failed'
                GROUP BY date_trunc('minute', event_time), step
                ORDER BY failed_attempts DESC, minute, step LIMIT 20
            """,
            label=("minute", "step"),
            value="failed_attempts",
        ),
        Question(
            name="cost_per_tenant",
            title="Worker seconds by tenant",
            sql=f"""
                SELECT l.tenant_id, l.executions, t.calls, f.frames,
                       round(coalesce(t.call_s, 0) + coalesce(f.frame_s, 0), 3) AS worker_s,
                       t.waited_s, t.failed_attempts, t.result_bytes, l.log_bytes
                FROM (
                  SELECT tenant_id, count(*) AS executions, sum(bytes) AS log_bytes
                  FROM executions GROUP BY tenant_id
                ) l LEFT JOIN (
                  SELECT c.tenant_id, count(*) AS calls, sum({_CALL_S}) AS call_s,
                         round(sum({_WAIT_S}), 3) AS waited_s,
                         sum(c.failed_attempts) AS failed_attempts,
                         sum(c.result_bytes) AS result_bytes
                  FROM tool_calls c GROUP BY c.tenant_id
                ) t ON l.tenant_id = t.tenant_id LEFT JOIN (
                  SELECT tenant_id, count(*) AS frames,
                         sum((unix_millis(ended_at) - unix_millis(started_at)) / 1000.0) AS frame_s
                  FROM frames GROUP BY tenant_id
                ) f ON l.tenant_id = f.tenant_id
                ORDER BY worker_s DESC, l.tenant_id LIMIT 20
            """,
            label=("tenant_id",),
            value="worker_s",
        ),
        Question(
            name="result_tiers",
            title="Results that needed no object, by step",
            sql="""
                SELECT step, count(*) AS results,
                       round(sum(CASE WHEN tier = 'inline' THEN 1 ELSE 0 END) * 1.0 / count(*), 3)
                         AS inline_ratio,
                       sum(result_bytes) AS stored_bytes, sum(result_rows) AS stored_rows
                FROM tool_calls WHERE status = 'COMPLETED'
                GROUP BY step ORDER BY stored_bytes DESC NULLS LAST, step LIMIT 20
            """,
            label=("step",),
            value="inline_ratio",
        ),
        Question(
            name="placement_distances",
            title="Calls by distance between data and worker",
            sql=f"""
                SELECT coalesce(distance, 'unknown') AS distance, count(*) AS calls,
                       round(avg({_WAIT_S}), 3) AS mean_wait_s, sum(releases) AS releases
                FROM tool_calls WHERE claimed_at IS NOT NULL
                GROUP BY coalesce(distance, 'unknown') ORDER BY calls DESC, distance LIMIT 20
            """,
            label=("distance",),
            value="calls",
        ),
        Question(
            name="executions_per_day",
            title="Executions by day and end",
            sql=f"""
                SELECT day, coalesce(status, 'RUNNING') AS status, count(*) AS executions,
                       sum(events) AS events,
                       round(avg({_took("started_at", "ended_at")}), 3) AS mean_s
                FROM executions GROUP BY day, coalesce(status, 'RUNNING')
                ORDER BY day DESC, status LIMIT 20
            """,
            label=("day", "status"),
            value="executions",
        ),
        Question(
            name="frames_by_step",
            title="Rows of frames by step",
            sql=f"""
                SELECT step, count(*) AS frames, sum(processed) AS processed_rows,
                       sum(failed) AS failed_rows, sum(abandoned) AS abandoned,
                       round(avg({_took("dispatched_at", "ended_at")}), 3) AS mean_s
                FROM frames GROUP BY step ORDER BY frames DESC, step LIMIT 20
            """,
            label=("step",),
            value="processed_rows",
        ),
        Question(
            name="errors_by_kind",
            title="Errors by kind",
            sql="""
                SELECT coalesce(kind, 'unknown') AS kind, event_type, count(*) AS errors,
                       max(message) AS example
                FROM errors GROUP BY coalesce(kind, 'unknown'), event_type
                ORDER BY errors DESC, kind, event_type LIMIT 20
            """,
            label=("kind", "event_type"),
            value="errors",
        ),
    )
}
"""Ready questions by name."""
