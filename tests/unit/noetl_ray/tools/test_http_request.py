from __future__ import annotations

import base64

import pytest

from noetl_ray.errors import ToolError
from noetl_ray.tools.auth import Auth
from noetl_ray.tools.http_request import prepare

URL = "http://h/x"


def make(config, auth=None):
    return prepare({"url": URL, **config}, auth, "key-1")


def credential(type_, **data):
    return Auth(name="c", type=type_, data=data)


def test_the_least_is_a_get():
    found = prepare({"endpoint": URL}, None, "key-1")
    assert (found.method, str(found.url), found.headers, found.content) == ("GET", URL, {}, None)


@pytest.mark.parametrize(
    ("config", "query"),
    [
        (
            {"params": {"a": 1, "b": None, "c": True, "d": [1, None, "x"], "e": 1.5}},
            "a=1&c=true&d=1&d=x&e=1.5",
        ),
        ({"params": {"f": {"k": [1]}}}, "f=%7B%22k%22%3A%5B1%5D%7D"),
        ({"params": "?a=1&b=2"}, "a=1&b=2"),
        ({"params": ""}, ""),
        ({"data": {"a": 1, "b": None}}, "a=1"),
        ({"method": "delete", "data": {"a": 1}}, "a=1"),
        ({"params": {"a": 1}, "data": {"a": 2, "b": 3}}, "a=1&b=3"),
        ({"method": "POST", "data": {"query": {"q": 1}, "body": {"b": 2}}}, "q=1"),
    ],
)
def test_the_query(config, query):
    assert make(config).url.query.decode() == query


def test_a_query_in_the_url_is_kept():
    assert str(prepare({"url": URL + "?a=1&b=2", "params": {"b": 3}}, None, "").url) == (
        URL + "?a=1&b=3"
    )


@pytest.mark.parametrize(
    ("config", "content", "kind"),
    [
        ({"json": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"payload": [1]}, b"[1]", "application/json"),
        ({"json": '{"a": 1}'}, b'{"a": 1}', "application/json"),
        ({"json": "text"}, b'"text"', "application/json"),
        ({"body": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"body": "raw"}, b"raw", None),
        ({"body": "<a/>", "headers": {"Content-Type": "text/xml"}}, b"<a/>", "text/xml"),
        ({"data": {"a": 1}}, b'{"a":1}', "application/json"),
        ({"data": {"query": {"q": 1}, "body": {"b": 2}}}, b'{"b":2}', "application/json"),
        ({"data": {"query": {"q": 1}}}, None, None),
        (
            {"form": {"a": "x y", "b": [1, 2], "c": None}},
            b"a=x+y&b=1&b=2",
            "application/x-www-form-urlencoded",
        ),
        (
            {
                "data": {"a": "x&y"},
                "headers": {"Content-Type": "application/x-www-form-urlencoded"},
            },
            b"a=x%26y",
            "application/x-www-form-urlencoded",
        ),
        (
            {"json": {"a": 1}, "headers": {"content-type": "application/vnd.x+json"}},
            b'{"a":1}',
            "application/vnd.x+json",
        ),
        ({}, None, None),
    ],
)
def test_the_body_of_a_post(config, content, kind):
    found = make({"method": "POST", **config})
    assert found.content == content
    assert found.headers.get("content-type") == kind


def test_headers_are_text_and_none_is_absent():
    assert make({"headers": {"X-A": 1, "X-B": None, "X-C": True}}).headers == {
        "x-a": "1",
        "x-c": "true",
    }


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_unsafe_methods_carry_the_idempotency_key(method):
    assert make({"method": method}).headers["idempotency-key"] == "key-1"
    own = make({"method": method, "headers": {"Idempotency-Key": "own"}})
    assert own.headers["idempotency-key"] == "own"


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (credential("bearer", token="t"), "authorization", "Bearer t"),
        (credential("oauth2", access_token="t"), "authorization", "Bearer t"),
        (credential("", token="t"), "authorization", "Bearer t"),
        (credential("api_key", key="s3c"), "x-api-key", "s3c"),
        (credential("api_key", value="s3c", header="X-Token"), "x-token", "s3c"),
        (credential("api-key", key="X-Own", value="k"), "x-own", "k"),
        (credential("custom", header="X-Own", value="k"), "x-own", "k"),
        (
            credential("basic", username="u", password="p"),
            "authorization",
            "Basic " + base64.b64encode(b"u:p").decode(),
        ),
    ],
)
def test_credentials_become_headers(auth, header, value):
    found = make({}, auth)
    assert found.headers == {header: value}
    assert found.secret_headers == (header,)
    assert value not in repr(found)


def test_a_key_may_go_into_the_query_and_is_never_shown():
    auth = credential("api_key", value="s3cret", name="k", **{"in": "query"})
    found = make({"params": {"a": 1}}, auth)
    assert found.url.query == b"a=1&k=s3cret"
    assert found.shown_url(found.url) == URL + "?a=1"


def test_a_password_in_the_url_is_never_shown():
    found = prepare({"url": "http://u:s3cret@h/x"}, None, "")
    assert "s3cret" not in found.shown_url(found.url)


@pytest.mark.parametrize(
    ("config", "auth", "said", "kind"),
    [
        ({"url": ""}, None, "needs `url`", "client_error"),
        ({"url": "file:///etc/passwd"}, None, "http:// or https://", "client_error"),
        ({"url": "ftp://h/x"}, None, "http:// or https://", "client_error"),
        ({"url": "/only/a/path"}, None, "http:// or https://", "client_error"),
        ({"url": "http://h:port/"}, None, "cannot be read", "client_error"),
        ({"headers": [1]}, None, "headers", "client_error"),
        ({"params": [1]}, None, "params", "client_error"),
        ({}, credential("postgres", db_host="h"), "cannot authorize", "auth"),
        ({}, credential("api_key", header="X"), "has no key", "auth"),
    ],
)
def test_what_cannot_be_sent_is_said_clearly(config, auth, said, kind):
    with pytest.raises(ToolError, match=said) as caught:
        make(config, auth)
    assert caught.value.kind == kind


def test_the_header_of_the_idempotency_key_can_be_named_or_left_out():
    named = make({"method": "POST", "idempotency_header": "X-Request-Id"}).headers
    assert named["X-Request-Id"] == "key-1"
    assert "idempotency-key" not in named
    assert "idempotency-key" not in make({"method": "POST", "idempotency_header": False}).headers
    with pytest.raises(ToolError, match="idempotency_header"):
        make({"method": "POST", "idempotency_header": "no such name"})
