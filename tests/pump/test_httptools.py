"""What is particular to httptools, and to our way of using it."""

from __future__ import annotations

import pytest

from sansmcp import RemoteProtocolError, httptools_pump
from sansmcp.http import BodyData, BodyEnd, RequestHead
from sansmcp.limits import Limits
from sansmcp.wire import ServerWire


@pytest.fixture(autouse=True)
def http11() -> None:
    """No other implementation."""


HEAD = b"POST /mcp HTTP/1.1\r\nHost: h\r\n%s\r\n"
IN_CHUNKS = HEAD % b"transfer-encoding: chunked\r\n"


def server(data: bytes, **limits: int) -> ServerWire:
    wire = httptools_pump.HTTP11.server(Limits(**limits))
    wire.receive(data)
    return wire


def parts(wire: ServerWire) -> list[object]:
    found: list[object] = []
    while (part := wire.next_part()) is not None:
        found.append(part)
    return found


def test_names_are_in_lower_case_and_values_without_spaces_around() -> None:
    (head, _) = parts(server(HEAD % b"X-Y:  a b \t\r\nZ:\r\n"))
    assert isinstance(head, RequestHead)
    assert head.headers == ((b"host", b"h"), (b"x-y", b"a b"), (b"z", b""))


def test_trailers_mean_nothing() -> None:
    wire = server(IN_CHUNKS + b"1\r\na\r\n0\r\nx: y\r\n\r\nGET ")
    assert parts(wire)[1:] == [BodyData(b"a"), BodyEnd()]
    assert wire.next_request() == b"GET "


@pytest.mark.parametrize("start", [b"1;", b"0\r\nx: ", b"0\r\n"])
@pytest.mark.parametrize("unit", [b"x", b"x: y\r\n"])
@pytest.mark.parametrize("size", [1, 1000])
def test_chunks_that_carry_nothing_are_bounded(start: bytes, unit: bytes, size: int) -> None:
    wire = server(IN_CHUNKS, max_head_bytes=200)
    data = start + unit * 1000
    with pytest.raises(RemoteProtocolError):
        for at in range(0, len(data), size):
            wire.receive(data[at : at + size])
            parts(wire)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/2.0\r\nhost: h\r\n\r\n", 505),
        (b"BREW / HTTP/1.1\r\nhost: h\r\n\r\n", 400),
        (b"POST / HTTP/1.1\nhost: h\n\n", 400),
        (
            HEAD % b"connection: upgrade\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n",
            400,
        ),
    ],
)
def test_what_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parts(server(head))
    assert (caught.value.http_status, caught.value.reason) == (status, "malformed_http")
