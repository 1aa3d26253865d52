"""What is no HTTP, or too much of it, is refused in any pieces, and the answer arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Limits

from .bench import HEADERS, INITIALIZE, PING, Bench, chunked, peer_loses_interest, post

# Refusals


@pytest.mark.parametrize("size", [1, 100, None])
def test_a_refused_request_gets_its_answer_whatever_it_still_sends(size: int | None) -> None:
    bench = Bench(limits=Limits(max_message_bytes=1000))
    bench.feed(post(b"x" * 5000)[:-10], size)
    answer = bench.answer()
    assert (answer.status, answer.reason) == (413, "message_too_large")
    bench.feed(b"x" * 1_000_000, 65536)
    assert not bench.closed
    peer_loses_interest(bench)
    assert bench.closed
    assert len(bench.answers()) == 1


def test_a_refused_request_whose_body_is_garbage_still_gets_its_answer(bench: Bench) -> None:
    request = chunked(PING).replace(b"/mcp", b"/nope").replace(b"\r\n7\r\n", b"\r\nzz\r\n", 1)
    bench.feed(request)
    assert bench.answer().status == 404
    assert bench.answer().headers[b"connection"] == b"close"
    bench.feed(b"more")
    assert not bench.closed
    bench.wait(2)
    assert bench.closed


def test_a_refusal_of_a_complete_request_keeps_the_connection(bench: Bench) -> None:
    bench.feed(post(PING, path=b"/nope"))
    assert bench.answer().status == 404
    assert b"connection" not in bench.answer().headers
    bench.feed(post(INITIALIZE))
    assert [answer.status for answer in bench.answers()] == [404, 200]


def test_the_body_of_a_refusal_is_not_sent_to_head(bench: Bench) -> None:
    bench.feed(b"HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = bench.answer("HEAD")
    assert (answer.status, answer.body) == (405, b"")
    assert int(answer.headers[b"content-length"]) > 0
    bench.feed(post(INITIALIZE))
    assert [a.status for a in bench.answers("HEAD", "POST")] == [405, 200]


# Hostile bytes


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n",
        b"GET /mcp\r\n\r\n",
        b"GET /mcp HTTP/2.0\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\n\r\n",  # no Host
        b"GET /mcp HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET /m cp HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: +1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: 1_0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n"
        + HEADERS
        + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: gzip\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked, identity\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n-1\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n1\r\nabXX",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: " + b"1" * 19 + b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n"
        + HEADERS
        + b"transfer-encoding: chunked\r\n\r\n1;"
        + b"x" * 300_000,
    ],
)
@pytest.mark.parametrize("size", [1, 4096, None])
def test_what_is_no_http_is_refused_and_the_connection_closed(
    data: bytes, size: int | None
) -> None:
    if size == 1 and len(data) > 100_000:
        return  # the same bytes in 300,000 pieces say nothing new
    bench = Bench().feed(data, size)
    if bench.sent:
        answer = bench.answer()
        assert answer.status in (400, 431, 501, 505)
        assert answer.reason in ("malformed_http", "head_too_large")
        assert answer.headers[b"connection"] == b"close"
    bench.wait(100)
    assert bench.closed
    assert bench.sent or len(data) < 40  # only an incomplete head goes without an answer


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
    """Row B0 of the review: one such request ended trio and blocking servers."""
    bench = Bench().feed(b"POST " + target + b" HTTP/1.1\r\n" + HEADERS + b"\r\n", size)
    assert bench.answer().status in (400, 403)
    assert bench.answer().reason in ("malformed_http", "host_not_allowed")
    peer_loses_interest(bench)
    assert bench.closed


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
    """Row B11 of the review: a bare LF waited for the time limit, and trailers were not read."""
    head = b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n"
    bench = Bench().feed(head + body, size)
    assert (bench.answer().status, bench.answer().reason) == (400, "malformed_http")


@pytest.mark.requirement("HEADERS-S-019")
@pytest.mark.parametrize("size", [1, 4096, 65536, None])
def test_heads_are_bounded_in_any_pieces(size: int | None) -> None:
    limits = Limits(max_head_bytes=1000)
    start = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: "
    end = b"\r\n\r\n"
    fits = start + b"y" * (1000 - len(start) - len(end)) + end
    assert len(fits) == 1000
    bench = Bench(limits=limits).feed(fits, size)
    assert bench.answer("GET").status == 400
    bench = Bench(limits=limits).feed(fits.replace(b"yy", b"yyy", 1), size)
    answer = bench.answer("GET")
    assert (answer.status, answer.reason) == (431, "head_too_large")
    bench = Bench(limits=limits).feed(post(INITIALIZE) + fits.replace(b"yy", b"yyy", 1), size)
    assert [answer.status for answer in bench.answers("POST", "GET")] == [200, 431]


def test_heads_that_come_with_the_body_before_are_bounded() -> None:
    bench = Bench(limits=Limits(max_head_bytes=1000))
    before = post(INITIALIZE)
    bench.feed(before[:-5]).feed(before[-5:] + b"GET /mcp HTTP/1.1\r\nx: " + b"y" * 1000)
    assert [answer.status for answer in bench.answers("POST", "GET")] == [200, 431]


def test_header_lines_are_bounded(bench: Bench) -> None:
    lines = b"".join(b"x-%d: y\r\n" % number for number in range(99))
    bench.feed(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n" + lines + b"\r\n")
    assert bench.answer("GET").status == 400
    bench = Bench()
    bench.feed(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: y\r\n" + lines + b"\r\n")
    answer = bench.answer("GET")
    assert (answer.status, answer.reason) == (431, "head_too_large")


# Damage at random


@given(data=st.binary(max_size=300), size=st.integers(1, 50))
def test_garbage_is_refused_or_waited_for(data: bytes, size: int) -> None:
    bench = Bench().feed(data, size)
    bench.wait(200)
    assert bench.closed
    assert bench.server.sessions == ()


def outcome(bench: Bench) -> tuple[int, bytes | str] | None:
    if not bench.sent:
        return None
    answer = bench.answers()[0]
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
    whole, pieces = Bench().feed(damaged), Bench().feed(damaged, size)
    whole.wait(200)
    pieces.wait(200)
    assert outcome(whole) == outcome(pieces)
    assert whole.closed
    assert pieces.closed
