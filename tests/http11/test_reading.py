"""Where messages end, and what their bodies are, whoever reads the heads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import RemoteProtocolError
from sansmcp.http import BodyData, BodyEnd, RequestHead, RequestPart, ResponseHead, ResponsePart
from sansmcp.http11.message_parser import RequestParser, ResponseParser

from . import harness

CHUNKED = b"200 OK\r\ntransfer-encoding: Chunked"


def reader() -> ResponseParser:
    return ResponseParser(harness.HTTP11.read_response_head, 1000)


def parts(
    reader: RequestParser | ResponseParser, data: bytes, size: int = 10**6
) -> list[RequestPart | ResponsePart]:
    """What a reader makes of bytes in pieces, the pieces of a body joined."""
    found: list[RequestPart | ResponsePart] = []
    for start in range(0, len(data), size):
        reader.receive(data[start : start + size])
        while (part := reader.next_part()) is not None:
            if isinstance(part, BodyData) and isinstance(found[-1], BodyData):
                part = BodyData(found.pop().data + part.data)  # type: ignore[union-attr]
            found.append(part)
    return found


def response(status: bytes, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\n\r\n" + body


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize(
    ("data", "body"),
    [
        (response(b"204 "), b""),
        (response(b"204 \r\ncontent-length: 5"), b""),
        (response(b"202 \r\ncontent-length: 0"), b""),
        (response(b"200 OK\r\ncontent-length: 2", b"ab"), b"ab"),
        (response(CHUNKED, b"0\r\n\r\n"), b""),
        (
            response(CHUNKED, b"3\r\nabc\r\n0A ;x=y\r\n\r\n\n456\r\n\r\n\r\n00\r\n\r\n"),
            b"abc\r\n\n456\r\n\r\n",
        ),
        (response(CHUNKED, b"1\r\na\r\n0\r\nx: y\r\nz: \r\n\r\n"), b"a"),
        (response(b"103 Hints\r\nlink: x") + response(b"200 OK\r\ncontent-length: 1", b"a"), b"a"),
    ],
)
def test_a_response_after_which_another_may_come(data: bytes, body: bytes, size: int) -> None:
    read = reader()
    for _ in range(2):
        head, *pieces, end = parts(read, data, size)
        assert isinstance(head, ResponseHead)
        assert (pieces, end) == ([BodyData(body)] if body else [], BodyEnd())
        assert read.is_ready


@pytest.mark.parametrize(
    "data",
    [
        response(b"202 \r\nconnection: close\r\ncontent-length: 0"),
        response(b"202 \r\nconnection: x, Close\r\ncontent-length: 0"),
        b"HTTP/1.0 202 \r\ncontent-length: 0\r\n\r\n",
        response(b"202 \r\ncontent-length: 0", b"more"),
        response(CHUNKED, b"0\r\n\r\n\n"),
    ],
)
def test_a_response_that_is_the_last(data: bytes) -> None:
    read = reader()
    assert len(parts(read, data)) == 2
    assert not read.is_ready


def test_a_body_that_ends_with_the_connection() -> None:
    read = reader()
    assert parts(read, response(b"200 OK", b"ab"), 3)[1:] == [BodyData(b"ab")]
    read.receive(b"")
    assert read.next_part() == BodyEnd()
    assert not read.is_ready


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        response(b"200 OK\r\nno header"),
        response(b"101 Switching\r\nconnection: upgrade\r\nupgrade: x"),
        b"HTTP/1.0 100 Continue\r\n\r\n",
        response(b"200 OK\r\ncontent-length: x"),
        response(b"200 OK\r\ncontent-length: 1\r\ncontent-length: 2", b"ab"),
        response(b"200 OK\r\ntransfer-encoding: gzip"),
        response(CHUNKED + b"\r\ntransfer-encoding: chunked"),
        response(CHUNKED + b"\r\ncontent-length: 5", b"0\r\n\r\n"),
        response(CHUNKED, b"\r\n"),
        response(CHUNKED, b"x\r\n"),
        response(CHUNKED, b"-1\r\n"),
        response(CHUNKED, b"1" * 17 + b"\r\n"),
        response(CHUNKED, b"1\r\nab\r\n"),
        response(CHUNKED, b"1\r\na\n\r\n"),
        response(CHUNKED, b"1;" + b"x" * 1000),
        response(CHUNKED, b"0\r\nx: " + b"y" * 1000),
        response(b"200 OK\r\nx: " + b"y" * 1000),
    ],
)
def test_what_is_no_response(data: bytes, size: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parts(reader(), data, size)
    assert caught.value.reason in ("malformed_http", "head_too_large")


@given(st.lists(st.binary(min_size=1), max_size=5), st.integers(1, 50))
def test_a_body_in_chunks_in_any_pieces(chunks: list[bytes], size: int) -> None:
    coded = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    read = reader()
    _, *pieces = parts(read, response(CHUNKED, coded + b"0\r\n\r\n"), size)
    body = b"".join(chunks)
    assert pieces == ([BodyData(body)] if body else []) + [BodyEnd()]
    assert read.is_ready


# Requests


IN_CHUNKS = b"POST /mcp HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"


def request_reader(limit: int) -> RequestParser:
    return RequestParser(harness.HTTP11.read_request_head, limit)


@pytest.mark.parametrize("size", [1, 1000])
def test_what_follows_a_request_waits(size: int) -> None:
    read = request_reader(1000)
    data = IN_CHUNKS + b"1\r\na\r\n0\r\nx: y\r\n\r\n"
    head, *others = parts(read, data, size)
    assert isinstance(head, RequestHead)
    assert (others, read.waiting) == ([BodyData(b"a"), BodyEnd()], 0)
    read.receive(b"GET ")
    assert (read.next_part(), read.waiting) == (None, 4)


@pytest.mark.parametrize("start", [b"1;", b"0\r\nx: ", b"0\r\n"])
@pytest.mark.parametrize("unit", [b"x", b"x: y\r\n"])
@pytest.mark.parametrize("size", [1, 1000])
def test_chunks_that_carry_nothing_are_bounded(start: bytes, unit: bytes, size: int) -> None:
    read = request_reader(200)
    with pytest.raises(RemoteProtocolError):
        parts(read, IN_CHUNKS + start + unit * 1000, size)
