"""Which keys are credential-shaped, and that nothing known slips through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.results.redact import (
    MASK,
    Redactor,
    has_credentials,
    is_credential_key,
    mask,
    mask_marked,
)

SHAPED = [
    "password",
    "passwd",
    "pwd",
    "db_password",
    "dbPassword",
    "PASSWORD",
    "user-password",
    "passphrase",
    "secret",
    "client_secret",
    "clientSecret",
    "aws_secret_access_key",
    "token",
    "access_token",
    "accessToken",
    "refresh_token",
    "id_token",
    "X-Auth-Token",
    "x-amz-security-token",
    "apiKey",
    "api_key",
    "apikey",
    "X-API-Key",
    "authorization",
    "Authorization",
    "Proxy-Authorization",
    "private_key",
    "privateKey",
    "connection_string",
    "connectionString",
    "dsn",
    "cookie",
    "Set-Cookie",
    "cookies",
    "session_id",
    "sessionId",
    "JSESSIONID",
    "PHPSESSID",
    "session_token",
    "credentials",
    "jwt",
    "APIKey",
    "csrf_token",
]
HARMLESS = [
    "tokens_used",
    "max_tokens",
    "total_tokens",
    "tokens",
    "token_type",
    "token_count",
    "page_token",
    "nextPageToken",
    "next_token",
    "NextToken",
    "continuation_token",
    "sync_token",
    "eos_token",
    "primary_key",
    "idempotency_key",
    "key",
    "session",
    "secretary",
    "secret_name",
    "passwordless",
    "author",
    "authorized",
    "cookie_count",
    "monkey",
    "keys",
    "partition_key",
    "expires_in",
    "user",
]


@pytest.mark.parametrize("key", SHAPED)
def test_sec_1_credential_shaped(key):
    assert is_credential_key(key)


@pytest.mark.parametrize("key", HARMLESS)
def test_sec_1_harmless(key):
    assert not is_credential_key(key)


def test_sec_1_found_at_any_depth():
    assert has_credentials({"a": [{"b": {"password": "x"}}]})
    assert has_credentials([[{"token": 5}]])
    assert has_credentials({"credentials": {"user": "u"}})


@pytest.mark.parametrize("value", [None, True, False, "", [], {}])
def test_sec_1_an_empty_holder_is_no_credential(value):
    assert not has_credentials({"password": value})
    assert mask({"password": value}) == {"password": value}


def test_sec_1_mask_hides_values_and_keeps_shape():
    value = {"user": "u", "login": [{"password": "p", "n": 1}], "cookies": ["a"], "page_token": "t"}
    before = repr(value)
    masked, marks = mask_marked(value)
    assert masked == {
        "user": "u",
        "login": [{"password": MASK, "n": 1}],
        "cookies": MASK,
        "page_token": "t",
    }
    assert marks == {"login.0.password": -1, "cookies": -1}
    assert repr(value) == before


def test_redactor_replaces_known_secrets_everywhere():
    redactor = Redactor(["hunter2", "hunter2-long", 'qu"ote', "a b/c", "abc"])
    assert redactor.text("hunter2-long and hunter2") == f"{MASK} and {MASK}"
    assert redactor.text("abc") == "abc"
    assert redactor.text("http://h/?p=a%20b%2Fc") == f"http://h/?p={MASK}"
    assert redactor.text('{"x":"qu\\"ote"}') == f'{{"x":"{MASK}"}}'
    assert redactor.value({"k hunter2": ["hunter2", 1, None]}) == {f"k {MASK}": [MASK, 1, None]}


def test_redactor_without_secrets_changes_nothing():
    value = {"a": ["b"]}
    assert Redactor([]).value(value) is value
    assert Redactor(["", "x"]).text("x y") == "x y"


def test_redactor_takes_secrets_as_text_not_pattern():
    assert Redactor([".*.*"]).text("anything .*.*") == f"anything {MASK}"


@given(
    st.lists(st.text("abc", min_size=4, max_size=9), min_size=1, max_size=4),
    st.text("abcd", max_size=60),
    st.integers(1, 7),
)
def test_bytes_in_chunks_lose_the_same_secrets_as_the_whole(
    secrets: list[str], text: str, size: int
) -> None:
    redactor = Redactor(secrets)
    stream = redactor.stream()
    parts = [stream.feed(text[i : i + size].encode()) for i in range(0, len(text), size)]
    made = b"".join([*parts, stream.end()]).decode()
    assert made == redactor.text(text)
