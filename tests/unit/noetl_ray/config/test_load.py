"""Loading settings: order of sources, substitution, refusals that name the key, hidden secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_ray.config.load import load_settings
from noetl_ray.errors import ConfigError


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "given.yaml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def refused(text: str, environ: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_settings(written(text), environ=environ or {})
    return caught.value


def test_defaults_without_any_file() -> None:
    settings = load_settings(None, environ={})
    assert settings.runtime.shard_count == 16
    assert Path(settings.data_dir) == Path.cwd() / ".noetl-ray"


def test_the_file_is_looked_for_in_order() -> None:
    named = written("runtime: {workers: 2}", "named.yaml")
    pointed = written("runtime: {workers: 3}", "pointed.yaml")
    written("runtime: {workers: 4}", "noetl-ray.yaml")
    environ = {"NOETL_CONFIG": str(pointed)}
    assert load_settings(named, environ=environ).runtime.workers == 2
    assert load_settings(None, environ=environ).runtime.workers == 3
    assert load_settings(None, environ={}).runtime.workers == 4


def test_environment_wins_over_file_and_overrides_win_over_both() -> None:
    path = written("runtime: {shard_count: 4, region: eu}\ngateway: {port: 1000}")
    environ = {"NOETL_SHARD_COUNT": "8", "NOETL_RESULT_PRODUCER_STAGE": "off", "NOETL_ZONE": ""}
    settings = load_settings(path, environ=environ, overrides={"gateway.port": 2000})
    assert settings.runtime.shard_count == 8
    assert settings.runtime.region == "eu"
    assert settings.runtime.zone == "local"
    assert settings.results.producer_stage is False
    assert settings.gateway.port == 2000


def test_substitution_coerces_what_came_from_the_environment() -> None:
    text = """
runtime: {workers: "${WORKERS}", allowed_env: "${NAMES:-A, B}", cell: "$${kept}"}
event_store: {url: "nats://${HOST:-localhost}:4222"}
ray: {dashboard: "${DASHBOARD:-false}"}
"""
    settings = load_settings(written(text), environ={"WORKERS": "5"})
    assert settings.runtime.workers == 5
    assert settings.runtime.allowed_env == ("A", "B")
    assert settings.runtime.cell == "${kept}"
    assert settings.event_store.url == "nats://localhost:4222"
    assert settings.ray.dashboard is False


def test_an_unset_variable_is_named() -> None:
    error = refused('event_store: {url: "${NOWHERE}"}')
    assert error.key == "event_store.url"
    assert "NOWHERE" in error.reason


def test_plain_text_is_not_coerced() -> None:
    assert refused('runtime: {workers: "5"}').reason == "must be a whole number"
    assert refused("runtime: {workers: true}").key == "runtime.workers"
    assert refused("runtime: {region: 5}").key == "runtime.region"
    assert refused("ray: {dashboard: 1}").reason == "must be true or false"
    assert refused("runtime: {allowed_env: HOME}").reason == "must be a list of texts"
    assert refused("runtime: [1]").key == "runtime"


@pytest.mark.parametrize("text", ["five", "1.5", "", "1_0"])
def test_an_environment_value_that_is_no_number(text: str) -> None:
    error = refused('runtime: {workers: "${W}"}', {"W": text})
    assert error.reason == "must be a whole number"


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("runtme: {}", "runtme", "'runtime'"),
        ("runtime: {shard_cont: 4}", "runtime.shard_cont", "'shard_count'"),
        ("gateway: {zzz: 4}", "gateway.zzz", "known here: host, port, public_url, token"),
    ],
)
def test_unknown_keys_get_a_suggestion(text: str, key: str, hint: str) -> None:
    error = refused(text)
    assert error.key == key
    assert hint in error.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "line 1, column"),
        ("- 1", "must be a mapping of sections"),
        ("gateway: {port: 1}\ngateway: {port: 2}", "line 2: this key stands here twice"),
        ("1: {}", "line 1: keys must be text"),
    ],
)
def test_files_that_are_not_settings(text: str, reason: str) -> None:
    assert reason in refused(text).reason


def test_a_named_file_must_exist() -> None:
    for environ, path in (({}, Path("missing.yaml")), ({"NOETL_CONFIG": "missing.yaml"}, None)):
        with pytest.raises(ConfigError, match=r"missing\.yaml.*no such file"):
            load_settings(path, environ=environ)


def test_an_empty_file_and_an_empty_section_are_defaults() -> None:
    assert load_settings(written(""), environ={}) == load_settings(None, environ={})
    assert load_settings(written("runtime:\n"), environ={}).runtime.workers == 1


def test_secrets_never_reach_a_message() -> None:
    secret = "do-not-show-me"
    errors = [
        refused(f"gateway: {{tokn: {secret}}}"),
        refused(f"gateway: {{token: [{secret}]}}"),
        refused(f"projection_stores: {{dsn: {secret}}}"),
        refused(f"event_store: {{url: 'http://user:{secret}@host'}}"),
        refused(f"credentials: {{key: {secret}}}"),
        refused(f"gateway: {{token: '{secret}${{NOWHERE}}'}}"),
    ]
    for error in errors:
        assert secret not in str(error)
        assert secret not in repr(error)


def test_switches_without_a_setting_are_refused() -> None:
    with pytest.raises(ConfigError, match="NOETL_RESULT_URI_ACCEPT"):
        load_settings(None, environ={"NOETL_RESULT_URI_ACCEPT": "0"})


def test_unknown_overrides_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.port"):
        load_settings(None, environ={}, overrides={"gateway.prt": 1})
