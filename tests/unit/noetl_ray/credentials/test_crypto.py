"""Sealing: only the right key, scope and name open a record; keys are made private and once."""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.config.settings import CredentialSettings
from noetl_ray.credentials.crypto import Sealer, encode_key, load_key
from noetl_ray.credentials.port import Credential
from noetl_ray.errors import ConfigError, StoreError
from noetl_ray.scope import Scope

SCOPE = Scope(tenant_id="t", organization_id="o")
ONE = Credential(name="pg", type="postgres", data={"password": "hunter2"}, description="d")


@given(
    name=st.text(min_size=1),
    data=st.dictionaries(st.text(), st.none() | st.integers(-(2**53), 2**53) | st.text()),
)
def test_what_is_sealed_is_opened(name: str, data: dict[str, object]) -> None:
    sealer = Sealer(bytes(32))
    credential = Credential(name=name, type="x", data=data)
    sealed = sealer.seal(SCOPE, credential)
    assert sealer.open(SCOPE, name, sealed) == credential


def test_sealing_hides_the_data_and_differs_each_time() -> None:
    sealer = Sealer(bytes(32))
    first, second = sealer.seal(SCOPE, ONE), sealer.seal(SCOPE, ONE)
    assert first != second
    assert b"hunter2" not in first
    assert b"postgres" not in first


@pytest.mark.parametrize("position", [0, 1, 12, 13, -1])
def test_an_altered_record_is_refused(position: int) -> None:
    sealer = Sealer(bytes(32))
    record = bytearray(sealer.seal(SCOPE, ONE))
    record[position] ^= 1
    with pytest.raises(StoreError, match="'pg' cannot be opened"):
        sealer.open(SCOPE, "pg", bytes(record))


def test_a_record_belongs_to_key_scope_and_name() -> None:
    sealer = Sealer(bytes(32))
    sealed = sealer.seal(SCOPE, ONE)
    for other, scope, name in (
        (Sealer(b"1" * 32), SCOPE, "pg"),
        (sealer, Scope(tenant_id="u", organization_id="o"), "pg"),
        (sealer, SCOPE, "pg2"),
    ):
        with pytest.raises(StoreError):
            other.open(scope, name, sealed)
    with pytest.raises(StoreError):
        sealer.open(SCOPE, "pg", b"")


def test_data_that_is_not_json_is_refused_without_showing_it() -> None:
    bad = Credential(name="pg", type="x", data={"password": {1: object()}})
    with pytest.raises(StoreError, match="not plain JSON"):
        Sealer(bytes(32)).seal(SCOPE, bad)


def test_the_key_file_is_made_once_and_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    keys: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: keys.append(load_key(CredentialSettings(), folder)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
    path = folder / "credentials.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in folder.iterdir()] == ["credentials.key"]
    assert load_key(CredentialSettings(), folder) == keys[0]


def test_the_key_may_be_given(tmp_path: Path) -> None:
    key = bytes(range(32))
    (tmp_path / "k").write_text(encode_key(key) + "\n")
    assert load_key(CredentialSettings(key=encode_key(key)), tmp_path) == key
    assert load_key(CredentialSettings(key_file=str(tmp_path / "k")), tmp_path) == key


@pytest.mark.parametrize("text", ["", "short", base64.b64encode(b"x" * 31).decode(), "é"])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(ConfigError, match=r"credentials\.key_file"):
        load_key(CredentialSettings(key_file=str(tmp_path / "k")), tmp_path)


def test_a_named_key_file_is_never_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_key(CredentialSettings(key_file=str(tmp_path / "none")), tmp_path)
    with pytest.raises(ConfigError):
        Sealer(b"short")
