"""A backup brings everything back: into another NATS and another folder, to the same checksums."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from noetl_ray.cli.main import main
from noetl_ray.config.settings import CredentialSettings
from noetl_ray.credentials.crypto import Sealer, load_key
from noetl_ray.credentials.nats_kv import NatsCredentials
from noetl_ray.credentials.port import Credential
from noetl_ray.embedded.nats import NatsProcess, start_nats, stop_nats
from noetl_ray.errors import ConflictError, StoreError, UsageError, VersionConflictError
from noetl_ray.locator.keys import Placement, ResultName
from noetl_ray.payloads.files import FileObjects
from noetl_ray.payloads.sealed import SealedObjects
from noetl_ray.payloads.sealing import ObjectKeys
from noetl_ray.replay.backup import (
    LIST,
    MANIFEST,
    OBJECTS,
    fingerprint,
    restore_backup,
    verify_backup,
    write_backup,
)
from noetl_ray.replay.reading import read_execution
from noetl_ray.replay.surfaces import SURFACES, bundle_of, rows_of_records, surfaces_of
from noetl_ray.results.store import ResultStore
from noetl_ray.scope import Scope
from noetl_ray.testing.histories import HistoryWriter
from noetl_ray.testing.samples import sample_record
from noetl_ray.wal.connection import Connection, connect
from noetl_ray.wal.jetstream import JetStreamLog
from noetl_ray.wal.subjects import control_subject

pytestmark = [pytest.mark.contract, pytest.mark.timeout(120)]
LOG, CREDENTIALS, DERIVED = "noetl_events", "KV_noetl_credentials", "noetl_checkpoints"
EXECUTION, STEP = 264905531850760193, 1 << 22
EXECUTIONS = [EXECUTION + number * STEP for number in range(40)]
OPEN = EXECUTION + 99 * STEP
TRIMMED = EXECUTION + 98 * STEP
SCOPE = Scope()
KEY = bytes(range(32))
LOGIN = {"password": "s3cr3t", "rows": list(range(50))}


@pytest.fixture
def other_server(tmp_path: Path) -> Iterator[NatsProcess]:
    running = start_nats(
        tmp_path / "other-nats", token="other-token-here", durability="process", detached=False
    )
    yield running
    stop_nats(running)


@dataclass
class Site:
    """Servers and a folder store with a history in them."""

    server: NatsProcess
    connection: Connection
    log: JetStreamLog
    objects: FileObjects

    def results(self) -> ResultStore:
        return ResultStore(SealedObjects(self.objects, ObjectKeys(KEY), "secrets"), Placement())

    async def checksums(self) -> dict[int, dict[str, str]]:
        found = {}
        for execution_id in (*EXECUTIONS, OPEN):
            rows = rows_of_records(await read_execution(self.log, SCOPE, execution_id))
            assert rows is not None
            found[execution_id] = bundle_of(surfaces_of(rows))
        return found

    async def backup(self, folder: Path, **more: Any) -> Any:
        given = {
            "log": LOG,
            "streams": [CREDENTIALS, "KV_not_there"],
            "copy_objects": True,
            "objects_at": "here",
            "keys": {"credentials.key": fingerprint(KEY)},
            "key_text": None,
            "version": "1",
            "made_at": "2026-01-01T00:00:00Z",
        }
        return await write_backup(folder, self.connection, self.objects, **{**given, **more})

    async def restore(self, folder: Path) -> Any:
        return await restore_backup(
            folder, self.connection, self.objects, log=LOG, derived=[DERIVED], replicas=1
        )


@contextlib.asynccontextmanager
async def opened(server: NatsProcess, folder: Path) -> AsyncIterator[Site]:
    connection = await connect(server.url, server.token)
    try:
        log = await JetStreamLog.open(connection)
        yield Site(server, connection, log, FileObjects(folder))
        await log.close()
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def empty(server: NatsProcess, folder: Path) -> AsyncIterator[Site]:
    """A place to restore into: nothing has been made there, not even the stream."""
    connection = await connect(server.url, server.token)
    try:
        yield Site(server, connection, None, FileObjects(folder))  # type: ignore[arg-type]
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def site(
    nats_server: NatsProcess, nats_connection: Connection, tmp_path: Path
) -> AsyncIterator[Site]:
    async with opened(nats_server, tmp_path / "objects") as made:
        writer = HistoryWriter(made.log)
        for execution_id in EXECUTIONS:
            await writer.run(execution_id)
        await writer.begin(OPEN, await writer.request(OPEN))
        # A log with holes, as the compactor leaves them, and one behind its last record.
        await writer.run(TRIMMED)
        assert await made.log.purge(control_subject(0, SCOPE, TRIMMED)) > 1
        yield made


async def persisted(site: Site) -> dict[str, Any]:
    name = ResultName(tenant="default", project="p", execution_id=EXECUTION, step="load")
    result: dict[str, Any] = await site.results().persist(SCOPE, name, LOGIN)
    return result


@contextlib.asynccontextmanager
async def credentials_of(site: Site) -> AsyncIterator[NatsCredentials]:
    store = await NatsCredentials.open(site.server.url, site.server.token, Sealer(KEY))
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.asyncio
async def test_a_restored_log_folds_every_execution_to_the_same_six_checksums(
    site: Site, other_server: NatsProcess, tmp_path: Path
) -> None:
    result = await persisted(site)
    async with credentials_of(site) as store:
        await store.put(SCOPE, Credential(name="db", type="postgres", data={"password": "pw"}))
    before = await site.checksums()
    records = [r async for r in site.log.read("noetl.>")]
    made = await site.backup(tmp_path / "backup")
    assert (made.position, made.objects) == (await site.log.last_position(), 1)
    assert records[-1].position < made.position, "the newest position may be an empty one"
    assert [each.name for each in made.streams] == [LOG, CREDENTIALS]
    everything = b"".join(p.read_bytes() for p in (tmp_path / "backup").rglob("*") if p.is_file())
    assert b"s3cr3t" not in everything, "sealed objects stay sealed"

    async with empty(other_server, tmp_path / "other-objects") as target:
        found = await target.restore(tmp_path / "backup")
        assert (found.position, found.objects, found.missing) == (made.position, 1, [])
    async with opened(other_server, tmp_path / "other-objects") as target:
        after = await target.checksums()
        assert after == before
        assert set(after[EXECUTION]) == set(SURFACES)
        again = [r async for r in target.log.read("noetl.>")]
        assert again == records, "positions, times and bytes are the same"
        assert await target.results().load(SCOPE, result) == LOGIN
        async with credentials_of(target) as store:
            assert (await store.get(SCOPE, "db")).data == {"password": "pw"}
        # The log goes on where it ended: versions of subjects hold, and a zombie is refused.
        subject = control_subject(0, SCOPE, EXECUTION)
        with pytest.raises(VersionConflictError):
            await target.log.append(subject, sample_record(9_999_999), expected_version=0)
        last = await target.log.last(subject)
        assert last is not None
        position = await target.log.append(
            subject, sample_record(9_999_998), expected_version=last.position
        )
        assert position == made.position + 1


@pytest.mark.asyncio
async def test_a_backup_of_a_log_that_is_written_to_is_a_prefix_of_it(
    site: Site, other_server: NatsProcess, tmp_path: Path
) -> None:
    writer = HistoryWriter(site.log, first_event_id=1_000_000)

    async def write() -> None:
        for number in range(200, 400):
            await writer.run(EXECUTION + number * STEP)

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.05)
    made = await site.backup(tmp_path / "backup")
    await writing
    async with empty(other_server, tmp_path / "other-objects") as target:
        await target.restore(tmp_path / "backup")
    wanted = [r async for r in site.log.read("noetl.>") if r.position <= made.position]
    async with opened(other_server, tmp_path / "other-objects") as target:
        assert [r async for r in target.log.read("noetl.>")] == wanted


@pytest.mark.asyncio
async def test_a_damaged_or_half_backup_restores_nothing(
    site: Site, other_server: NatsProcess, tmp_path: Path
) -> None:
    await persisted(site)
    folder = tmp_path / "backup"
    made = await site.backup(folder)
    with pytest.raises(UsageError, match="is not empty"):
        await site.backup(folder)
    verify_backup(folder, made)
    victims = [p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST]
    assert {p.relative_to(folder).parts[0] for p in victims} == {"streams", OBJECTS, LIST}
    async with empty(other_server, tmp_path / "other-objects") as target:
        for path in victims:
            good = path.read_bytes()
            path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
            with pytest.raises(StoreError, match="damaged"):
                await target.restore(folder)
            path.unlink()
            with pytest.raises(StoreError, match="not whole"):
                await target.restore(folder)
            path.write_bytes(good)
        text = (folder / MANIFEST).read_bytes()
        (folder / MANIFEST).unlink()
        with pytest.raises(UsageError, match="no complete backup"):
            await target.restore(folder)
        assert await target.connection.jsm().streams_info() == []
        assert [info async for info in target.objects.list("")] == []
        (folder / MANIFEST).write_bytes(text)
        await target.restore(folder)


@pytest.mark.asyncio
async def test_nothing_is_restored_over_what_is_there(
    site: Site, other_server: NatsProcess, tmp_path: Path
) -> None:
    await persisted(site)
    await site.backup(tmp_path / "backup")
    before = [r async for r in site.log.read("noetl.>")]
    with pytest.raises(ConflictError, match="there is a stream noetl_events already"):
        await site.restore(tmp_path / "backup")
    assert [r async for r in site.log.read("noetl.>")] == before
    async with empty(other_server, tmp_path / "other-objects") as target:
        manager = target.connection.jsm()
        await manager.add_stream(name=DERIVED, subjects=["noetl.checkpoints.>"])
        with pytest.raises(ConflictError, match="a stream noetl_checkpoints already"):
            await target.restore(tmp_path / "backup")
        await manager.delete_stream(DERIVED)
        (key,) = [info.key async for info in site.objects.list("")]
        await target.objects.put(key, b"another")
        with pytest.raises(ConflictError, match="holds another object"):
            await target.restore(tmp_path / "backup")
        await target.objects.delete(key)
        await target.objects.put(key, await site.objects.get(key))
        assert (await target.restore(tmp_path / "backup")).objects == 1


@pytest.mark.asyncio
async def test_objects_of_a_store_of_their_own_are_listed_and_looked_for(
    site: Site, other_server: NatsProcess, tmp_path: Path
) -> None:
    await persisted(site)
    made = await site.backup(tmp_path / "backup", copy_objects=False)
    assert (made.objects, made.objects_copied) == (1, False)
    assert not (tmp_path / "backup" / OBJECTS).exists()
    (key,) = [info.key async for info in site.objects.list("")]
    async with empty(other_server, tmp_path / "other-objects") as target:
        found = await target.restore(tmp_path / "backup")
    assert (found.objects, found.missing) == (0, [key])


def test_the_verbs_move_a_local_set_that_is_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOETL_CONFIG", raising=False)
    old, new, folder = (str(tmp_path / name) for name in ("old", "new", "backup"))

    def call(*words: str) -> tuple[int, Any, str]:
        code = main([*words, "--json"])
        shown = capsys.readouterr()
        return code, json.loads(shown.out) if shown.out else None, shown.err

    assert call("backup", folder, "--data-dir", old)[0] == 2
    key = load_key(CredentialSettings(), tmp_path / "old")

    async def fill(server: NatsProcess) -> dict[int, dict[str, str]]:
        async with opened(server, tmp_path / "old" / "objects") as site:
            writer = HistoryWriter(site.log)
            for execution_id in (*EXECUTIONS, OPEN):
                await writer.run(execution_id)
            await persisted(site)
            return await site.checksums()

    async def read(server: NatsProcess) -> dict[int, dict[str, str]]:
        async with opened(server, tmp_path / "new" / "objects") as site:
            return await site.checksums()

    def alone(data_dir: str, work: Any) -> Any:
        server = start_nats(
            Path(data_dir) / "nats", token="some-token", durability="process", detached=False
        )
        try:
            return asyncio.run(work(server))
        finally:
            stop_nats(server)

    before = alone(old, fill)
    code, made, _ = call("backup", folder, "--data-dir", old)
    assert (code, made["objects"], made["key_copied"]) == (0, 1, False)
    assert not (tmp_path / "backup" / "credentials.key").exists()
    assert made["keys"] == {"credentials.key": fingerprint(key)}
    assert call("restore", folder, "--check")[1] == {"whole": True, "position": made["position"]}
    code, _, said = call("restore", folder, "--data-dir", new)
    assert code == 2
    assert "here is none: bring that key first" in said

    keyed = str(tmp_path / "keyed")
    assert call("backup", keyed, "--with-keys", "--data-dir", old)[0] == 0
    assert (tmp_path / "keyed" / "credentials.key").stat().st_mode & 0o777 == 0o600
    code, found, said = call("restore", keyed, "--data-dir", new)
    assert (code, said) == (0, "")
    assert (found["position"], found["missing"]) == (made["position"], [])
    assert load_key(CredentialSettings(), tmp_path / "new") == key
    assert alone(new, read) == before
    code, _, said = call("restore", keyed, "--data-dir", new)
    assert code == 2
    assert "there is a stream noetl_events already" in said
