"""``backup`` and ``restore``: what cannot be rebuilt, into a folder and back.

Works on the servers themselves and not through the gateway, so it also works when no set runs.
Owns which streams and keys belong to a backup, and what people are told.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl_ray import __version__
from noetl_ray.cli.context import COMPLETED, FAILED
from noetl_ray.clock import SystemClock, iso_utc
from noetl_ray.credentials.crypto import KEY_FILE, encode_key, load_key
from noetl_ray.credentials.nats_kv import BUCKET
from noetl_ray.errors import ConflictError, UsageError
from noetl_ray.payloads.opening import objects_url, stored_objects
from noetl_ray.replay.backup import (
    KEY,
    fingerprint,
    read_backup,
    restore_backup,
    verify_backup,
    write_backup,
)
from noetl_ray.shards.checkpoints_nats import STREAM as CHECKPOINTS
from noetl_ray.shards.owners_nats import BUCKET as OWNERS
from noetl_ray.wal.connection import connect
from noetl_ray.wal.jetstream_stream import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl_ray.cli.context import Context
    from noetl_ray.config.settings import Settings
    from noetl_ray.replay.backup import BackupManifest, Restored

CREDENTIALS_KEY, OBJECTS_KEY = "credentials.key", "payload_store.encryption_key"
_SHOWN = 20


def backup(context: Context) -> int:
    """Write everything; what runs goes on."""
    with _with_log(context, restoring=False) as settings:
        made = asyncio.run(_write(context, settings))
    if context.json:
        context.emit(msgspec.to_builtins(made))
        return COMPLETED
    context.out.print(
        f"{context.args.folder}: the log up to position {made.position}, "
        f"{len(made.streams)} streams, {made.objects} objects "
        f"({made.object_bytes:,} bytes) {'copied' if made.objects_copied else 'listed'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if not made.objects_copied:
        context.say(f"the objects stay in {made.objects_at}; keep that store, or --objects copy")
    if not made.key_copied:
        context.say("the key of the credentials is not in it; keep it apart, or --with-keys")
    return COMPLETED


def restore(context: Context) -> int:
    """Bring everything back; 1 when listed objects are not in their store."""
    folder = context.args.folder
    manifest = read_backup(folder)
    if context.args.check:
        verify_backup(folder, manifest)
        if context.json:
            context.emit({"whole": True, "position": manifest.position})
        else:
            context.say(f"{folder} is whole: the log up to position {manifest.position}")
        return COMPLETED
    with _with_log(context, restoring=True) as settings:
        _bring_key(folder, manifest, settings)
        found = asyncio.run(_restore(context, settings))
    if context.json:
        context.emit(msgspec.to_builtins(found))
    else:
        context.out.print(
            f"restored the log up to position {found.position}, "
            f"{len(found.streams)} streams, {found.objects} objects",
            highlight=False,
        )
        for key in found.missing[:_SHOWN]:
            context.out.print(f"  not in the store: {key}", markup=False, soft_wrap=True)
        if found.missing:
            context.say(f"{len(found.missing)} listed objects are not in the store")
        context.say("start it with: noetl-ray up")
    return FAILED if found.missing else COMPLETED


@contextlib.contextmanager
def _with_log(context: Context, *, restoring: bool) -> Iterator[Settings]:
    """Settings with the address of the log, whose server is started for this where it is ours."""
    from actors.local import find
    from actors.offline import nats_alone

    folder = context.data_dir.expanduser().absolute()
    settings = replace(context.settings, data_dir=str(folder))
    store = settings.event_store
    local = find(folder)
    if local is not None and restoring:
        msg = f"a set runs in {folder}: restore into a data directory that holds nothing"
        raise UsageError(msg)
    if local is not None:
        nats = replace(store, url=local.nats_url, token=local.nats_token)
        yield replace(settings, event_store=nats)
    elif store.url:
        yield settings
    else:
        if not restoring and not (folder / "nats").is_dir():
            msg = f"there is no set in {folder}: name one with --data-dir, or set event_store.url"
            raise UsageError(msg)
        if restoring and (folder / "postgres").exists():
            msg = f"{folder} has a read model already: restore into a data directory without one"
            raise ConflictError(msg)
        with nats_alone(folder, store.durability) as server:
            nats = replace(store, url=server.url, token=server.token or "")
            yield replace(settings, event_store=nats)


async def _write(context: Context, settings: Settings) -> BackupManifest:
    args = context.args
    store = settings.payload_store
    local = not store.url or store.url.startswith("file:")
    key = _key(settings)
    if args.with_keys and key is None:
        msg = f"there is no key of the credentials in {settings.data_dir} to put in"
        raise UsageError(msg)
    connection = await connect(settings.event_store.url, settings.event_store.token or None)
    objects = stored_objects(settings, SystemClock())
    try:
        return await write_backup(
            args.folder,
            connection,
            objects,
            log=settings.event_store.stream,
            streams=[f"KV_{BUCKET}"],
            copy_objects=local if args.objects is None else args.objects == "copy",
            objects_at=objects_url(settings),
            keys=_fingerprints(settings),
            key_text=encode_key(key) + "\n" if args.with_keys and key is not None else None,
            version=__version__,
            made_at=iso_utc(int(time.time() * 1_000)),
        )
    finally:
        await objects.close()
        await connection.close()


async def _restore(context: Context, settings: Settings) -> Restored:
    connection = await connect(settings.event_store.url, settings.event_store.token or None)
    objects = stored_objects(settings, SystemClock())
    try:
        return await restore_backup(
            context.args.folder,
            connection,
            objects,
            log=settings.event_store.stream,
            derived=[f"KV_{OWNERS}", CHECKPOINTS],
            replicas=REPLICAS if settings.event_store.durability == "replicated" else 1,
        )
    finally:
        await objects.close()
        await connection.close()


def _bring_key(folder: Path, manifest: BackupManifest, settings: Settings) -> None:
    """Put the backup's key where the set looks for it, and see that keys are the right ones."""
    if manifest.key_copied and _key(settings) is None:
        place = Path(settings.data_dir) / KEY_FILE
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write((folder / KEY).read_bytes())
    present = _fingerprints(settings)
    for name, wanted in manifest.keys.items():
        if present.get(name) != wanted:
            state = "another one" if name in present else "none"
            msg = (
                f"what is in the backup was sealed with a key {name} whose fingerprint is {wanted},"
                f" and here is {state}: bring that key first"
            )
            raise ConflictError(msg)


def _key(settings: Settings) -> bytes | None:
    """The key of the credentials; None when there is none, and none is made."""
    given = settings.credentials
    if not given.key and not given.key_file and not (Path(settings.data_dir) / KEY_FILE).exists():
        return None
    return load_key(given, Path(settings.data_dir))


def _fingerprints(settings: Settings) -> dict[str, str]:
    found = {}
    key = _key(settings)
    if key is not None:
        found[CREDENTIALS_KEY] = fingerprint(key)
    if settings.payload_store.encryption_key:
        text = settings.payload_store.encryption_key.strip()
        found[OBJECTS_KEY] = fingerprint(base64.b64decode(text))
    return found
