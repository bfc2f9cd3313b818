"""A backup: what cannot be rebuilt, in one folder, and the way back into an empty set.

Owns the folder's layout and the order. The log is copied before the objects, because a result is
written before the event that names it; on the way back the log comes last, so that it never names
what is not there yet. The manifest is written last: a folder without one is no backup. Everything
is compared with its digest before the first byte is restored. Objects travel as they lie, sealed
ones sealed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl_ray.errors import ConflictError, ObjectMissingError, StoreError, UsageError
from noetl_ray.events.canonical import sha256_hex
from noetl_ray.locator.keys import ROOT
from noetl_ray.payloads.files import FileObjects
from noetl_ray.wal.jetstream_snapshot import Snapshots, StreamCopy, in_the_way

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noetl_ray.payloads.port import ObjectStore
    from noetl_ray.wal.connection import Connection

FORMAT = 1
MANIFEST = "manifest.json"
STREAMS, OBJECTS, LIST, KEY = "streams", "objects", "objects.jsonl", "credentials.key"


class ListedObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the list of objects."""

    key: str
    bytes: int
    sha256: str = ""
    """Of an object that lies in the backup; nothing was read of one that does not."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    format: int
    version: str
    """Of the program that wrote it."""
    made_at: str
    log: str
    """The stream that is the log."""
    position: int
    """The newest position of the log in it."""
    streams: list[StreamCopy]
    objects: int
    object_bytes: int
    objects_copied: bool
    """Whether the objects lie in the backup, or stay in their store and are listed."""
    objects_at: str
    list_sha256: str
    keys: dict[str, str]
    """Fingerprints by setting of the keys a restored set needs."""
    key_copied: bool


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore brought back."""

    position: int
    streams: list[str]
    objects: int
    missing: list[str]
    """Objects that were only listed and are not in the store."""


def fingerprint(key: bytes) -> str:
    """Tells keys apart and tells nothing of them."""
    return sha256_hex(b"noetl-ray key fingerprint\0" + key)[:32]


