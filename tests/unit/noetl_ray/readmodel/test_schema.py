"""The migrations that are shipped."""

from __future__ import annotations

from noetl_ray.readmodel.schema import migrations


def test_migrations_are_numbered_without_gaps():
    found = migrations()
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    assert all(migration.name and migration.sql for migration in found)


def test_env_10_no_trigger_is_ever_made():
    for migration in migrations():
        statements = [line for line in migration.sql.splitlines() if not line.startswith("--")]
        assert "TRIGGER" not in "\n".join(statements).upper()
