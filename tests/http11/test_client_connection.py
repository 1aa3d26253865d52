"""A client's connection: requests out, responses in any pieces, every break told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import (
    Client,
    ClientConnection,
    Idle,
    Limits,
    LocalProtocolError,
    ReconnectPolicy,
)
from sansmcp.addresses import AddressClass, AddressPolicy
from sansmcp.auth.options import Authorization
from sansmcp.effects import LoadCredentials, OpenExchange
from sansmcp.events import CallFailed, ClientEvent, Closed, Connected
from sansmcp.revisions import HANDSHAKE_VERSIONS

from . import harness

requirement = pytest.mark.requirement

ANSWER = (
    b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"serverInfo":{"name":"s","version":"1"}}}'
)


class ClientConnectionHarness:
    """A client that has begun its handshake on one connection."""

    def __init__(self, **settings: Any) -> None:
        self.client = Client(
            "http://localhost:81/mcp?x=1",
            versions=HANDSHAKE_VERSIONS,
            jitter=lambda: 0.5,
            standalone_stream=False,
            reconnect=ReconnectPolicy(max_attempts=0),  # the first failure is the last
            http11=harness.HTTP11,
            **settings,
        )
        self.connection = ClientConnection(self.client)
        self.events: list[ClientEvent] = []
        self.effects: list[OpenExchange] = []
        self.client.start(now=0)
        self.run_pending()
        self.sent = self.connection.begin(self.effects.pop())

    def run_pending(self) -> None:
        while not isinstance(effect := self.client.next_effect(), Idle):
            if isinstance(effect, OpenExchange):
                self.effects.append(effect)
            elif isinstance(effect, LoadCredentials):
                self.client.auth_completed(effect, None, now=0)
        while not isinstance(event := self.client.next_event(), Idle):
            self.events.append(event)

    def feed(self, data: bytes, size: int | None = None) -> ClientConnectionHarness:
        size = size or max(1, len(data))
        for start in range(0, len(data), size):
            self.connection.receive_data(data[start : start + size], now=0)
            self.run_pending()
        return self

    @property
    def failure(self) -> str:
        (event,) = self.events
        assert isinstance(event, Closed)
        return str(event.error)


def response(body: bytes = ANSWER, extra: bytes = b"", status: bytes = b"200 OK") -> bytes:
    return (
        b"HTTP/1.1 "
        + status
        + b"\r\ncontent-type: application/json\r\n"
        + extra
        + b"content-length: %d\r\n\r\n" % len(body)
        + body
    )


@requirement("HEADERS-B-009")
@pytest.mark.parametrize("spelled", [bytes.lower, bytes.title, bytes.upper])
def test_names_of_headers_have_no_case(spelled: Callable[[bytes], bytes]) -> None:
    harness = ClientConnectionHarness()
    head = b"HTTP/1.1 200 OK\r\n"
    for name, value in (
        (b"content-type", b"application/json"),
        (b"mcp-session-id", b"the-session"),
        (b"content-length", b"%d" % len(ANSWER)),
    ):
        head += spelled(name) + b": " + value + b"\r\n"
    harness.feed(head + b"\r\n" + ANSWER)
    (effect,) = harness.effects
    assert (b"mcp-session-id", b"the-session") in effect.head.headers


def test_the_request() -> None:
    harness = ClientConnectionHarness(headers=((b"x-custom", b"y"),))
    head, _, body = harness.sent.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert head.startswith(b"POST /mcp?x=1 HTTP/1.1\r\n")
    assert b"host: localhost:81" in lines
    assert b"content-length: %d" % len(body) in lines
    assert b"x-custom: y" in lines
    assert body.startswith(b'{"jsonrpc":"2.0","id":0,"method":"initialize"')
    assert not harness.connection.is_done


@pytest.mark.parametrize("size", [1, 3, 50, None])
def test_a_response_in_any_pieces_and_the_connection_again(size: int | None) -> None:
    harness = ClientConnectionHarness().feed(response(), size)
    assert harness.connection.is_done
    assert harness.connection.is_reusable
    harness.connection.begin(harness.effects.pop())
    harness.feed(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", size)
    assert isinstance(harness.events[0], Connected)
    harness.client.close(now=0)


@pytest.mark.parametrize("size", [1, None])
def test_equal_headers_count_once(size: int | None) -> None:
    """Some servers and proxies send both twice (RFC 9112, 6.3)."""
    twice = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(ANSWER)
    harness = ClientConnectionHarness().feed(
        b"HTTP/1.1 200 OK\r\n" + twice + twice + b"\r\n" + ANSWER, size
    )
    assert harness.connection.is_reusable
    assert len(harness.effects) == 1, "the handshake goes on"


@pytest.mark.parametrize(
    "extra", [b"content-length: 5\r\n", b"content-type: text/html\r\n", b"x: \x00\r\n"]
)
def test_headers_that_contradict_each_other_are_no_response(extra: bytes) -> None:
    harness = ClientConnectionHarness().feed(response(extra=extra))
    assert harness.failure
    assert harness.effects == []


@pytest.mark.parametrize("size", [1, None])
def test_interim_responses_are_skipped(size: int | None) -> None:
    harness = ClientConnectionHarness().feed(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + response(), size
    )
    assert harness.connection.is_reusable


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_response_without_a_body_ends_with_its_head(status: bytes, size: int | None) -> None:
    """RFC 9112 section 6.3: it has no content-length either, and the connection stays open."""
    harness = ClientConnectionHarness().feed(b"HTTP/1.1 " + status + b"\r\n\r\n", size)
    assert harness.connection.is_done
    assert harness.connection.is_reusable


@pytest.mark.parametrize("extra", [b"connection: close\r\n"])
def test_a_connection_that_is_to_be_closed_is_not_used_again(extra: bytes) -> None:
    harness = ClientConnectionHarness().feed(response(extra=extra))
    assert harness.connection.is_done
    assert not harness.connection.is_reusable
    with pytest.raises(LocalProtocolError):
        harness.connection.begin(harness.effects.pop())


def test_a_busy_connection_takes_no_second_exchange() -> None:
    harness = ClientConnectionHarness()
    effect = OpenExchange(exchange=9, url="http://h/", head=None, body=b"")  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError):
        harness.connection.begin(effect)


def test_bytes_after_the_response_spoil_the_connection() -> None:
    harness = ClientConnectionHarness().feed(response() + b"HTTP/1.1 200 OK\r\n")
    assert harness.connection.is_done
    assert not harness.connection.is_reusable
    harness.feed(b"more")
    harness.connection.receive_eof(now=0)
    harness.connection.connection_lost("again", now=0)
    assert harness.events == []


def test_a_body_that_ends_with_the_connection() -> None:
    harness = ClientConnectionHarness().feed(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + ANSWER
    )
    assert not harness.connection.is_done
    harness.connection.receive_eof(now=0)
    harness.run_pending()
    assert harness.connection.is_done
    assert not harness.connection.is_reusable
    assert harness.effects


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "closed before the response was complete"),
        (b"HTTP/1.1 200", "closed before the response was complete"),
        (response()[:-1], "closed before the response was complete"),
        (response(b"", b"x: y\r\n").replace(b"content-length: 0", b"content-length: 9"), "closed"),
    ],
)
def test_a_response_that_breaks_off(data: bytes, reason: str) -> None:
    harness = ClientConnectionHarness().feed(data)
    harness.connection.receive_eof(now=0)
    harness.run_pending()
    assert reason in harness.failure
    assert harness.connection.is_done
    assert not harness.connection.is_reusable


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH\r\n\r\n", b"\x16\x03\x01\n\n", b"HTTP/1.1 200 OK\r\nbad\r\n\r\n"]
)
def test_what_is_no_http(data: bytes, size: int | None) -> None:
    assert "not HTTP/1.1" in ClientConnectionHarness().feed(data, size).failure


@pytest.mark.parametrize("size", [1, None])
def test_a_server_that_speaks_tls(size: int | None) -> None:
    """It sends an alert, and another attempt would bring another one."""
    harness = ClientConnectionHarness().feed(bytes.fromhex("15030100020246"), size)
    assert "the server speaks TLS; write https:// instead of http://" in harness.failure
    assert not harness.connection.is_reusable


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(("data", "is_told"), [(b"", True), (b"H", False), (response(), False)])
def test_a_server_that_may_speak_tls(data: bytes, is_told: bool, is_reset: bool) -> None:
    """Those of asyncio close the connection, without an alert; others reset it."""
    harness = ClientConnectionHarness().feed(data)
    if harness.connection.is_done:  # the next request follows on this connection
        harness.connection.begin(harness.effects.pop())
        harness.events.clear()
    if is_reset:
        harness.connection.connection_lost("Connection reset by peer", now=0)
    else:
        harness.connection.receive_eof(now=0)
    harness.run_pending()
    assert ("if the server speaks TLS" in repr(harness.events)) is is_told


@pytest.mark.parametrize("size", [1, 1000, None])
def test_response_heads_are_bounded(size: int | None) -> None:
    harness = ClientConnectionHarness(limits=Limits(max_head_bytes=500))
    harness.feed(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 500, size)
    assert "head is too large" in harness.failure


def test_a_connection_that_could_not_be_made() -> None:
    harness = ClientConnectionHarness()
    harness.connection.connection_lost("refused", now=0)
    harness.run_pending()
    assert "refused" in harness.failure


@given(cut=st.integers(0, 400), size=st.integers(1, 60), clean=st.booleans())
def test_a_response_cut_anywhere_ends_the_exchange(cut: int, size: int, clean: bool) -> None:
    whole = response()
    harness = ClientConnectionHarness().feed(whole[:cut], size)
    if clean:
        harness.connection.receive_eof(now=0)
    else:
        harness.connection.connection_lost("reset", now=0)
    harness.run_pending()
    assert harness.connection.is_done
    if cut < len(whole):
        assert harness.failure
    else:
        assert harness.effects
    assert not any(isinstance(event, CallFailed) for event in harness.events)


@pytest.mark.parametrize(
    ("peer", "nearest"),
    [("1.1.1.1", AddressClass.PUBLIC), ("127.0.0.1", AddressClass.LOOPBACK)],
)
def test_the_address_of_who_refuses_bounds_those_of_the_authorization(
    peer: str, nearest: AddressClass
) -> None:
    harness = ClientConnectionHarness(
        authorization=Authorization(), random_bytes=bytes, wall_clock=lambda: 1e9
    )
    harness.connection.peer = peer
    harness.feed(response(b"{}", status=b"401 Unauthorized"))
    (effect,) = harness.effects
    assert effect.address_policy == AddressPolicy(nearest)
    harness.client.close(now=0)
