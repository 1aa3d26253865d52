"""What is particular to httptools, and to our way of using it."""

from __future__ import annotations

import pytest

from sansmcp import RemoteProtocolError
from sansmcp.http11_parser import Http11Parser

HTTP11: Http11Parser = pytest.importorskip("sansmcp.httptools_parser").HTTP11


@pytest.fixture(autouse=True)
def http11() -> None:
    """No other implementation."""


HEAD = b"POST /mcp HTTP/1.1\r\nHost: h\r\n%s\r\n"


def test_names_are_in_lower_case_and_values_without_spaces_around() -> None:
    head, _ = HTTP11.read_request_head(HEAD % b"X-Y:  a b \t\r\nZ:\r\n")
    assert head.headers == ((b"host", b"h"), (b"x-y", b"a b"), (b"z", b""))


def test_an_upgrade_is_a_request_like_others() -> None:
    more = b"connection: upgrade\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n"
    head, is_http_1_1 = HTTP11.read_request_head(HEAD % more)
    assert (head.method, head.target, is_http_1_1) == (b"POST", b"/mcp", True)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/2.0\r\nhost: h\r\n\r\n", 505),
        (b"BREW / HTTP/1.1\r\nhost: h\r\n\r\n", 400),
        (b"POST / HTTP/1.1\nhost: h\n\n", 400),
    ],
)
def test_what_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        HTTP11.read_request_head(head)
    assert (caught.value.http_status, caught.value.reason) == (status, "malformed_http")


@pytest.mark.parametrize("data", [b"", b"\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n"])
def test_what_is_no_head_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a request head"):
        HTTP11.read_request_head(data)
