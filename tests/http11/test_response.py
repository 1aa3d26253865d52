"""What a response looks like on the wire."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, RequestHead, ResponseHead
from sansmcp.http11.response_writer import ResponseWriter

SHORT = ResponseHead(status=200, headers=((b"content-length", b"2"),))
LONG = ResponseHead(status=200)


@pytest.fixture(autouse=True)
def http11() -> None:
    """Whoever has read the request."""


def answering(*options: bytes, method: bytes = b"POST", is_http_1_1: bool = True) -> ResponseWriter:
    headers = tuple((b"connection", option) for option in options)
    head = RequestHead(method=method, target=b"/", headers=headers)
    return ResponseWriter.for_request(head, is_http_1_1=is_http_1_1)


@pytest.mark.parametrize("value", [b"a\nb: c", b"a\rb", b"a\0b"])
def test_no_header_can_be_forged(value: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        answering().head(ResponseHead(status=200, headers=((b"x", value),)), is_last=False)


def test_a_body_of_known_length() -> None:
    writer = answering()
    assert writer.head(SHORT, is_last=False) == b"HTTP/1.1 200 \r\ncontent-length: 2\r\n\r\n"
    assert writer.body(b"ab") + writer.end() == b"ab"
    assert writer.keeps_alive


def test_a_body_of_unknown_length_comes_in_chunks() -> None:
    writer = answering()
    head = writer.head(LONG, is_last=False)
    assert head == b"HTTP/1.1 200 \r\ntransfer-encoding: chunked\r\n\r\n"
    assert writer.body(b"ab") == b"2\r\nab\r\n"
    assert writer.body(b"") == b"", "an empty piece would end it"
    assert writer.end() == b"0\r\n\r\n"


def test_to_http_1_0_it_ends_with_the_connection() -> None:
    writer = answering(is_http_1_1=False)
    assert writer.head(LONG, is_last=False) == b"HTTP/1.1 200 \r\nconnection: close\r\n\r\n"
    assert writer.body(b"ab") + writer.end() == b"ab"
    assert not writer.keeps_alive


def test_no_body_for_a_head() -> None:
    writer = answering(method=b"HEAD")
    assert b"content-length: 2" in writer.head(SHORT, is_last=False)
    assert writer.body(b"ab") + writer.end() == b""


def test_no_chunk_ends_the_response_to_a_head() -> None:
    writer = answering(method=b"HEAD")
    assert b"transfer-encoding: chunked" in writer.head(LONG, is_last=False)
    assert writer.body(b"ab") + writer.end() == b""


@pytest.mark.parametrize(
    ("options", "keeps_alive"),
    [
        ((), True),
        ((b"keep-alive",), True),
        ((b"Upgrade, HTTP2-Settings",), True),
        ((b"disclose",), True),
        ((b"close",), False),
        ((b"keep-alive, Close",), False),
        ((b"upgrade", b" close "), False),
    ],
)
def test_the_request_says_whether_another_one_follows(
    options: tuple[bytes, ...], keeps_alive: bool
) -> None:
    writer = answering(*options)
    assert (b"connection: close" in writer.head(SHORT, is_last=False)) is not keeps_alive
    assert writer.keeps_alive is keeps_alive


def test_the_server_wants_no_other_request() -> None:
    writer = answering()
    assert writer.head(SHORT, is_last=True).count(b"connection: close") == 1
    assert not writer.keeps_alive
