"""HTTP/1.1 from raw bytes: requests in any pieces and in order, connections used again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sansmcp import Idle, Server

from .harness import (
    CALL,
    INITIALIZE,
    PING,
    ConnectionHarness,
    chunked,
    close_peer_sending,
    post,
)

requirement = pytest.mark.requirement


@pytest.mark.parametrize("size", [1, 2, 7, 64, None])
@pytest.mark.parametrize("form", [post, chunked])
def test_requests_in_any_pieces(
    harness: ConnectionHarness, size: int | None, form: Callable[[bytes, bytes], bytes]
) -> None:
    session = harness.session()
    harness.feed(form(PING, session), size)
    answer = harness.answer()
    assert (answer.status, answer.json["id"]) == (200, 7)
    assert answer.headers[b"content-length"] == b"%d" % len(answer.body)
    assert not harness.closed


@requirement("HEADERS-B-009")
@pytest.mark.parametrize("spelled", [bytes.lower, bytes.title, bytes.upper])
def test_names_of_headers_have_no_case(
    harness: ConnectionHarness, spelled: Callable[[bytes], bytes]
) -> None:
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
    harness.feed(b"POST /mcp HTTP/1.1\r\n" + lines + b"\r\n" + body)
    assert harness.sent == b""
    (call,) = harness.calls
    assert call.request.id == 8


def test_a_connection_is_used_again(harness: ConnectionHarness) -> None:
    session = harness.session()
    for _ in range(5):
        harness.feed(post(PING, session))
    assert [answer.status for answer in harness.answers()] == [200] * 5
    first = harness.connection.exchange
    harness.feed(post(PING, session))
    assert harness.connection.exchange is not first


@pytest.mark.parametrize("size", [1, 50, None])
def test_pipelined_requests_are_answered_in_order(
    harness: ConnectionHarness, size: int | None
) -> None:
    session = harness.session()
    harness.feed(post(CALL, session) + post(PING, session) + post(b"{", session), size)
    assert harness.sent == b""
    (call,) = harness.calls
    call.respond({}, now=0)
    harness.run_pending()
    answers = harness.answers()
    assert [answer.json.get("id") for answer in answers] == [8, 7, None]
    assert [answer.status for answer in answers] == [200, 200, 400]


def test_pipelining_is_bounded(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(CALL, session))
    assert harness.idle is Idle.NEED_DATA
    many = post(PING, session) * 500
    fed = 0
    while harness.idle is Idle.NEED_DATA:
        harness.feed(many[fed : fed + 5000])
        fed += 5000
    assert fed < 80_000
    harness.calls[0].respond({}, now=0)
    harness.run_pending()
    harness.take_turns()
    assert harness.idle is Idle.NEED_DATA
    assert len(harness.answers()) > 100


GET = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""A request that is refused: it names no session."""


def test_pipelined_requests_are_handled_a_few_at_a_turn(harness: ConnectionHarness) -> None:
    """Other connections wait meanwhile: a read of 256 KiB can bring ten thousand requests."""
    session = harness.session()
    pinged = post(PING, session) * 90
    harness.connection.receive_data(pinged, now=harness.now)
    turns: list[int] = []
    while True:
        before = len(harness.sent)
        harness.run_pending()
        turns.append(harness.sent[before:].count(b"HTTP/1.1 200"))
        if harness.connection.next_deadline() != harness.now:
            break
        assert harness.idle is Idle.PAUSED
        harness.connection.handle_timeout(now=harness.now)
    assert harness.idle is Idle.NEED_DATA
    assert turns == [16, 16, 16, 16, 16, 10]


def test_a_request_that_comes_while_others_wait_for_their_turn_is_the_last(
    harness: ConnectionHarness,
) -> None:
    session = harness.session()
    harness.connection.receive_data(post(PING, session) * 20, now=harness.now)
    harness.run_pending()
    harness.feed(post(b"{", session))
    assert [answer.status for answer in harness.answers()] == [200] * 20 + [400]


def test_a_connection_whose_requests_wait_for_their_turn_can_be_lost(
    harness: ConnectionHarness,
) -> None:
    session = harness.session()
    harness.connection.receive_data(post(PING, session) * 20, now=harness.now)
    harness.run_pending()
    close_peer_sending(harness)
    assert harness.closed
    assert harness.connection.next_deadline() is None


