"""HTTP/1.1 from raw bytes: requests in any pieces and in order, connections used again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sansmcp import Idle

from .bench import CALL, INITIALIZE, PING, Bench, chunked, post

requirement = pytest.mark.requirement


@pytest.mark.parametrize("size", [1, 2, 7, 64, None])
@pytest.mark.parametrize("form", [post, chunked])
def test_requests_in_any_pieces(
    bench: Bench, size: int | None, form: Callable[[bytes, bytes], bytes]
) -> None:
    session = bench.session()
    bench.feed(form(PING, session), size)
    answer = bench.answer()
    assert (answer.status, answer.json["id"]) == (200, 7)
    assert answer.headers[b"content-length"] == b"%d" % len(answer.body)
    assert not bench.closed


@requirement("HEADERS-B-009")
@pytest.mark.parametrize("spelled", [bytes.lower, bytes.title, bytes.upper])
def test_names_of_headers_have_no_case(bench: Bench, spelled: Callable[[bytes], bytes]) -> None:
    body = (
        b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"x","_meta":'
        b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
    )
    headers = {
        b"host": b"localhost",
        b"accept": b"application/json, text/event-stream",
        b"content-type": b"application/json",
        b"content-length": b"%d" % len(body),
        b"mcp-protocol-version": b"2026-07-28",
        b"mcp-method": b"tools/call",
        b"mcp-name": b"x",
    }
    lines = b"".join(spelled(name) + b": %s\r\n" % value for name, value in headers.items())
    bench.feed(b"POST /mcp HTTP/1.1\r\n" + lines + b"\r\n" + body)
    assert bench.sent == b""
    (call,) = bench.calls
    assert call.request.id == 8


def test_a_connection_is_used_again(bench: Bench) -> None:
    session = bench.session()
    for _ in range(5):
        bench.feed(post(PING, session))
    assert [answer.status for answer in bench.answers()] == [200] * 5
    first = bench.connection.exchange
    bench.feed(post(PING, session))
    assert bench.connection.exchange is not first


@pytest.mark.parametrize("size", [1, 50, None])
def test_pipelined_requests_are_answered_in_order(bench: Bench, size: int | None) -> None:
    session = bench.session()
    bench.feed(post(CALL, session) + post(PING, session) + post(b"{", session), size)
    assert bench.sent == b""
    (call,) = bench.calls
    call.respond({}, now=0)
    bench.settle()
    answers = bench.answers()
    assert [answer.json.get("id") for answer in answers] == [8, 7, None]
    assert [answer.status for answer in answers] == [200, 200, 400]


def test_pipelining_is_bounded(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    assert bench.idle is Idle.NEED_DATA
    many = post(PING, session) * 500
    fed = 0
    while bench.idle is Idle.NEED_DATA:
        bench.feed(many[fed : fed + 5000])
        fed += 5000
    assert fed < 80_000
    bench.calls[0].respond({}, now=0)
    bench.settle()
    assert bench.idle is Idle.NEED_DATA
    assert len(bench.answers()) > 100


def test_event_streams_come_in_chunks(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    (call,) = bench.calls
    call.notify("x", now=0)
    bench.settle()
    assert b"transfer-encoding: chunked" in bench.sent.lower()
    assert b"HTTP/1.1 200" in bench.sent
    bench.wait(20)
    call.respond({}, now=bench.now)
    bench.settle()
    assert bench.sent.endswith(b"0\r\n\r\n")
    (answer,) = bench.answers()
    assert answer.body.count(b"event: message") == 2
    assert b":\n\n" in answer.body
    bench.sent = b""
    bench.feed(post(PING, session))
    assert bench.answer().json["id"] == 7


# Versions and forms of HTTP


def test_http_1_0_and_close(bench: Bench) -> None:
    bench.feed(post(INITIALIZE).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert bench.answer().status == 200
    assert bench.closed
    bench = Bench()
    bench.feed(post(INITIALIZE, b"connection: close\r\n"))
    assert bench.answer().status == 200
    assert bench.closed
    bench.feed(b"more")
    assert bench.idle is Idle.NEED_DATA


def test_an_event_stream_over_http_1_0(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session).replace(b"HTTP/1.1", b"HTTP/1.0"))
    bench.calls[0].notify("x", now=0)
    bench.calls[0].respond({}, now=0)
    bench.settle()
    assert bench.closed
    assert bench.answer().body.count(b"event: message") == 2


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://localhost/mcp", b"evil.example", 400),
        (b"http://localhost:1/mcp?x", b"localhost", 400),
        (b"http://evil.example/mcp", b"localhost", 403),
        (b"http://localhost", b"localhost", 404),
        (b"ftp://localhost/mcp", b"localhost", 404),
        (b"*", b"localhost", 404),
    ],
)
def test_absolute_targets(bench: Bench, target: bytes, host: bytes, status: int) -> None:
    bench.feed(b"GET " + target + b" HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
    assert bench.answer("GET").status == status


def test_a_target_that_is_neither_path_nor_url(bench: Bench) -> None:
    bench.feed(b"GET localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert bench.answer("GET").status in (400, 404)


def test_an_upgrade_is_not_taken(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(PING, session + b"connection: upgrade\r\nupgrade: websocket\r\n"))
    assert bench.answer().json["id"] == 7
    bench.feed(post(PING, session))
    assert len(bench.answers()) == 2


# Expect: 100-continue


def test_a_client_that_waits_for_100_continue(bench: Bench) -> None:
    session = bench.session()
    request = post(PING, session + b"expect: 100-continue\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    bench.feed(head + b"\r\n\r\n")
    assert bench.sent.startswith(b"HTTP/1.1 100 ")
    assert bench.sent.count(b"HTTP/1.1") == 1
    bench.feed(body)
    assert bench.answer().json["id"] == 7
    assert not bench.closed


def test_a_client_that_waits_is_refused_without_its_body(bench: Bench) -> None:
    request = post(PING, b"expect: 100-continue\r\n", path=b"/nope")
    bench.feed(request.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    answer = bench.answer()
    assert (answer.status, answer.headers[b"connection"]) == (404, b"close")
    assert not bench.closed
    bench.wait(2)
    assert bench.closed
    assert bench.sent.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("lines", [b"\r\n", b"\r\n" * 3])
def test_empty_lines_before_a_request_are_ignored(lines: bytes, size: int | None) -> None:
    """Row B11 of the review; RFC 9112 section 2.2. They do not begin a request either."""
    bench = Bench().feed(lines + post(INITIALIZE) + lines + post(INITIALIZE) + lines, size)
    assert [answer.status for answer in bench.answers()] == [200, 200]
    keep_alive_timeout = bench.server.limits.keep_alive_timeout
    assert bench.connection.next_deadline() == keep_alive_timeout
    bench.feed(b"\r")
    bench.wait(1)
    bench.feed(b"\n" + post(INITIALIZE))
    assert [answer.status for answer in bench.answers()] == [200, 200, 200]
