"""A client that sends and reads exactly the bytes that a check specifies."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from sansmcp.codecs.sse import SseDecoder, SseEvent
from sansmcp.http import Url
from sansmcp.meta_keys import CAPABILITIES, CLIENT_INFO, NAMED, VERSION
from sansmcp.revisions import REVISIONS
from sansmcp.types import Era, Self

from .check import MOMENT, expect

POST_HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
_INFO = {"name": "peer", "version": "1"}
_ADDED = ("resultType", "_meta")
_MOST = 64 * 1024 * 1024


def request(
    url: str, method: str, headers: Mapping[str, str], body: bytes = b"", *, target: str = ""
) -> bytes:
    """Return the bytes of a request; ``headers`` are added to those that every request needs."""
    place = Url.parse(url)
    named = {"host": place.authority, "content-length": str(len(body)), **headers}
    lines = [f"{method} {target or place.target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def unix_socket() -> socket.socket:
    """Make a Unix socket. Adapters without ``Feature.UNIX`` need none, as on Windows."""
    if sys.platform == "win32":
        raise NotImplementedError
    return socket.socket(socket.AF_UNIX)


class Connection:
    """A connection to the server under test."""

    def __init__(self, url: str, *, window: int | None = None) -> None:
        """``window``: the approximate size of the receive buffer, in bytes."""
        place = Url.parse(url)
        path = place.socket_path
        self._socket = socket.socket() if path is None else unix_socket()
        if window is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self._socket.settimeout(MOMENT)
        self._reader = self._socket.makefile("rb")
        try:
            self._socket.connect((place.host, place.port) if path is None else path)
        except BaseException:
            self.close()
            raise
        if path is None:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_until_held_up(self, data: bytes, most: int) -> int:
        """Send ``data`` repeatedly, up to ``most`` bytes or until the server stops reading.

        Return the number of bytes that were sent.
        """
        self._socket.settimeout(0.03)
        sent = looks = 0
        while sent < most and looks < 10:
            try:
                sent += self._socket.send(data)
                looks = 0
            except TimeoutError:
                looks += 1
        return sent

    def response(self, *, to: str = "POST") -> Response:
        """Read the head of the next response."""
        return Response(self, to)

    def line(self) -> bytes:
        """Read a line; empty at the end."""
        return self._reader.readline()

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes, or fewer at the end."""
        return self._reader.read(size)

    def is_closed(self) -> bool:
        """Wait for the end; True if the server closes the connection without sending more."""
        rest = b""
        with contextlib.suppress(ConnectionError):
            rest = self._reader.read()
        return rest == b""

    def half_close(self) -> None:
        """Shut down the sending direction."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Reset the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._reader.close()
        self._socket.close()


class Response:
    """A response, read as it arrives."""

    def __init__(self, connection: Connection, to: str) -> None:
        self.connection = connection
        line = connection.line().split()
        expect(len(line) > 1, f"the server closed the connection without a response to {to}")
        self.status = int(line[1])
        self.headers: dict[str, str] = {}
        for header in iter(lambda: connection.line().decode().strip(), ""):
            name, _, value = header.partition(":")
            self.headers[name.lower()] = value.strip()
        self._has_body = to != "HEAD" and self.status not in (100, 202, 204, 304)
        self.is_complete = False
        """True if the body has ended properly."""

    @property
    def is_stream(self) -> bool:
        """True if the response is an event stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it arrives; :attr:`is_complete` says afterwards if it is whole."""
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self.connection.line() or b"0", 16):
                yield self.connection.read(size)
                self.connection.line()
            self.is_complete = self.connection.line() == b"\r\n"
        else:
            size = int(self.headers.get("content-length", 0)) if self._has_body else 0
            yield self.connection.read(size)
            self.is_complete = True

    def read_in_pieces(self, size: int) -> Iterator[bytes]:
        """Yield a body with a content length, in pieces of ``size`` bytes."""
        left = int(self.headers["content-length"])
        while left and (piece := self.connection.read(min(size, left))):
            left -= len(piece)
            yield piece
        self.is_complete = not left

    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.pieces())

    def events(self) -> Iterator[SseEvent]:
        """Yield the events of the stream, as they arrive."""
        decoder = SseDecoder(_MOST)
        for piece in self.pieces():
            yield from decoder.feed(piece)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages of the response, as they arrive, in every form of response."""
        if self.is_stream:
            for event in self.events():
                if event.data:
                    yield json.loads(event.data)
        else:
            yield json.loads(self.body())

    def answer(self) -> dict[str, Any]:
        """Return the last message, which is the JSON-RPC response."""
        messages = list(self.messages())
        expect(
            messages,
            f"the HTTP response ended without a JSON-RPC response; its status is {self.status}",
        )
        return messages[-1]

    def result(self) -> Any:
        """Return the result of the response, without the members that the revision adds."""
        return result_of(self.answer())


