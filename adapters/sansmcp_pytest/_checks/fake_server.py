"""A server on a real socket that sends exactly the bytes that a check specifies.

Each connection has a thread. A script, chosen by the method, handles each request; there are
default scripts for the requests that a check does not set.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, BinaryIO, TypeAlias

from sansmcp.http import Url
from sansmcp.types import Self

from .check import MOMENT, Broken, expect
from .raw_client import Connection, unix_socket

SESSION = "session-of-the-fake-server"


class Exchange:
    """One HTTP request, and the connection on which to respond."""

    def __init__(self, server: FakeServer, connection: socket.socket, line: str) -> None:
        self._server = server
        self._connection = connection
        self.method, self.target, _ = line.split(" ")
        self.headers: dict[str, str] = {}
        self.message: dict[str, Any] = {}
        self.gone = threading.Event()
        """Set when the client has disconnected during :meth:`wait_until_gone`."""

    @property
    def key(self) -> str:
        """The name of its script: JSON-RPC method, ``"answer"`` for a response, or HTTP method."""
        return str(self.message.get("method", "answer")) if self.message else self.method

    @property
    def id(self) -> Any:
        """The JSON-RPC id."""
        return self.message["id"]

    def send(self, data: bytes) -> None:
        """Send bytes; in pieces, if the server does that."""
        step = self._server.piece or len(data) or 1
        for start in range(0, len(data), step):
            self._connection.sendall(data[start : start + step])

    def head(self, status: int, headers: Mapping[str, str]) -> bytes:
        """Return the head of a response."""
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {headers[name]}" for name in headers)]
        return "\r\n".join([*lines, "", ""]).encode()

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Send a complete response."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.send(self.head(status, {"content-length": str(len(body)), **named}) + body)

    def json(self, members: Mapping[str, Any], **headers: str) -> None:
        """Send a JSON-RPC message as a complete response."""
        self.reply(200, encode(members), content_type="application/json", **headers)

    def result(self, result: Any, **headers: str) -> None:
        """Send the JSON-RPC response as plain JSON."""
        self.json({"id": self.id, "result": result}, **headers)

    def begin_stream(self) -> None:
        """Send the head of an event stream."""
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self.send(self.head(200, headers))

    def chunk(self, *parts: bytes) -> None:
        """Send a piece of the body."""
        self.send(_chunk(*parts))

    def end(self, *parts: bytes) -> None:
        """Send the last piece of the body."""
        self.send((_chunk(*parts) if parts else b"") + _chunk())

    def answer(self, result: Any) -> bytes:
        """Return the JSON-RPC response as an event."""
        return event({"id": self.id, "result": result})

    def close(self) -> None:
        """Close the connection after the sent bytes are delivered."""
        self._connection.shutdown(socket.SHUT_WR)
        raise ConnectionAbortedError

    def reset(self) -> None:
        """Reset the connection."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()
        raise ConnectionAbortedError

    def wait_until_gone(self) -> None:
        """Send no bytes, and wait until the client has disconnected."""
        try:
            with self._connection.makefile("rb") as rest:
                rest.read()
        finally:
            self.gone.set()


Script: TypeAlias = Callable[[Exchange], None]


def _chunk(*parts: bytes) -> bytes:
    """Return a chunk of the body; the empty one is the last."""
    data = b"".join(parts)
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode(members: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def event(members: Mapping[str, Any] | None, id: str = "", retry: int | None = None) -> bytes:
    """Return an event; without a message it has only the id and the reconnection time."""
    lines = [f"id: {id}"] if id else []
    if retry is not None:
        lines.append(f"retry: {retry}")
    lines.append(f"data: {encode(members).decode() if members is not None else ''}")
    return "\n".join([*lines, "", ""]).encode()


def progress(exchange: Exchange, done: int) -> Mapping[str, Any]:
    """Return a progress notification for the call of an exchange."""
    token = exchange.message["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": done}
    return {"method": "notifications/progress", "params": params}


def _initialize(exchange: Exchange) -> None:
    result = server_result(exchange.message["params"]["protocolVersion"])
    exchange.result(result, mcp_session_id=SESSION)


def _discover(exchange: Exchange) -> None:
    result: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    exchange.result({"resultType": "complete", **result})


def echo(exchange: Exchange) -> None:
    """Respond to a call with its own arguments, as plain JSON."""
    exchange.result(exchange.message["params"].get("arguments", {}))


def accept(exchange: Exchange) -> None:
    """Accept a notification or response with status 202."""
    exchange.reply(202)


def in_turn(*scripts: Script) -> Script:
    """Return a script that handles each request with the next one of these."""
    turns = iter(scripts)
    return lambda exchange: next(turns, _too_many)(exchange)


def _too_many(exchange: Exchange) -> None:
    raise Broken(f"there was one {exchange.key!r} too many")


def server_result(version: str) -> dict[str, Any]:
    """Return the result of ``initialize``."""
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fake", "version": "1"},
    }


SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        "initialize": _initialize,
        "server/discover": _discover,
        "notifications/initialized": accept,
        "notifications/cancelled": accept,
        "answer": accept,
        "tools/call": echo,
        "GET": lambda exchange: exchange.reply(405, allow="POST, DELETE"),
        "DELETE": lambda exchange: exchange.reply(200),
    }
)
"""The default scripts, by the key of the request."""


class FakeServer:
    """The server. On exit it checks that the client has closed all its connections."""

    def __init__(
        self, scripts: Mapping[str, Script] = SCRIPTS, *, piece: int = 0, unix: str | None = None
    ) -> None:
        """Set up the server.

        Args:
            scripts: by the key of the request.
            piece: bytes per send, 0 for all at once.
            unix: the path of a Unix socket to listen at; None for a free port.
        """
        self.piece = piece
        self._unix = unix
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.early: Script = lambda exchange: None
        """A script that is called with each request before its body is read."""
        self._scripts = {**SCRIPTS, **scripts}
        self._failures: list[Exception] = []
        self._open: list[socket.socket] = []
        self._moved = threading.Condition()
        self._is_closing = False

    def __enter__(self) -> Self:
        if self._unix is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
        else:
            self._listener = unix_socket()
            self._listener.bind(self._unix)
            self._listener.listen()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.wait(lambda: not self.is_open, "the client has closed all its connections")
        finally:
            self._close()
        for failure in self._failures:
            raise failure

    def _close(self) -> None:
        self._is_closing = True
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        Connection(self.url).close()
        self._thread.join()
        self._listener.close()

    def restart(self, between: Callable[[], object]) -> None:
        """Close all connections, call a function while nothing listens, and listen again."""
        address = self._listener.getsockname()
        self._close()
        try:
            between()
        finally:
            self._is_closing = False
            self._listener = socket.create_server(address)
            self._thread = threading.Thread(target=self._accept, daemon=True)
            self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        if self._unix is not None:
            return str(Url.of_socket(self._unix, "/mcp"))
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"

    @property
    def is_open(self) -> bool:
        """True if a client has an open connection."""
        return bool(self._open)

    @property
    def asked(self) -> list[str]:
        """The keys of the requests, in order of arrival."""
        return [exchange.key for exchange in self.exchanges]

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition()`` is true; checked after each request and disconnect."""
        with self._moved:
            expect(self._moved.wait_for(condition, MOMENT), f"not within {MOMENT:g} s: {what}")

    def wait_for(self, *keys: str) -> list[Exchange]:
        """Wait until requests with these keys have arrived, and return those requests."""
        self.wait(lambda: set(keys) <= set(self.asked), f"the client sent {' and '.join(keys)}")
        return [exchange for exchange in self.exchanges if exchange.key in keys]

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._is_closing:
                connection.close()
                return
            if self._unix is None:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as reader:
                while (exchange := self._read(connection, reader)) is not None:
                    with self._moved:
                        self.exchanges.append(exchange)
                        self._moved.notify_all()
                    expect(
                        exchange.key in self._scripts, f"there is no script for {exchange.key!r}"
                    )
                    self._scripts[exchange.key](exchange)
        except OSError:
            pass  # the client or the script has closed the connection
        except Exception as failure:
            self._failures.append(failure)
        with self._moved:
            self._open.remove(connection)
            self._moved.notify_all()

    def _read(self, connection: socket.socket, reader: BinaryIO) -> Exchange | None:
        """Read the next request; None at the end, which may be within a line."""
        line = reader.readline().decode()
        if not line.endswith("\n"):
            return None
        exchange = Exchange(self, connection, line)
        for header in iter(lambda: reader.readline().decode().strip(), ""):
            name, _, value = header.partition(":")
            exchange.headers[name.lower()] = value.strip()
        self.early(exchange)
        body = reader.read(int(exchange.headers.get("content-length", 0)))
        exchange.message = json.loads(body) if body else {}
        return exchange
