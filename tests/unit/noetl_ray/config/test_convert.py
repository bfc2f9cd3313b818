"""Settings travel as JSON and come back equal; what is shown hides secrets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.config.convert import HIDDEN, from_dict, shown, to_dict
from noetl_ray.config.environ import VARIABLES, WITHOUT_SETTING, environ, node_id
from noetl_ray.config.settings import Settings
from noetl_ray.errors import ConfigError


@given(workers=st.integers(), token=st.text(), names=st.lists(st.text()), on=st.booleans())
def test_round_trip_through_json(workers: int, token: str, names: list[str], on: bool) -> None:
    settings = from_dict(
        {
            "runtime": {"workers": workers, "allowed_env": names},
            "gateway": {"token": token},
            "ray": {"dashboard": on},
        }
    )
    assert from_dict(json.loads(json.dumps(to_dict(settings)))) == settings


def test_secrets_travel_but_are_not_shown() -> None:
    settings = from_dict({"gateway": {"token": "s3cret"}, "projection_stores": {"dsn": "s3cret"}})
    assert to_dict(settings)["gateway"]["token"] == "s3cret"
    assert "s3cret" not in repr(settings)
    assert shown("gateway.token", "s3cret") == HIDDEN
    assert shown("event_store.url", "nats://me:s3cret@host:1") == f"nats://{HIDDEN}@host:1"


def test_environment_names_point_at_real_settings() -> None:
    for name, key in VARIABLES.items():
        section, _, field = key.rpartition(".")
        holder = getattr(Settings(), section) if section else Settings()
        assert hasattr(holder, field), name
    assert not WITHOUT_SETTING.keys() & VARIABLES.keys()


def test_the_environment_is_read_only() -> None:
    with pytest.raises(TypeError):
        environ()["A"] = "b"  # type: ignore[index]


def test_node_id_is_the_setting_or_the_host() -> None:
    assert node_id(from_dict({"runtime": {"node_id": "n1"}})) == "n1"
    own = node_id(Settings())
    assert own
    assert set(own) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def test_sections_must_be_mappings() -> None:
    with pytest.raises(ConfigError, match="runtime"):
        from_dict({"runtime": 3})


def test_a_list_of_limits_is_read_and_given_back() -> None:
    data = {"http": {"limits": [{"host": "a", "per_second": 2}, {"credential": "c"}]}}
    settings = from_dict(data)
    assert settings.http.limits[0].per_second == 2.0
    assert settings.http.limits[1].credential == "c"
    assert from_dict(to_dict(settings)) == settings


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        ("a", "http.limits"),
        ([{"hots": "a"}], "http.limits[0].hots"),
        ([{"host": "a", "per_second": "fast"}], "http.limits[0].per_second"),
        (["a"], "http.limits[0]"),
    ],
)
def test_bad_limits_are_refused_by_their_place(limits: object, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict({"http": {"limits": limits}})
    assert caught.value.key == key
