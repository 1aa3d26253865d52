"""Checks of servers: HTTP, with valid, invalid and broken clients."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from typing import Any

from sansmcp.authentication import Authenticator, ConnectionInfo, Refusal
from sansmcp.http import RequestHead, Url
from sansmcp.limits import Limits
from sansmcp.security import SecurityPolicy
from sansmcp.trace import Tracer

from .adapter_under_test import Feature, Running, ServerUnderTest
from .check import MOMENT, Broken, expect, same, server_check
from .raw_client import POST_HEADERS, Connection, RawPeer, request
from .servers import LEGACY, MODERN, alive, begun, serving

_BAD_JSON = b'{"jsonrpc": "2.0", "id":'
_LIST = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
_NO_TYPE = {"accept": POST_HEADERS["accept"]}

_REFUSED: list[tuple[str, Mapping[str, str], bytes, int, str]] = [
    ("POST", POST_HEADERS, _BAD_JSON, 400, "malformed_json"),
    ("POST", POST_HEADERS, b"{}", 400, "invalid_message"),
    ("POST", POST_HEADERS, b"", 400, "malformed_json"),
    ("POST", POST_HEADERS, _LIST, 400, "session_required"),
    ("POST", {**POST_HEADERS, "mcp-session-id": "nobody"}, _LIST, 404, "session_not_found"),
    ("POST", {**POST_HEADERS, "mcp-protocol-version": "1"}, _LIST, 400, "unsupported_version"),
    ("POST", {**POST_HEADERS, "accept": "text/html"}, _LIST, 406, "not_acceptable"),
    ("POST", {**_NO_TYPE, "content-type": "text/plain"}, _LIST, 415, "unsupported_media_type"),
    ("POST", {**POST_HEADERS, "host": "evil.example"}, _LIST, 403, "host_not_allowed"),
    ("POST", {**POST_HEADERS, "origin": "http://evil.example"}, _LIST, 403, "origin_not_allowed"),
    ("POST", POST_HEADERS, b" " * 100_000, 413, "message_too_large"),
    ("GET", {"accept": "text/html"}, b"", 406, "not_acceptable"),
    ("PUT", POST_HEADERS, _LIST, 405, "method_not_allowed"),
    ("OPTIONS", {}, b"", 405, "method_not_allowed"),
    ("HEAD", {}, b"", 405, ""),
]
"""Method, headers and body of a request, and the status and reason of its refusal."""


def _refused(running: Running, connection: Connection, row: tuple[Any, ...]) -> None:
    """Send a request, and check the status and reason of its response."""
    method, headers, body, status, reason = row
    connection.send(request(running.url, method, headers, body))
    response = connection.response(to=method)
    same(response.status, status, f"the status of {row[:3]}")
    said = response.body()
    found = json.loads(said)["error"]["data"]["reason"] if said else ""
    same(found, reason, f"the reason in the response to {row[:3]}")


@server_check()
def requests_that_are_refused(subject: ServerUnderTest) -> None:
    """A request that cannot be served is refused with its own status and reason.

    Feed the head and the body unchanged, and send the response unchanged, including its headers.
    """
    limits = Limits(max_message_bytes=10_000)
    with serving(subject, limits=limits) as (_, running):
        for row in _REFUSED:
            with Connection(running.url) as connection:
                _refused(running, connection, row)
        with Connection(running.url) as connection:
            connection.send(request(running.url, "GET", {}, target="/nothing"))
            same(connection.response(to="GET").status, 404, "the status of an unknown path")
        alive(running)


@server_check()
def answers_to_head(subject: ServerUnderTest) -> None:
    """The response to HEAD has no body; the next response follows its head (RFC 9110, 9.3.2).

    Send only what the effects contain: there is no SendBody for HEAD.
    """
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        connection = peer.connect()
        connection.send(request(running.url, "HEAD", {}) + peer.tool("echo", {"a": 1}))
        expect(connection.response(to="HEAD").status == 405, "HEAD is not refused")
        same(connection.response().result(), {"echo": {"a": 1}}, "the result after it")


@server_check()
def connections_serve_many_requests(subject: ServerUnderTest) -> None:
    """One connection serves several consecutive requests, with every form of response."""
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        tools.go_on.set()
        connection = peer.connect()
        for number in range(5):
            same(
                peer.call("echo", {"n": number}, connection), {"echo": {"n": number}}, "the result"
            )
            same(peer.call("wait", on=connection), {"done": True}, "the result on a stream")
            _refused(running, connection, ("GET", {"accept": "a/b"}, b"", 406, "not_acceptable"))


@server_check(Feature.OWN_HTTP)
def requests_sent_ahead(subject: ServerUnderTest) -> None:
    """Pipelined requests get their responses in order.

    Feed received bytes to ServerConnection also while it sends. While it returns Idle.PAUSED, do
    not read.
    """
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        connection = peer.connect()
        connection.send(b"".join(peer.tool("echo", {"n": number}) for number in range(50)))
        for number in range(50):
            result = connection.response().result()
            same(result, {"echo": {"n": number}}, "the result")


@server_check(Feature.OWN_HTTP)
def requests_sent_too_far_ahead(subject: ServerUnderTest) -> None:
    """While a call runs, the server stops reading from a client that keeps sending.

    For Idle.PAUSED, do not read until the connection is woken.
    """
    with serving(subject) as (tools, running), RawPeer(running.url, LEGACY) as peer:
        connection = peer.connect()
        connection.send(peer.tool("wait"))
        begun(tools)
        ahead = peer.tool("echo") * 1000
        sent = connection.send_until_held_up(ahead, 64 * 1024 * 1024)
        expect(sent < 64 * 1024 * 1024, "the server reads without bound during a call")


@server_check()
def requests_in_pieces(subject: ServerUnderTest) -> None:
    """A request may arrive byte by byte."""
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        connection = peer.connect()
        for byte in peer.tool("echo", {"a": 1}):
            connection.send(bytes((byte,)))
        same(connection.response().result(), {"echo": {"a": 1}}, "the result")


@server_check()
def clients_that_take_their_time(subject: ServerUnderTest) -> None:
    """Clients that pause in the middle of a request do not block other clients."""
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        whole = peer.tool("echo", {"a": 1})
        slow = [peer.connect() for _ in range(3)]
        for cut, connection in zip((0, 20, -5), slow, strict=True):
            connection.send(whole[:cut])
        alive(running)
        for cut, connection in zip((0, 20, -5), slow, strict=True):
            connection.send(whole[cut:])
            same(connection.response().result(), {"echo": {"a": 1}}, "the result")


@server_check(Feature.OWN_HTTP)
def bodies_that_wait_for_leave(subject: ServerUnderTest) -> None:
    """A client that expects ``100 Continue`` gets it, or a refusal, before it sends the body.

    Pull the effects of a connection after each call that feeds it.
    """
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        head, _, body = peer.tool("echo", {"a": 1}).partition(b"\r\n\r\n")
        connection = peer.connect()
        connection.send(head + b"\r\nexpect: 100-continue\r\n\r\n")
        same(connection.response().status, 100, "the status before the body")
        connection.send(body)
        same(connection.response().result(), {"echo": {"a": 1}}, "the result")
        refused = peer.connect()
        headers = {**POST_HEADERS, "expect": "100-continue", "content-length": "1000000000"}
        refused.send(request(running.url, "POST", headers))
        same(refused.response().status, 413, "the status of a body that is too large")


@server_check()
def clients_that_leave(subject: ServerUnderTest) -> None:
    """A client that disconnects at any byte of its request does not affect other clients.

    If the connection raises, for any reason, feed ConnectionLost or call connection_lost().
    """
    with serving(subject) as (_, running), RawPeer(running.url, MODERN) as peer:
        whole = peer.tool("wait", {"text": "x" * 100})
        for cut in range(0, len(whole) + 1, 7):
            for leave in (Connection.reset, Connection.close):
                with Connection(running.url) as connection:
                    connection.send(whole[:cut])
                    leave(connection)
        for cut in (1, 20, 200):
            with Connection(running.url) as connection:
                connection.send(whole)
                connection.read(cut)
                connection.reset()
        alive(running)


@server_check(Feature.OWN_HTTP)
def what_is_not_http(subject: ServerUnderTest) -> None:
    """A request that is not HTTP/1.1, or too large, is refused, and its connection is closed.

    Close a connection only for CloseConnection, so that the client can read the refusal first.
    """
    with serving(subject) as (_, running):
        for data, status in (
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n", 400),
            (b"POST /mcp HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", 400),
            (b"POST /mcp HTTP/1.1\r\nhost: a\r\n" + b"x-a: b\r\n" * 20_000, 431),
        ):
            with Connection(running.url) as connection:
                connection.send(data)
                response = connection.response()
                same(response.status, status, f"the status of {data[:60]!r}")
                response.body()
                connection.half_close()
                expect(connection.is_closed(), f"the connection after {data[:60]!r} is still open")
        alive(running)


@server_check(Feature.OWN_HTTP)
def refusals_for_web_pages(subject: ServerUnderTest) -> None:
    """A page of an allowed origin may read why its request was refused, whatever refused it.

    Leave the refusals of ServerConnection as they are: it names the origin in each.
    """
    origin = "https://app.example.com"
    policy = SecurityPolicy(allowed_origins=(origin,), cors=True)
    limits = Limits(head_timeout=0.1, body_timeout=0.1, max_message_bytes=10_000)
    start = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\norigin: " + origin.encode() + b"\r\n"
    with serving(subject, policy=policy, limits=limits) as (_, running):
        for data, status in (
            (start + b"x-a: b\r\n" * 200 + b"\r\n", 431),
            (start + b"host: other\r\n\r\n", 400),
            (start + b"content-length: 100000\r\n\r\n", 413),
            (start, 408),
            (start + b"content-type: application/json\r\ncontent-length: 9\r\n\r\n", 408),
        ):
            with Connection(running.url) as connection:
                connection.send(data)
                response = connection.response()
                same(response.status, status, f"the status of {data[:200]!r}")
                found = response.headers.get("access-control-allow-origin")
                same(found, origin, f"the origin in the response with status {status}")


def _raise_if_planted(line: str) -> None:
    # Short words: a line shows the first hundred characters of a message.
    if ("< " in line and "bug-in" in line) or ("> " in line and "bug-out" in line):
        raise ZeroDivisionError("a bug")


@server_check()
def exceptions_that_no_one_expects(subject: ServerUnderTest) -> None:
    """An exception raised by a bug, in machine or adapter, ends one connection or one call.

    Catch Exception around the loop of each connection, log it, call connection_lost() and close.
    Other connections continue. Let KeyboardInterrupt and cancellations pass.
    """
    # The machine calls a Tracer while it works, so a Tracer that raises simulates a bug.
    with (
        serving(subject, trace=Tracer("check", _raise_if_planted)) as (_, running),
        RawPeer(running.url, MODERN) as peer,
        RawPeer(running.url, LEGACY) as other,
    ):
        for victim in (peer, other):
            for text in ("bug-in", "bug-out"):
                waiting, request = peer.connect(), peer.tool("echo", {"a": 1})
                waiting.send(request[:-5])
                with contextlib.suppress(ConnectionError, Broken, ValueError):
                    victim.begin("echo", {"text": text}).body()
                waiting.send(request[-5:])
                same(
                    waiting.response().result(),
                    {"echo": {"a": 1}},
                    "the result on another connection",
                )
                alive(running)


@server_check(Feature.OWN_HTTP)
def clients_that_are_too_slow(subject: ServerUnderTest) -> None:
    """A request that stays incomplete is refused in time; an idle connection is closed.

    Each ServerConnection has a next_deadline() of its own: call its handle_timeout() then.
    """
    limits = Limits(head_timeout=0.1, body_timeout=0.1)
    with serving(subject, limits=limits) as (_, running), RawPeer(running.url, MODERN) as peer:
        whole = peer.tool("echo")
        for cut in (10, whole.index(b"\r\n\r\n") + 6):
            connection = peer.connect()
            connection.send(whole[:cut])
            same(connection.response().status, 408, f"the status after {cut} bytes")
    limits = Limits(keep_alive_timeout=0.3)
    with serving(subject, limits=limits) as (_, running), RawPeer(running.url, MODERN) as peer:
        expect(peer.connect().is_closed(), "a connection without a request is still open")
        expect(_used(peer).is_closed(), "a connection after a request is still open")


def _used(peer: RawPeer) -> Connection:
    """Return a connection that has served a request; retry if it was closed before as idle."""
    while True:
        connection = peer.connect()
        with contextlib.suppress(OSError, Broken):
            peer.call("echo", on=connection)
            return connection


_ADA = {"authorization": "Bearer ada"}
_EVE = {"authorization": "Bearer eve"}


@server_check(Feature.AUTHENTICATION)
def requests_are_authenticated(subject: ServerUnderTest) -> None:
    """The application's ``authenticate`` is called for each request, before any handler.

    For the effect Authenticate, call it with the head and a ConnectionInfo, in a thread if it is a
    plain function. Then call authenticated() or authentication_failed(), and pull the effects.
    """
    seen: list[ConnectionInfo] = []

    def authenticate(head: RequestHead, connection: ConnectionInfo) -> str | Refusal:
        seen.append(connection)
        match b"".join(head.values(b"authorization")).decode():
            case "":
                return Refusal(401, "Log in", challenge='Bearer realm="checks"')
            case "Bearer mallory":
                return Refusal(403, "Not you")
            case "Bearer broken":
                raise ValueError("secret")
            case _:
                pass
        return head.values(b"authorization")[0].decode()

    async def authenticate_async(head: RequestHead, connection: ConnectionInfo) -> str | Refusal:
        return authenticate(head, connection)

    addresses: set[str] = set()
    ways: tuple[Authenticator, ...] = (authenticate, authenticate_async)
    for way in ways if subject.is_async else ways[:1]:
        with serving(subject, authenticate=way) as (_, running):
            addresses.add(Url.parse(running.url).host)
            for token, status in (("", 401), ("Bearer mallory", 403), ("Bearer broken", 500)):
                headers = {"authorization": token} if token else {}
                with Connection(running.url) as connection:
                    row = {**POST_HEADERS, **headers}
                    connection.send(request(running.url, "POST", row, _LIST))
                    response = connection.response()
                    same(response.status, status, f"the status of a request by {token!r}")
                    challenge = response.headers.get("www-authenticate")
                    expected = 'Bearer realm="checks"' if status == 401 else None
                    same(challenge, expected, "the challenge")
                    expect(b"secret" not in response.body(), "the response shows the exception")
            with (
                RawPeer(running.url, LEGACY, headers=_ADA) as ada,
                RawPeer(running.url, MODERN, headers=_EVE) as eve,
            ):
                same(ada.call("echo", {"a": 1}), {"echo": {"a": 1}}, "the result of ada")
                same(eve.call("echo", {"a": 1}), {"echo": {"a": 1}}, "the result of eve")
                with Connection(running.url) as connection:
                    row = {**POST_HEADERS, **ada.session, **_EVE}
                    connection.send(request(running.url, "POST", row, _LIST))
                    same(connection.response().status, 404, "the status of ada's session to eve")
    peers = {info.peer and info.peer[0] for info in seen}
    same(peers, addresses, "the addresses of the clients")
    expect(not any(info.is_tls for info in seen), "the connections are not encrypted")


@server_check(Feature.AUTHENTICATION, Feature.THREADS)
def authentication_may_block(subject: ServerUnderTest) -> None:
    """A plain ``authenticate`` that blocks delays no other request.

    Call it in a thread. The effect queue of its connection returns Idle.PAUSED meanwhile.
    """
    slow = threading.Semaphore(0)
    go_on = threading.Event()

    def authenticate(head: RequestHead, connection: ConnectionInfo) -> str:
        if head.values(b"x-slow"):
            slow.release()
            go_on.wait(MOMENT)
        return "ada"

    with (
        serving(subject, authenticate=authenticate) as (_, running),
        RawPeer(running.url, MODERN, headers={"x-slow": "1"}) as waiting,
    ):
        gone = waiting.connect()
        gone.send(waiting.tool("echo", {"a": 0}))
        expect(slow.acquire(timeout=MOMENT), "the function was not called")
        gone.reset()
        connection = waiting.connect()
        connection.send(waiting.tool("echo", {"a": 1}))
        expect(slow.acquire(timeout=MOMENT), "the function was not called")
        alive(running)
        go_on.set()
        same(connection.response().result(), {"echo": {"a": 1}}, "the result")