async def write_backup(
    folder: Path,
    connection: Connection,
    objects: ObjectStore,
    *,
    log: str,
    streams: Sequence[str],
    copy_objects: bool,
    objects_at: str,
    keys: Mapping[str, str],
    key_text: str | None,
    version: str,
    made_at: str,
) -> BackupManifest:
    """Write everything into an empty folder.

    Args:
        folder: Made when it is not there.
        connection: To the server of the streams.
        objects: The store as it lies, below all sealing.
        log: The stream that is the log.
        streams: Others; those that are not there are left out.
        copy_objects: Copy objects instead of listing them.
        objects_at: The store's address, for people.
        keys: Fingerprints by setting.
        key_text: The key of the credentials, to lie in the backup; None leaves it out.
        version: The program's.
        made_at: Now.

    Raises:
        UsageError: the folder holds something.
        NotFoundError: there is no log.
    """
    _fresh(folder)
    snapshots = await Snapshots.open(connection)
    try:
        there = [name for name in streams if await snapshots.exists(name)]
        kept = [await snapshots.save(name, folder / STREAMS) for name in (log, *there)]
    finally:
        snapshots.close()
    count, size = await _take_objects(folder, objects, copy=copy_objects)
    if key_text is not None:
        _write_private(folder / KEY, key_text.encode())
    manifest = BackupManifest(
        format=FORMAT,
        version=version,
        made_at=made_at,
        log=log,
        position=kept[0].position,
        streams=kept,
        objects=count,
        object_bytes=size,
        objects_copied=copy_objects,
        objects_at=objects_at,
        list_sha256=_file_sha256(folder / LIST),
        keys=dict(keys),
        key_copied=key_text is not None,
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    await asyncio.to_thread(_settle, folder)
    _write_private(folder / MANIFEST, text)
    return manifest


def read_backup(folder: Path) -> BackupManifest:
    """The manifest of a folder.

    Raises:
        UsageError: that is no complete backup, or one of another format.
    """
    try:
        data = (folder / MANIFEST).read_bytes()
        manifest = msgspec.json.decode(data, type=BackupManifest)
    except OSError:
        msg = f"{folder} holds no complete backup: there is no {MANIFEST}"
        raise UsageError(msg) from None
    except msgspec.DecodeError as error:
        msg = f"{folder / MANIFEST} cannot be read: {error}"
        raise UsageError(msg) from None
    if manifest.format != FORMAT:
        msg = f"{folder} has format {manifest.format}; this program reads {FORMAT}"
        raise UsageError(msg)
    return manifest


def verify_backup(folder: Path, manifest: BackupManifest) -> None:
    """Compare every byte with its digest.

    Raises:
        StoreError: something is missing or has other bytes; the message names it.
    """
    places = [(folder / STREAMS / each.file, each.sha256) for each in manifest.streams]
    places.append((folder / LIST, manifest.list_sha256))
    for path, sha256 in places:
        _compare(path, sha256)
    if manifest.objects_copied:
        for each in _listed(folder):
            _compare(folder / OBJECTS / each.key, each.sha256)


async def restore_backup(
    folder: Path,
    connection: Connection,
    objects: ObjectStore,
    *,
    log: str,
    derived: Sequence[str],
    replicas: int,
) -> Restored:
    """Bring everything back into servers that hold none of it.

    Running it again after it broke off is safe up to the first stream, which is refused then.

    Args:
        folder: The backup.
        connection: To the server the streams go to.
        objects: The store as it lies, below all sealing.
        log: The stream the settings call the log.
        derived: Streams made from a log. One that is there was made from another log, and would
            mislead whoever starts from it.
        replicas: How many copies a stream may have at most; the log gets so many.

    Raises:
        UsageError, StoreError: the backup is not whole; nothing was written.
        ConflictError: a stream or another object is in the way.
    """
    manifest = read_backup(folder)
    await asyncio.to_thread(verify_backup, folder, manifest)
    if manifest.log != log:
        msg = f"the backup's log is the stream {manifest.log}; set event_store.stream to that name"
        raise ConflictError(msg)
    snapshots = await Snapshots.open(connection)
    try:
        for name in (*(each.name for each in manifest.streams), *derived):
            if await snapshots.exists(name):
                raise ConflictError(in_the_way(name))
        missing = await _give_objects(folder, objects, copied=manifest.objects_copied)
        # The log is first in the list and comes last: it names what the others hold.
        for each in reversed(manifest.streams):
            wanted = int(each.config.get("num_replicas", 1))
            count = replicas if each.name == log else min(wanted, replicas)
            await snapshots.load(each, folder / STREAMS, replicas=count)
    finally:
        snapshots.close()
    return Restored(
        position=manifest.position,
        streams=[each.name for each in manifest.streams],
        objects=manifest.objects - len(missing),
        missing=missing,
    )


async def _take_objects(folder: Path, objects: ObjectStore, *, copy: bool) -> tuple[int, int]:
    target = FileObjects(folder / OBJECTS)
    count = size = 0
    with (folder / LIST).open("wb") as lines:
        async for info in objects.list(ROOT):
            listed = ListedObject(key=info.key, bytes=info.size_bytes)
            if copy:
                try:
                    listed = await _take(info.key, objects, target)
                except ObjectMissingError:
                    continue  # deleted since it was listed: nobody needs it
            lines.write(msgspec.json.encode(listed) + b"\n")
            count += 1
            size += listed.bytes
    return count, size


async def _take(key: str, objects: ObjectStore, target: FileObjects) -> ListedObject:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "object"
        await objects.get_file(key, str(path))
        sha256 = await asyncio.to_thread(_file_sha256, path)
        await target.put_file(key, str(path))
        return ListedObject(key=key, bytes=path.stat().st_size, sha256=sha256)


async def _give_objects(folder: Path, objects: ObjectStore, *, copied: bool) -> list[str]:
    """Write objects, or look for those that were only listed; gives the keys that are not there."""
    missing = []
    for each in _listed(folder):
        if copied:
            await _give(folder / OBJECTS / each.key, each, objects)
        elif not await objects.has(each.key, each.bytes):
            missing.append(each.key)
    return missing


async def _give(path: Path, listed: ListedObject, objects: ObjectStore) -> None:
    if await objects.info(listed.key) is None:
        await objects.put_file(listed.key, str(path))
        return
    with tempfile.TemporaryDirectory() as place:
        there = Path(place) / "object"
        await objects.get_file(listed.key, str(there))
        if await asyncio.to_thread(_file_sha256, there) != listed.sha256:
            msg = f"the store holds another object at {listed.key}: restore into an empty store"
            raise ConflictError(msg)


def _listed(folder: Path) -> Iterator[ListedObject]:
    with (folder / LIST).open("rb") as lines:
        for line in lines:
            yield msgspec.json.decode(line, type=ListedObject)


def _fresh(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()):
            msg = f"{folder} is not empty: a backup goes into a folder of its own"
            raise UsageError(msg)
        (folder / STREAMS).mkdir(mode=0o700)
    except OSError as error:
        msg = f"{folder} cannot be used: {error.strerror}"
        raise UsageError(msg) from None


def _compare(path: Path, sha256: str) -> None:
    try:
        same = _file_sha256(path) == sha256
    except OSError:
        msg = f"the backup is not whole: {path} cannot be read"
        raise StoreError(msg) from None
    if not same:
        msg = f"the backup is damaged: {path} does not have the bytes that were written"
        raise StoreError(msg)


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _settle(folder: Path) -> None:
    """On the disk before the manifest says so; object files are already."""
    for path in (*(folder / STREAMS).iterdir(), folder / LIST):
        with path.open("rb") as file:
            os.fsync(file.fileno())
