"""Send mutated requests to a server of each adapter, while another client uses it."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_local
from sansmcp import Url
from sansmcp.types import Self
from sansmcp_pytest._checks import raw_client
from sansmcp_pytest._checks.raw_client import Connection, RawPeer, result_of

from ..thorough import in_seeds
from .mutations import Mutator
from .program import OWN_HTTP, SERVERS
from .server_harness import (
    chunked,
    get,
    http_corpus,
    initialize,
    message,
    post,
)

PATIENCE = 30.0
"""Seconds for short steps, on a busy machine."""
CONNECTIONS = 12
"""Connections that are open at a time."""

_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) ")
_SESSION = re.compile(rb"\r\nmcp-session-id: (.*)\r\n", re.IGNORECASE)
_EVENT_ID = re.compile(rb"\nid: ?([^\r\n]+)")
_RAISED_IN = re.compile(r'^  File "([^"]+)", line .*\n(?:    .*\n)*(?=\S)', re.MULTILINE)
_LOGGED_BY_US = re.compile(r"^ERROR:sansmcp.*", re.MULTILINE)
_OURS = (str(Path(sansmcp.__file__).parent), str(Path(sansmcp_local.__file__).parents[1]))
_SECRET = "told to the bystander"
_CREDENTIALS = {"authorization": "Bearer bystander"}
_RESET = struct.pack("ii", 1, 0)


class Process:
    """A server in its own process."""

    def __init__(self, name: str, log: Path) -> None:
        self._log = log
        self._has_own_http = name in OWN_HTTP
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.program", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, self.log()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def stop(self) -> int:
        """Stop it gracefully, and return its exit status."""
        self._process.communicate(timeout=PATIENCE)
        return self._process.returncode

    def log(self) -> str:
        """Return all that it has logged."""
        return self._log.read_text(errors="replace")

    def faults(self) -> list[str]:
        """Return what it has logged of errors, without those that another project raises and logs.

        Waitress, for one, raises at a length of 4,301 digits, and uvloop where uvicorn writes to a
        connection that is closed. Of such a traceback the last line of code is not ours.
        """
        if self._has_own_http:
            return self.log().splitlines()
        ours = [file for file in _RAISED_IN.findall(self.log()) if file.startswith(_OURS)]
        return ours + _LOGGED_BY_US.findall(self.log())


class Bystander:
    """A client that works, in a session and without one, in turns."""

    def __init__(self, url: str, *, keeps_connections: bool) -> None:
        self._keeps_connections = keeps_connections
        self._peers = [RawPeer(url, version, headers=_CREDENTIALS) for version in VERSIONS]
        self._connections: list[Connection] = []
        self._open = contextlib.ExitStack()
        self._answered = 0
        self.event_id = ""
        """The event id from which its last stream could be resumed."""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for peer in self._peers:
                stack.enter_context(peer)
            self._connections = [peer.connect() for peer in self._peers]
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def session(self) -> bytes:
        """The id of its session."""
        return self._peers[0].session["mcp-session-id"].encode()

    def is_answered(self) -> None:
        """Call a tool once with each revision."""
        for peer, connection in zip(self._peers, self._connections, strict=True):
            self._answered += 1
            arguments = {"number": self._answered, "text": _SECRET}
            if self._keeps_connections:
                self._call(peer, arguments, connection)
            else:  # some HTTP servers close connections at any time
                with Connection(peer.url) as another:
                    self._call(peer, arguments, another)

    def _call(self, peer: RawPeer, arguments: dict[str, Any], connection: Connection) -> None:
        response = peer.begin("echo", arguments, connection)
        assert response.status == 200
        events = list(response.events())
        assert events, (response.headers, response.is_complete)
        assert result_of(json.loads(events[-1].data or "")) == {"echo": arguments}
        self.event_id = events[0].id or self.event_id


VERSIONS = ("2025-11-25", "2026-07-28")


def corpus_of(session: bytes, event_id: bytes, bystander: Bystander, url: str) -> list[bytes]:
    """Requests in a session; some name the session or a stream of the bystander."""
    corpus = http_corpus(session, event_id)
    stolen, stolen_id = bystander.session, b"last-event-id: " + bystander.event_id.encode()
    ping, call = message("ping", 1), message("tools/call", 2, name="x", _meta={"progressToken": 7})
    ours, theirs = b"mcp-session-id: " + session, b"mcp-session-id: " + stolen
    event_stream = b"accept: text/event-stream"
    authority = Url.parse(url).authority.encode()
    corpus += [post(call, ours)] * 4
    corpus += [post(call, theirs), get(theirs, event_stream), get(theirs, method=b"DELETE")]
    corpus += [
        get(theirs, event_stream, stolen_id),
        get(ours, event_stream, stolen_id),
        get(event_stream, stolen_id, b"mcp-protocol-version: 2026-07-28"),
        post(ping, theirs, b"authorization: Bearer x"),
        post(message("notifications/cancelled", requestId=1), theirs),
        post(ping, ours, target=b"http://%b/mcp" % authority),
        post(ping, ours, target=b"http://elsewhere/mcp"),
        post(ping, ours, b"origin: https://evil.example"),
        post(ping, ours, b"host: evil.example"),
        chunked(call, ours, b"trailer: x-trailer"),
        post(call, ours, b"expect: 100-continue"),
        post(call, ours, b"connection: close"),
        get(method=b"OPTIONS"),
        get(method=b"HEAD"),
        get(target=b"/favicon.ico"),
    ]
    return corpus


def large(random: Mutator, session: bytes) -> bytes:
    """A request near a limit: depth, digits, members, values, bytes."""
    size = 4 * 1024 * 1024 - 300
    arguments = random.choice(
        (
            b"[" * 60 + b"]" * 60,
            b"[" * 100_000,
            b'{"a":' * 64 + b"1" + b"}" * 64,
            b"9" * 4300,
            b"9" * 1_000_000,
            b'"' + b"a" * size + b'"',
            b'"' + rb"\u00e9" * (size // 6) + b'"',
            b"[" + b"1," * 150_000 + b"1]",
            b"[" + b"[]," * (size // 3 - 2) + b"1]",
            b"{" + b",".join(b'"%d":0' % number for number in range(90_000)) + b"}",
            b"{" + b",".join(b'"%d":0' % number for number in range(300_000)) + b"}",
            b'"' + b"a" * (size + 1000) + b'"',
        )
    )
    body = message("tools/call", 1, name="x", arguments=0).replace(b": 0}", b": %b}" % arguments)
    return post(body, b"mcp-session-id: " + session)


class Attack:
    """Connections on which mutated requests are sent."""

    def __init__(self, url: str, seed: int) -> None:
        place = Url.parse(url)
        self._url = url
        self._address = place.host, place.port
        self._random = Mutator(seed)
        self._corpus: list[bytes] = []
        self._session = b""
        self._event_id = b"none"
        self._open: list[socket.socket] = []
        self.sent = 0
        self.rounds = 0
        self.statuses = Counter[int]()

    def open_session(self, bystander: Bystander) -> None:
        """Open another session, since a mutated request may have ended the last one."""
        found = _SESSION.search(self._answer(post(initialize("2025-11-25"))))
        assert found
        self._session = found[1]
        self._corpus = corpus_of(self._session, self._event_id, bystander, self._url)

    def send(self, request: bytes) -> int:
        """Send a request as it is, and return the status of the response."""
        return int(self._answer(request).split()[1])

    def connect(self, requests: int) -> None:
        """Send some requests on one connection, at once or in pieces, and wait for nothing."""
        connection = socket.create_connection(self._address, timeout=PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.append(connection)
        self._send(b"".join(self._request() for _ in range(requests)))
        self.sent += requests

    def send_large(self) -> None:
        """Send a large request, which may be refused before it is sent."""
        connection = socket.create_connection(self._address, timeout=PATIENCE)
        self._open.append(connection)
        self._send(large(self._random, self._session))

    def leave(self) -> None:
        """Read what has arrived, and close all connections: properly, early, or with a reset."""
        for connection in self._open:
            with connection, contextlib.suppress(OSError):
                self._read_what_is_there(connection)
                match self._random.randrange(3):
                    case 0:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    case 1:
                        connection.shutdown(socket.SHUT_WR)
                    case _:
                        pass
        self._open.clear()

    def _answer(self, request: bytes) -> bytes:
        with socket.create_connection(self._address, timeout=PATIENCE) as connection:
            connection.sendall(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def _request(self) -> bytes:
        data = self._random.choice(self._corpus)
        if self._random.random() < 0.2:
            return data  # else hardly any request follows a valid one
        return self._random.mutated(data, self._corpus)

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it was refused, and closed
            for piece in self._random.pieces(data):
                self._open[-1].sendall(piece)

    def _read_what_is_there(self, connection: socket.socket) -> None:
        answers = b""
        while select.select([connection], [], [], 0)[0]:
            data = connection.recv(65536)
            answers += data
            if not data:
                break
        assert _SECRET.encode() not in answers
        self._event_id = (_EVENT_ID.findall(answers) or [self._event_id])[-1]
        self.statuses.update(int(status) for status in _STATUS.findall(answers))


@contextlib.contextmanager
def under_attack(name: str, log: Path, seed: int) -> Generator[tuple[Process, Bystander, Attack]]:
    """A server, and its two clients."""
    with (
        Process(name, log) as server,
        Bystander(server.url, keeps_connections=name in OWN_HTTP) as bystander,
    ):
        yield server, bystander, Attack(server.url, seed)


def attacked(name: str, log: Path, count: int, seed: int) -> Counter[int]:
    """Send ``count`` mutated requests to a server, and count the statuses of its responses."""
    with under_attack(name, log, seed) as (server, bystander, attack):
        while attack.sent < count:
            attack.open_session(bystander)
            attack.leave()
            for number in range(CONNECTIONS):
                attack.connect(1 + number % 2)
            if attack.rounds % 20 == 0:
                attack.send_large()
            bystander.is_answered()
            attack.rounds += 1
        assert attack.send(post(message("ping", 1), b"mcp-session-id: " + bystander.session)) == 404
        statuses = attack.statuses.copy()  # uvicorn sends 500 for requests that wait when it stops
        assert server.stop() == 0, server.log()  # while connections are open
        assert server.faults() == []
        attack.leave()
    return statuses


@in_seeds(1, 5)
@pytest.mark.parametrize("name", SERVERS)
def test_requests(name: str, seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 requests by each seed, one or two on a connection."""
    monkeypatch.setattr(raw_client, "MOMENT", PATIENCE)
    statuses = attacked(name, tmp_path / "log", 1000 * len(seeds), seed=seeds[0])
    assert statuses[200] > 20 * len(seeds)
    assert statuses[500] == 0
