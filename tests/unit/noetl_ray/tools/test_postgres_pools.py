from __future__ import annotations

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.auth import Auth
from noetl_ray.tools.postgres_pools import PostgresPools, target_of


def auth(**data) -> Auth:
    return Auth(name="pg", type="postgres", data=data)


WANTED = {"host": "h", "port": 5433, "user": "u", "password": "p w", "database": "d"}


@pytest.mark.parametrize(
    "data",
    [
        {"db_host": "h", "db_port": "5433", "db_user": "u", "db_password": "p w", "db_name": "d"},
        {"host": "h", "port": 5433, "user": "u", "password": "p w", "database": "d"},
        {"host": "h", "port": 5433, "username": "u", "password": "p w", "dbname": "d"},
        {"dsn": "postgresql://u:p%20w@h:5433/d"},
        {"connection_string": "postgres://u@h:5433/d?password=p%20w"},
        {"dsn": "host=h port=5433 user=u password='p w' dbname=d"},
    ],
)
def test_every_spelling_of_a_credential(data):
    target = target_of(auth(**data))
    assert target.options == WANTED
    assert target.label == "h:5433/d"
    assert "p w" not in repr(target)
    assert target.key == target_of(auth(**WANTED)).key


def test_a_socket_folder_is_a_host():
    target = target_of(auth(dsn="postgresql://postgres:@/postgres?host=/tmp/x"))
    assert target.options["host"] == "/tmp/x"
    assert target.options["password"] == "", "an absent password would come from the environment"


def test_ssl_and_another_database():
    target = target_of(auth(**WANTED, sslmode="require"), "other")
    assert (target.options["ssl"], target.options["database"]) == ("require", "other")
    assert target.key != target_of(auth(**WANTED)).key


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "lacks db_host, db_user, db_name"),
        ({"host": "h", "user": "u"}, "lacks db_name"),
        ({**WANTED, "port": "x"}, "port is not a number"),
        ({"dsn": "mysql://u:secret@h/d"}, "cannot be read"),
        ({"dsn": "nonsense secret"}, "cannot be read"),
    ],
)
def test_a_credential_that_cannot_work_says_why(data, said):
    with pytest.raises(ToolError, match=said) as caught:
        target_of(auth(**data))
    assert caught.value.kind == "auth"
    assert "secret" not in str(caught.value)


@pytest.mark.asyncio
async def test_nobody_there_is_worth_a_retry(tmp_path):
    pools = PostgresPools(connections_max=1, idle_s=60)
    target = target_of(auth(host=str(tmp_path), user="u", password="hunter2", dbname="d"))
    for _ in range(2):
        with pytest.raises(ToolError, match="cannot connect") as caught:
            await pools.acquire(target)
        assert (caught.value.kind, caught.value.retryable) == ("db_connection", True)
        assert "hunter2" not in str(caught.value)
    await pools.close()