def test_a_connection_is_closed_after_many_refusals_in_a_row(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(GET * 99)
    harness.feed(post(PING, session))
    harness.feed(GET * 99)
    assert not harness.closed
    harness.feed(GET * 10_000)
    answers = harness.answers(*["GET"] * 99, "POST", *["GET"] * 10_000)
    assert [answer.status for answer in answers].count(400) == 199
    assert answers[-1].headers[b"connection"] == b"close"
    harness.wait(2)
    assert harness.closed


def test_event_streams_come_in_chunks(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(CALL, session))
    (call,) = harness.calls
    call.notify("x", now=0)
    harness.run_pending()
    assert b"transfer-encoding: chunked" in harness.sent.lower()
    assert b"HTTP/1.1 200" in harness.sent
    harness.wait(20)
    call.respond({}, now=harness.now)
    harness.run_pending()
    assert harness.sent.endswith(b"0\r\n\r\n")
    (answer,) = harness.answers()
    assert answer.body.count(b"event: message") == 2
    assert b":\n\n" in answer.body
    harness.sent = b""
    harness.feed(post(PING, session))
    assert harness.answer().json["id"] == 7


# Versions and forms of HTTP


def test_http_1_0_and_close(harness: ConnectionHarness) -> None:
    harness.feed(post(INITIALIZE).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert harness.answer().status == 200
    assert harness.closed
    harness = ConnectionHarness()
    harness.feed(post(INITIALIZE, b"connection: close\r\n"))
    assert harness.answer().status == 200
    assert harness.closed
    harness.feed(b"more")
    assert harness.idle is Idle.NEED_DATA


@pytest.mark.parametrize(("leave", "status"), [(Server.enter_lame_duck, 200), (Server.drain, 503)])
def test_a_server_that_is_about_to_stop_closes_each_connection_with_its_next_response(
    harness: ConnectionHarness, leave: Callable[..., None], status: int
) -> None:
    session = harness.session()
    leave(harness.server, now=0)
    assert not harness.closed
    harness.feed(post(PING, session))
    assert b"connection: close" in harness.sent.lower()
    assert harness.answer().status == status
    assert harness.closed


def test_an_event_stream_over_http_1_0(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(CALL, session).replace(b"HTTP/1.1", b"HTTP/1.0"))
    harness.calls[0].notify("x", now=0)
    harness.calls[0].respond({}, now=0)
    harness.run_pending()
    assert harness.closed
    assert harness.answer().body.count(b"event: message") == 2


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
def test_absolute_targets(
    harness: ConnectionHarness, target: bytes, host: bytes, status: int
) -> None:
    harness.feed(b"GET " + target + b" HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
    assert harness.answer("GET").status == status


def test_a_target_that_is_neither_path_nor_url(harness: ConnectionHarness) -> None:
    harness.feed(b"GET localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert harness.answer("GET").status in (400, 404)


def test_an_upgrade_is_not_taken(harness: ConnectionHarness) -> None:
    session = harness.session()
    harness.feed(post(PING, session + b"connection: upgrade\r\nupgrade: websocket\r\n"))
    assert harness.answer().json["id"] == 7
    harness.feed(post(PING, session))
    assert len(harness.answers()) == 2


# Expect: 100-continue


def test_a_client_that_waits_for_100_continue(harness: ConnectionHarness) -> None:
    session = harness.session()
    request = post(PING, session + b"expect: 100-continue\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    harness.feed(head + b"\r\n\r\n")
    assert harness.sent.startswith(b"HTTP/1.1 100 ")
    assert harness.sent.count(b"HTTP/1.1") == 1
    harness.feed(body)
    assert harness.answer().json["id"] == 7
    assert not harness.closed


def test_a_client_that_waits_is_refused_without_its_body(harness: ConnectionHarness) -> None:
    request = post(PING, b"expect: 100-continue\r\n", path=b"/nope")
    harness.feed(request.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    answer = harness.answer()
    assert (answer.status, answer.headers[b"connection"]) == (404, b"close")
    assert not harness.closed
    harness.wait(2)
    assert harness.closed
    assert harness.sent.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("lines", [b"\r\n", b"\r\n" * 3])
def test_empty_lines_before_a_request_are_ignored(lines: bytes, size: int | None) -> None:
    """RFC 9112 section 2.2. They do not begin a request either."""
    harness = ConnectionHarness().feed(
        lines + post(INITIALIZE) + lines + post(INITIALIZE) + lines, size
    )
    assert [answer.status for answer in harness.answers()] == [200, 200]
    keep_alive_timeout = harness.server.limits.keep_alive_timeout
    assert harness.connection.next_deadline() == keep_alive_timeout
    harness.feed(b"\r")
    harness.wait(1)
    harness.feed(b"\n" + post(INITIALIZE))
    assert [answer.status for answer in harness.answers()] == [200, 200, 200]
