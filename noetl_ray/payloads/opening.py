"""From settings to the object store and the cell it makes up: the one place that knows both."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from noetl_ray.locator.cells import Cell, Location
from noetl_ray.payloads.fsspec_store import FsspecStore
from noetl_ray.payloads.replicated import Copy, ReplicatedObjects
from noetl_ray.payloads.sealed import SealedObjects
from noetl_ray.payloads.sealing import ObjectKeys

if TYPE_CHECKING:
    from noetl_ray.clock import Clock
    from noetl_ray.config.settings import PayloadStoreSettings, ReplicaSettings, Settings
    from noetl_ray.payloads.port import ObjectStore

PRIMARY = "primary"


def objects_url(settings: Settings) -> str:
    """The address of the primary: what is configured, or a folder of the data directory."""
    folder = (Path(settings.data_dir).resolve() / "objects").as_uri()
    return settings.payload_store.url or folder


def cell_of(settings: Settings) -> Cell:
    """The cell map of this deployment, without keys or secrets."""
    runtime, store = settings.runtime, settings.payload_store
    primary = _location(
        PRIMARY, objects_url(settings), store.endpoint_url, store.region or runtime.region
    )
    replicas = (
        _location(each.name, each.url, each.endpoint_url, each.region or runtime.region)
        for each in store.replicas
    )
    return Cell(name=runtime.cell, region=runtime.region, locations=(primary, *replicas))


def open_objects(settings: Settings, clock: Clock, credential_key: bytes) -> ObjectStore:
    """The object store the settings describe; nothing is contacted yet.

    Raises:
        ConfigError: an address cannot be used.
    """
    store = settings.payload_store
    return SealedObjects(
        stored_objects(settings, clock), object_keys(settings, credential_key), store.encrypt
    )


def object_keys(settings: Settings, credential_key: bytes) -> ObjectKeys:
    """What objects are sealed with: the configured key, or one derived from the credentials'."""
    store = settings.payload_store
    if store.encryption_key:
        master = base64.b64decode(store.encryption_key.strip())
    else:
        master = ObjectKeys.from_credentials(credential_key)
    older: list[bytes] = []
    for text in filter(None, (part.strip() for part in store.encryption_old_keys.split(","))):
        old = base64.b64decode(text)
        # A former key may have been given for objects, or for the credentials.
        older += [old, ObjectKeys.from_credentials(old)]
    return ObjectKeys(master, older=older)


def stored_objects(settings: Settings, clock: Clock) -> ObjectStore:
    """The objects as they lie, sealed ones sealed: for who moves them and never looks into them."""
    store = settings.payload_store
    primary = _open(objects_url(settings), store)
    if not store.replicas:
        return primary
    stores = [primary, *(_open(each.url, each) for each in store.replicas)]
    copies = [
        Copy(location=location, store=each)
        for location, each in zip(cell_of(settings).locations, stores, strict=True)
    ]
    return ReplicatedObjects(copies, region=settings.runtime.region, clock=clock)


def _open(url: str, given: PayloadStoreSettings | ReplicaSettings) -> ObjectStore:
    return FsspecStore.open(
        url,
        endpoint_url=given.endpoint_url,
        access_key=given.access_key,
        secret_key=given.secret_key,
    )


def _location(name: str, url: str, endpoint: str, region: str) -> Location:
    parts = urlsplit(url)
    return Location(
        name=name,
        provider=parts.scheme,
        bucket=parts.netloc,
        prefix=parts.path.strip("/") if parts.scheme != "file" else parts.path,
        endpoint=endpoint,
        region=region,
    )
