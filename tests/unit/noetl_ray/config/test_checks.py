"""Ranges and relations: bad values are refused, edges are accepted."""

from __future__ import annotations

import base64

import pytest

from noetl_ray.config.checks import RANGES, check, is_loopback
from noetl_ray.config.convert import from_dict, known_keys, secret_keys
from noetl_ray.errors import ConfigError


def tree(key: str, value: object) -> dict[str, object]:
    *sections, name = key.split(".")
    result: dict[str, object] = {name: value}
    for section in reversed(sections):
        result = {section: result}
    return result


def test_defaults_pass() -> None:
    check(from_dict({}))


def test_every_number_has_a_range() -> None:
    numbers = {
        f"{section}.{name}"
        for section, inner in ((key, from_dict({})) for key in {k.split(".")[0] for k in RANGES})
        for name in type(getattr(inner, section)).__dataclass_fields__
        if type(getattr(getattr(inner, section), name)) is int
    }
    assert numbers == set(RANGES)


@pytest.mark.parametrize("key", sorted(RANGES))
def test_values_outside_their_range_are_refused(key: str) -> None:
    least, most = RANGES[key]
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError) as caught:
            check(from_dict(tree(key, value)))
        assert caught.value.key == key
        assert caught.value.value == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("event_store.url", "localhost:4222"),
        ("event_store.url", "nats://a:1,http://b:2"),
        ("projection_stores.dsn", "mysql://x"),
        ("payload_store.url", "ftp://x"),
        ("payload_store.url", "s3://"),
        ("payload_store.endpoint_url", "localhost"),
        ("event_store.durability", "maybe"),
        ("runtime.tenant_id", "a.b"),
        ("runtime.organization_id", "execution"),
        ("runtime.conductors", 17),
        ("runtime.announce_ms", 8_000),
        ("frame_policy_defaults.heartbeat_seconds", 61),
        ("gateway.host", "0.0.0.0"),
        ("gateway.host", "example.org"),
        ("credentials.key", "short"),
        ("data_dir", " "),
        ("runtime.cell", ""),
    ],
)
def test_values_without_meaning_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check(from_dict(tree(key, value)))
    assert caught.value.key == key


@pytest.mark.parametrize(
    "data",
    [
        {"gateway": {"host": "0.0.0.0", "token": "t"}},
        {"gateway": {"host": "::1"}},
        {"event_store": {"url": "nats://a:1, nats://b:2"}},
        {"payload_store": {"url": "file:///data"}},
        {"credentials": {"key": base64.b64encode(bytes(32)).decode()}},
    ],
)
def test_good_values_pass(data: dict[str, object]) -> None:
    check(from_dict(data))


def test_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "name"))


def test_what_is_secret() -> None:
    assert secret_keys() == {
        "event_store.token",
        "payload_store.access_key",
        "payload_store.secret_key",
        "payload_store.encryption_key",
        "payload_store.encryption_old_keys",
        "payload_store.replicas[].access_key",
        "payload_store.replicas[].secret_key",
        "projection_stores.dsn",
        "gateway.token",
        "credentials.key",
    }
    assert {key for key in secret_keys() if "[]" not in key} < set(known_keys())


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ([{"max_in_flight": 1}], "needs either host or credential"),
        ([{"host": "a", "credential": "b", "max_in_flight": 1}], "needs either host or credential"),
        ([{"host": "a"}], "needs max_in_flight or per_second"),
        ([{"host": "a", "per_second": 1}, {"host": "A", "max_in_flight": 1}], "is limited twice"),
        ([{"host": "a", "max_in_flight": -1}], "must be between 0 and 100000"),
        ([{"host": "a", "per_second": float("nan")}], "must be between 0 and 100000"),
    ],
)
def test_limits_must_say_what_and_how_much(limits: list[dict[str, object]], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check(from_dict({"http": {"limits": limits}}))


@pytest.mark.parametrize(
    ("replica", "reason"),
    [
        ({"name": "", "url": "s3://b"}, "only once"),
        ({"name": "primary", "url": "s3://b"}, "only once"),
        ({"name": "a"}, "not be empty"),
        ({"name": "a", "url": "ftp://b"}, "starting with"),
        ({"name": "a", "url": "s3://b", "secret_key": 5150}, "must be text"),
    ],
)
def test_loc_6_bad_copies_stop_the_start_and_show_no_secret(replica, reason) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        check(from_dict({"payload_store": {"replicas": [replica]}}))
    assert "5150" not in str(caught.value)