def result_of(answer: Mapping[str, Any]) -> Any:
    """Return the result in a JSON-RPC response, without the members that the revision adds."""
    expect("result" in answer, f"there is no result in the response {answer}")
    return {name: answer["result"][name] for name in answer["result"] if name not in _ADDED}


class RawPeer:
    """A client of one revision. Each request has a connection of its own."""

    def __init__(
        self,
        url: str,
        version: str,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self._version = version
        self._capabilities = capabilities or {}
        self._headers = headers or {}
        self._is_modern = REVISIONS[version].era is Era.MODERN
        self._connections: list[Connection] = []
        self._ids = iter(range(1_000_000))
        self.connected: dict[str, Any] = {}
        """The result of ``initialize`` or ``server/discover``."""
        self.session: dict[str, str] = {}
        """The headers of every request in the session."""

    def __enter__(self) -> Self:
        """Do the handshake, if the revision has one."""
        if not self._is_modern:
            params = {"protocolVersion": self._version, "capabilities": self._capabilities}
            response = self.send(self.message("initialize", {**params, "clientInfo": _INFO}))
            self.connected = response.result()
            self.session = {"mcp-protocol-version": self._version}
            if "mcp-session-id" in response.headers:
                self.session["mcp-session-id"] = response.headers["mcp-session-id"]
            self.tell("notifications/initialized")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in self._connections:
            connection.close()

    def connect(self, *, window: int | None = None) -> Connection:
        """Open a new connection."""
        self._connections.append(Connection(self.url, window=window))
        return self._connections[-1]

    def message(
        self, method: str, params: Mapping[str, Any] | None = None, id: str | None = None
    ) -> bytes:
        """Return a POST of a request or notification, as the revision requires."""
        headers = dict(self.session)
        params = dict(params or {})
        if self._is_modern:
            meta = {VERSION: self._version, CAPABILITIES: self._capabilities, CLIENT_INFO: _INFO}
            params["_meta"] = {**params.get("_meta", {}), **meta}
            headers |= {"mcp-protocol-version": self._version, "mcp-method": method}
            if method in NAMED:
                headers["mcp-name"] = params[NAMED[method]]
        members: dict[str, Any] = {"method": method, "params": params}
        if not method.startswith("notifications/"):
            members["id"] = id or next(self._ids)
        return self._post(members, headers)

    def tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, id: str | None = None
    ) -> bytes:
        """Return a POST that calls a tool and asks for progress."""
        params = {"name": name, "arguments": dict(arguments or {})}
        return self.message("tools/call", {**params, "_meta": {"progressToken": "p"}}, id)

    def _post(self, members: Mapping[str, Any], headers: Mapping[str, str]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", **members}).encode()
        return request(self.url, "POST", {**POST_HEADERS, **self._headers, **headers}, body)

    def send(self, data: bytes, on: Connection | None = None, to: str = "POST") -> Response:
        """Send a request, and read the head of its response."""
        connection = on or self.connect()
        connection.send(data)
        return connection.response(to=to)

    def begin(
        self, tool: str, arguments: Mapping[str, Any] | None = None, on: Connection | None = None
    ) -> Response:
        """Call a tool, and read the head of the response."""
        return self.send(self.tool(tool, arguments), on)

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, on: Connection | None = None
    ) -> Any:
        """Call a tool, and return its result."""
        return self.begin(tool, arguments, on).result()

    def tell(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        response = self.send(self.message(method, params))
        expect(
            response.status == 202,
            f"the response to {method} has status {response.status}, not 202",
        )

    def respond(self, id: Any, result: Any) -> None:
        """Respond to a server request."""
        response = self.send(self._post({"id": id, "result": result}, self.session))
        expect(
            response.status == 202,
            f"a response was refused with status {response.status}, not accepted with 202",
        )

    def delete(self) -> Response:
        """End the session."""
        return self.send(request(self.url, "DELETE", self.session), to="DELETE")

    def get(self, last_event_id: str = "") -> Response:
        """Open the standalone stream, or resume the stream of an event id."""
        resuming = {"last-event-id": last_event_id} if last_event_id else {}
        headers = {"accept": "text/event-stream", **self.session, **resuming}
        return self.send(request(self.url, "GET", headers), to="GET")
