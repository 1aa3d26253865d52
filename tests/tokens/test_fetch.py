"""The requests to an authorization server, and what may come back."""

from __future__ import annotations

import base64
from urllib.parse import parse_qs, unquote_plus

import pytest

from sansmcp import LocalProtocolError
from sansmcp.tokens.claims import Undecided
from sansmcp.tokens.fetch import (
    INTROSPECTION,
    JWKS,
    FetchedResponse,
    FetchRequest,
    endpoint_in,
)

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n" + b'{"a":1}'


def response(data: bytes, size: int = 65536) -> FetchedResponse:
    """A response that has arrived in pieces."""
    found = FetchedResponse()
    for start in range(0, len(data), size):
        found.receive_data(data[start : start + size])
    if not found.is_complete:
        found.receive_data(b"")
    return found


def test_a_get() -> None:
    head, _, body = FetchRequest.get("https://h:8443/a?b").encode().partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"GET /a?b HTTP/1.1",
        b"host: h:8443",
        b"connection: close",
        b"accept: application/json",
    ]
    assert body == b""


def test_a_question_about_a_token() -> None:
    request = FetchRequest.introspect("https://h/a", "t&o=k", "c:id", "s/\u00e4")
    assert "t&o" not in repr(request)
    head, _, body = request.encode().partition(b"\r\n\r\n")
    fields = dict(line.split(b": ") for line in head.split(b"\r\n")[1:])
    assert head.startswith(b"POST /a HTTP/1.1\r\n")
    assert parse_qs(body.decode()) == {"token": ["t&o=k"], "token_type_hint": ["access_token"]}
    assert fields[b"content-length"] == str(len(body)).encode()
    assert fields[b"content-type"] == b"application/x-www-form-urlencoded"
    scheme, _, pair = fields[b"authorization"].partition(b" ")
    client_id, secret = base64.b64decode(pair).decode().split(":")
    assert (scheme, unquote_plus(client_id), unquote_plus(secret)) == (b"Basic", "c:id", "s/\u00e4")


@pytest.mark.parametrize("url", ["http://h/a", "ftp://h/a", "https://u:p@h/", "a", "https://h/#a"])
def test_where_nothing_is_sent(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        FetchRequest.get(url)


@pytest.mark.parametrize("size", [1, 7, 65536])
@pytest.mark.parametrize(
    "data",
    [
        OK,
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\n" + OK[-7:] + b"\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n" + OK[-7:],
    ],
)
def test_a_document(data: bytes, size: int) -> None:
    found = response(data, size)
    assert (found.document(), found.is_missing) == ({"a": 1}, False)


def test_a_byte_order_mark_is_skipped() -> None:
    found = response(b'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n\xef\xbb\xbf{"a":1}')
    assert found.document() == {"a": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        OK[:-1],
        OK[:20],
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 70000\r\n\r\n" + b"a" * 70_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n1",
    ],
)
def test_a_response_that_is_none(data: bytes) -> None:
    with pytest.raises(Undecided):
        response(data)


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (b"500 Error", b"{}"),
        (b"302 Found", b"{}"),
        (b"404 Not Found", b"{}"),
        (b"201 Created", b"{}"),
        (b"200 OK", b"[]"),
        (b"200 OK", b"<html>"),
        (b"200 OK", b"[" * 1000),
    ],
)
def test_a_response_that_is_no_document(line: bytes, body: bytes) -> None:
    found = response(b"HTTP/1.1 " + line + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert found.is_missing == (line[:1] in b"34")
    with pytest.raises(Undecided):
        found.document()


def test_the_endpoints_in_metadata() -> None:
    metadata = {"issuer": "https://a", JWKS: "https://a/keys", INTROSPECTION: 1}
    assert endpoint_in(metadata, "https://a", JWKS) == "https://a/keys"
    for issuer, name in (("https://a/", JWKS), ("https://a", INTROSPECTION), ("https://a", "x")):
        with pytest.raises(Undecided):
            endpoint_in(metadata, issuer, name)
