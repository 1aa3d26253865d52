"""What is no HTTP, or too much of it, is refused in any pieces, and the answer arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Limits

from .harness import (
    HEADERS,
    INITIALIZE,
    MALFORMED,
    PING,
    ConnectionHarness,
    chunked,
    close_peer_sending,
    post,
)

# Refusals


@pytest.mark.parametrize("size", [1, 100, None])
def test_a_refused_request_gets_its_answer_whatever_it_still_sends(size: int | None) -> None:
    harness = ConnectionHarness(limits=Limits(max_message_bytes=1000))
    harness.feed(post(b"x" * 5000)[:-10], size)
    answer = harness.answer()
    assert (answer.status, answer.reason) == (413, "message_too_large")
    harness.feed(b"x" * 1_000_000, 65536)
    assert not harness.closed
    close_peer_sending(harness)
    assert harness.closed
    assert len(harness.answers()) == 1


def test_a_refused_request_whose_body_is_garbage_still_gets_its_answer(
    harness: ConnectionHarness,
) -> None:
    request = chunked(PING).replace(b"/mcp", b"/nope").replace(b"\r\n7\r\n", b"\r\nzz\r\n", 1)
    harness.feed(request)
    assert harness.answer().status == 404
    assert harness.answer().headers[b"connection"] == b"close"
    harness.feed(b"more")
    assert not harness.closed
    harness.wait(2)
    assert harness.closed


def test_a_refusal_of_a_complete_request_keeps_the_connection(harness: ConnectionHarness) -> None:
    harness.feed(post(PING, path=b"/nope"))
    assert harness.answer().status == 404
    assert b"connection" not in harness.answer().headers
    harness.feed(post(INITIALIZE))
    assert [answer.status for answer in harness.answers()] == [404, 200]


def test_the_body_of_a_refusal_is_not_sent_to_head(harness: ConnectionHarness) -> None:
    harness.feed(b"HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = harness.answer("HEAD")
    assert (answer.status, answer.body) == (405, b"")
    assert int(answer.headers[b"content-length"]) > 0
    harness.feed(post(INITIALIZE))
    assert [a.status for a in harness.answers("HEAD", "POST")] == [405, 200]


# Hostile bytes


@pytest.mark.parametrize("data", MALFORMED)
@pytest.mark.parametrize("size", [1, 4096, None])
def test_what_is_no_http_is_refused_and_the_connection_closed(
    data: bytes, size: int | None
) -> None:
    if size == 1 and len(data) > 100_000:
        return  # the same bytes in 300,000 pieces say nothing new
    harness = ConnectionHarness().feed(data, size)
    if harness.sent:
        answer = harness.answer()
        assert answer.status in (400, 431, 501, 505)
        assert answer.reason in ("malformed_http", "head_too_large")
        assert answer.headers[b"connection"] == b"close"
    harness.wait(100)
    assert harness.closed
    assert harness.sent or len(data) < 40  # only an incomplete head goes without an answer


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("rest", [b"", b"\n\n", b"\x03\x01\x02\x00\x01\x00\x01\xfc" + b"x" * 500])
def test_tls_at_a_plain_server_is_refused_at_once(rest: bytes, size: int | None) -> None:
    """It may bring no end of a head, and a client would wait until the time for it is over."""
    harness = ConnectionHarness().feed(b"\x16" + rest, size)
    answer = harness.answer()
    assert (answer.status, answer.reason) == (400, "malformed_http")
    assert b"write http:// instead of https://" in harness.sent
    close_peer_sending(harness)
    assert harness.closed


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    "target",
    [
        b"http://]",
        b"http://[",
        b"https://[::1",
        b"http://[v1.x/mcp",
        b"http://[localhost]/mcp",
        b"http://",
        b"http:///mcp",
        b"http:mcp",
    ],
)
def test_a_target_whose_host_is_malformed_is_refused(target: bytes, size: int | None) -> None:
    """One such request ended trio and blocking servers."""
    harness = ConnectionHarness().feed(
        b"POST " + target + b" HTTP/1.1\r\n" + HEADERS + b"\r\n", size
    )
    assert harness.answer().status in (400, 403)
    assert harness.answer().reason in ("malformed_http", "host_not_allowed")
    close_peer_sending(harness)
    assert harness.closed


@pytest.mark.parametrize(
    "body",
    [
        b"5\n",
        b"5;x\n",
        b"1\r\na\n",
        b"1\r\naX",
        b"0\n",
        b"0\r\n\n",
        b"0\r\nx\r\n",
        b"0\r\nx: y\n",
        b"0\r\n: y\r\n",
        b"0\r\nx : y\r\n",
        b"0\r\nx: a\0b\r\n",
        b"0\r\nx: a\rb\r\n",
        b"0\r\nx: y\r\n folded\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, None])
def test_chunks_that_are_not_as_they_should_be_are_refused_at_once(
    body: bytes, size: int | None
) -> None:
    """A bare LF waited for the time limit, and trailers were not read."""
    head = b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n"
    harness = ConnectionHarness().feed(head + body, size)
    assert (harness.answer().status, harness.answer().reason) == (400, "malformed_http")


@pytest.mark.requirement("HEADERS-S-019")
@pytest.mark.parametrize("size", [1, 4096, 65536, None])
def test_heads_are_bounded_in_any_pieces(size: int | None) -> None:
    limits = Limits(max_head_bytes=1000)
    start = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: "
    end = b"\r\n\r\n"
    fits = start + b"y" * (1000 - len(start) - len(end)) + end
    assert len(fits) == 1000
    harness = ConnectionHarness(limits=limits).feed(fits, size)
    assert harness.answer("GET").status == 400
    harness = ConnectionHarness(limits=limits).feed(fits.replace(b"yy", b"yyy", 1), size)
    answer = harness.answer("GET")
    assert (answer.status, answer.reason) == (431, "head_too_large")
    harness = ConnectionHarness(limits=limits).feed(
        post(INITIALIZE) + fits.replace(b"yy", b"yyy", 1), size
    )
    assert [answer.status for answer in harness.answers("POST", "GET")] == [200, 431]


def test_heads_that_come_with_the_body_before_are_bounded() -> None:
    harness = ConnectionHarness(limits=Limits(max_head_bytes=1000))
    before = post(INITIALIZE)
    harness.feed(before[:-5]).feed(before[-5:] + b"GET /mcp HTTP/1.1\r\nx: " + b"y" * 1000)
    assert [answer.status for answer in harness.answers("POST", "GET")] == [200]
    harness.feed(b"\r\n\r\n")
    assert [answer.status for answer in harness.answers("POST", "GET")] == [200, 431]


@pytest.mark.parametrize("size", [1, 999, None])
def test_a_head_without_an_end_is_bounded(size: int | None) -> None:
    """It is waited for, as browsers send the name of the page last, but not for long."""
    harness = ConnectionHarness(limits=Limits(max_head_bytes=1000))
    start = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: "
    harness.feed(start + b"y" * (2000 - len(start)), size)
    assert harness.sent == b""
    harness.feed(b"y")
    assert (harness.answer("GET").status, harness.answer("GET").reason) == (431, "head_too_large")


def test_header_lines_are_bounded(harness: ConnectionHarness) -> None:
    lines = b"".join(b"x-%d: y\r\n" % number for number in range(99))
    harness.feed(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n" + lines + b"\r\n")
    assert harness.answer("GET").status == 400
    harness = ConnectionHarness()
    harness.feed(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: y\r\n" + lines + b"\r\n")
    answer = harness.answer("GET")
    assert (answer.status, answer.reason) == (431, "head_too_large")


# Damage at random


@given(data=st.binary(max_size=300), size=st.integers(1, 50))
def test_garbage_is_refused_or_waited_for(data: bytes, size: int) -> None:
    harness = ConnectionHarness().feed(data, size)
    harness.wait(200)
    assert harness.closed
    assert harness.server.sessions == ()


def outcome(harness: ConnectionHarness) -> tuple[int, bytes | str] | None:
    if not harness.sent:
        return None
    answer = harness.answers()[0]
    return (answer.status, answer.body if answer.status == 200 else answer.reason)


@given(
    place=st.integers(0, 350),
    junk=st.sampled_from(
        [b"\0", b"\r", b"\n", b"\r\n", b" ", b":", b"\xff", b"0\r\n\r\n", b"GET "]
    ),
    size=st.integers(1, 400),
)
def test_damaged_requests_do_not_depend_on_pieces(place: int, junk: bytes, size: int) -> None:
    request = post(INITIALIZE)
    damaged = request[:place] + junk + request[place:]
    whole, pieces = ConnectionHarness().feed(damaged), ConnectionHarness().feed(damaged, size)
    whole.wait(200)
    pieces.wait(200)
    assert outcome(whole) == outcome(pieces)
    assert whole.closed
    assert pieces.closed
