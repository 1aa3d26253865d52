"""A client that makes calls, and a server that answers as it should unless a test does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from sansmcp import (
    Client,
    ClientConnection,
    Era,
    KnownServers,
    LocalProtocolError,
    ReconnectPolicy,
    encode_event,
)
from sansmcp.codecs.json import as_object
from sansmcp.effects import (
    AbortExchange,
    CloseStdin,
    KillProcess,
    OpenExchange,
    StartProcess,
    TerminateProcess,
    WriteStdin,
)
from sansmcp.events import CallCompleted, CallFailed, ClientEvent, Closed, ServerRequestReceived
from sansmcp.messages import RequestId
from sansmcp.process import ProcessExited, StderrClosed, StdoutClosed, StdoutData
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp.trace import Tracer

from .. import messages as jsonrpc
from .mutations import Mutator
from .server_harness import MODERN, message

URL = "http://localhost:8000/mcp"
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}
CACHED: dict[str, Any] = {
    "resultType": "complete",
    "ttlMs": 5000,
    "cacheScope": "private",
    "tools": [],
}


def answer(id: Any, result: Any) -> bytes:
    return json.dumps(jsonrpc.response(id, result)).encode()


def error(id: Any, **data: Any) -> bytes:
    return json.dumps(jsonrpc.error(id, -32022, data=data)).encode()


def messages(id: Any) -> list[bytes]:
    """What servers say while a request runs, and at its end."""
    tool = {
        "name": "x",
        "inputSchema": {"properties": {"a": {"x-mcp-header": "A", "type": "string"}}},
    }
    question = {"method": "elicitation/create", "params": {"message": "?"}}
    return [
        answer(id, {"content": [{"type": "text", "text": "\u00e9\n"}], "isError": False}),
        answer(id, {"resultType": "complete", "content": []}),
        answer(id, CACHED),
        answer(id, {"tools": [tool], "nextCursor": "2"}),
        answer(
            id,
            {"resultType": "input_required", "inputRequests": {"q": question}, "requestState": "s"},
        ),
        error(id, supported=["2026-07-28", "2025-11-25"], requested="x"),
        message("notifications/progress", progressToken=id, progress=0.5, total=1, message="half"),
        message("notifications/message", level="info", data={"a": 1}),
        message("notifications/tools/list_changed"),
        message("notifications/cancelled", requestId="q"),
        message("elicitation/create", "q", message="?", requestedSchema={"type": "object"}),
        message("roots/list", 1),
        message("ping", 2),
        b"[" + message("ping", 3) + b"," + answer(id, {}) + b"]",
    ]


def response(body: bytes, *headers: bytes, status: int = 200) -> bytes:
    lines = [b"HTTP/1.1 %d x" % status, *headers, b"content-length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def stream(*events: bytes) -> bytes:
    body = b"".join(events)
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def responses(id: Any) -> list[bytes]:
    """Responses to a POST, or to the GET that resumes it."""
    kind = b"content-type: application/json"
    said = messages(id)
    return [
        *(response(each, kind) for each in said),
        *(stream(encode_event(each, id="t-1"), encode_event(said[0], id="t-2")) for each in said),
        stream(encode_event(b"", id="t-0", retry=100)),
        stream(encode_event(None, event="buffer_input", id="t-1"), encode_event(said[0])),
        *(response(b"", status=status) for status in (202, 404, 405, 500)),
        response(error(id), kind, status=400),
        response(b"", b"retry-after: 5", status=503),
        response(b"", b"location: /mcp2?a=b", status=307),
        response(b"", b'www-authenticate: Bearer realm="x", scope="y"', status=401),
    ]


class FuzzClient:
    """A client, and a server that answers as it should unless a test does."""

    steps = 0
    """Effects performed and events taken so far."""
    damage = 0.3
    """How many of the answers of the server are mutated ones."""

    def __init__(self, random: Mutator, **settings: Any) -> None:
        self.random, self.now = random, 0.0
        self.ended: Counter[int] = Counter()
        self.is_closed = False
        self.open: dict[int, OpenExchange] = {}
        self.input = b""
        self.is_stopping = False
        self.questions: list[RequestId] = []
        self.version = "2025-11-25"
        self.client = Client(
            capabilities=CAPABILITIES,
            jitter=random.random,
            reconnect=ReconnectPolicy(initial_delay=0.1, max_delay=1.0, max_attempts=3),
            trace=Tracer("client", lambda line: None) if random.random() < 0.3 else None,
            **settings,
        )

    def run_pending(self) -> None:
        self.client.drive(self.perform, self.happened)

    def perform(self, effect: Any) -> None:
        self.steps += 1
        match effect:
            case OpenExchange():
                self.open[effect.exchange] = effect
            case AbortExchange():
                self.open.pop(effect.exchange, None)
            case WriteStdin():
                self.input += effect.data
            case StartProcess():
                self.input = b""
            case KillProcess() | TerminateProcess() | CloseStdin():
                self.is_stopping = True
            case _:
                pass

    def happened(self, event: ClientEvent) -> None:
        self.steps += 1
        match event:
            case CallCompleted() | CallFailed():
                self.ended[event.call] += 1
            case Closed():
                self.is_closed = True
            case ServerRequestReceived():
                self.questions.append(event.request.id)
                if self.random.random() < 0.5:
                    self.answer_questions()
            case _:
                pass

    def exchange(self, effect: OpenExchange, data: bytes) -> None:
        """Answer a request with these bytes, in pieces, and close."""
        if self.open.pop(effect.exchange, None) is None:
            return
        connection = ClientConnection(self.client)
        connection.begin(effect)
        for piece in self.random.pieces(data):
            connection.receive_data(piece, now=self.now)
            self.run_pending()
        connection.receive_eof(now=self.now)
        self.run_pending()

    def proper(self, effect: OpenExchange) -> bytes:
        """The response of a server that works."""
        kind = b"content-type: application/json"
        if effect.head.method != b"POST":
            return response(b"", status=405 if effect.head.method == b"GET" else 200)
        asked = as_object(json.loads(effect.body))
        if asked is None or "id" not in asked or "method" not in asked:
            return response(b"", status=202)
        result = self.result(asked["method"])
        return response(answer(asked["id"], result), kind, b"mcp-session-id: session-1")

    def damaged(self, effect: OpenExchange) -> bytes:
        """A mutated response."""
        asked = as_object(json.loads(effect.body or b"{}")) or {}
        id = asked.get("id", 1)
        corpus = responses(id)
        corpus.append(stream(b"event: endpoint\ndata: /messages?s=1\n\n", encode_event(corpus[0])))
        corpus += [self.proper(effect)] * 4
        return self.random.mutated(self.random.choice(corpus), corpus)

    def answer_requests(self) -> None:
        """Answer all HTTP requests that wait, some with mutated responses."""
        for _ in range(100):
            if not self.open:
                return
            effect = next(iter(self.open.values()))
            is_damaged = self.random.random() < self.damage
            self.exchange(effect, self.damaged(effect) if is_damaged else self.proper(effect))

    def answer_lines(self) -> None:
        """Answer all requests that were written to the process, or end it if it is to end."""
        for _ in range(100):
            lines, self.input = self.input.split(b"\n"), b""
            for line in lines:
                asked = as_object(json.loads(line or b"{}"))
                if asked is not None and "id" in asked and "method" in asked:
                    reply = answer(asked["id"], self.result(asked["method"]))
                    self.client.receive_process_part(StdoutData(reply + b"\n"), now=self.now)
                    self.run_pending()
            if self.is_stopping:
                self.exit()
            if not self.input:
                return

    def result(self, method: str) -> Any:
        info = {"name": "server", "version": "1"}
        if method == "initialize":
            return {"protocolVersion": self.version, "capabilities": {}, "serverInfo": info}
        if method == "server/discover":
            return {
                "resultType": "complete",
                "supportedVersions": [MODERN],
                "capabilities": {},
                "serverInfo": info,
                "ttlMs": 0,
                "cacheScope": "private",
            }
        return {"resultType": "complete"}

    def answer_questions(self) -> None:
        """The application answers what it was asked."""
        for id in self.questions:
            self.client.respond(id, {"action": "accept"}, now=self.now)
        self.questions.clear()

    def exit(self) -> None:
        """The server process ends."""
        self.is_stopping = False
        for part in (ProcessExited(1), StderrClosed(), StdoutClosed()):
            self.client.receive_process_part(part, now=self.now)
            self.run_pending()

    def call(self) -> int | None:
        """A request; None if the client is closed."""
        method = self.random.choice(("tools/call", "tools/list", "resources/read"))
        params = {"name": "x", "uri": "file:///a", "arguments": {"a": "b"}}
        try:
            handle = self.client.call(
                method,
                params,
                timeout=5,
                total_timeout=20,
                now=self.now,
                idempotent=self.random.random() < 0.3,
            )
        except LocalProtocolError:
            return None
        self.run_pending()
        return handle

    def pass_time(self, seconds: float, answered: Callable[[], None]) -> None:
        """Let time pass; ``answered`` answers whatever the client asks meanwhile."""
        end = self.now + seconds
        for _ in range(20_000):
            self.answer_questions()
            self.run_pending()
            answered()
            due = self.client.next_deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.client.handle_timeout(now=self.now)
            self.run_pending()
        else:
            raise AssertionError("a deadline that does not pass")
        self.now = max(end, self.now)


def http_client(random: Mutator, http11: Any) -> FuzzClient:
    """A connected client of one transport or another."""
    known_servers = KnownServers()
    versions = random.choice((HANDSHAKE_VERSIONS, tuple(REVISIONS), (MODERN,)))
    if random.random() < 0.25:
        versions = HANDSHAKE_VERSIONS
        known_servers.remember(URL, "http+sse", Era.LEGACY)
    listen = random.random() < 0.5
    return FuzzClient(
        random,
        target=URL,
        http11=http11,
        versions=versions,
        known_servers=known_servers,
        standalone_stream=listen,
    )
