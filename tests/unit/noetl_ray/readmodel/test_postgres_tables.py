"""The statements that write rows agree with the rows and with the migrations."""

from __future__ import annotations

import re

import pytest

from noetl_ray.readmodel import postgres_events, postgres_tables
from noetl_ray.readmodel.postgres_tables import Table
from noetl_ray.readmodel.records import CommandRow, ExecutionRow, LogRow, PlaybookRow, WorkerRow
from noetl_ray.readmodel.schema import migrations
from noetl_ray.testing.readmodel_samples import line, rows_of
from noetl_ray.testing.samples import sample_event

TABLES = [value for value in vars(postgres_tables).values() if isinstance(value, Table)]


def columns_in_sql(table):
    sql = "\n".join(migration.sql for migration in migrations())
    body = re.search(rf"CREATE TABLE noetl\.{table} \((.*?)\n\)", sql, re.DOTALL).group(1)
    return set(re.findall(r"^    ([a-z_]+) +[A-Z]", body, re.MULTILINE)) - {"PRIMARY"}


@pytest.mark.parametrize(
    ("table", "row"),
    [
        (postgres_tables.EXECUTION, ExecutionRow),
        (postgres_tables.COMMAND, CommandRow),
        (postgres_tables.PLAYBOOK, PlaybookRow),
        (postgres_tables.WORKER, WorkerRow),
    ],
    ids=lambda value: value.name if isinstance(value, Table) else "",
)
def test_columns_are_the_fields_of_the_row(table, row):
    assert set(table.columns) == set(row.__struct_fields__) == columns_in_sql(table.name)


def test_events_and_lines_name_every_column():
    assert set(postgres_events.EVENT_COLUMNS) == columns_in_sql("event")
    assert set(postgres_events.LINE_COLUMNS) == columns_in_sql("task_log")
    (event,) = rows_of(1, sample_event(1))
    assert len(postgres_events.event_values(event)) == len(postgres_events.EVENT_COLUMNS)
    row: LogRow = line(1, "x")
    assert len(postgres_events.line_values(row)) == len(postgres_events.LINE_COLUMNS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_write_settles_conflicts(table):
    assert f"ON CONFLICT ({', '.join(table.key)})" in table.insert
    assert set(table.key) <= set(table.columns)
