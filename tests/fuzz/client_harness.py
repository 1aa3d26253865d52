"""A client that makes calls, and a server that sends valid or mutated responses."""

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


def result_message(id: Any, result: Any) -> bytes:
    return json.dumps(jsonrpc.response(id, result)).encode()


def error(id: Any, **data: Any) -> bytes:
    return json.dumps(jsonrpc.error(id, -32022, data=data)).encode()


def messages(id: Any) -> list[bytes]:
    """Return messages that servers send while a request runs, and its responses."""
    tool = {
        "name": "x",
        "inputSchema": {"properties": {"a": {"x-mcp-header": "A", "type": "string"}}},
    }
    input_request = {"method": "elicitation/create", "params": {"message": "?"}}
    return [
        result_message(id, {"content": [{"type": "text", "text": "\u00e9\n"}], "isError": False}),
        result_message(id, {"resultType": "complete", "content": []}),
        result_message(id, CACHED),
        result_message(id, {"tools": [tool], "nextCursor": "2"}),
        result_message(
            id,
            {
                "resultType": "input_required",
                "inputRequests": {"q": input_request},
                "requestState": "s",
            },
        ),
        error(id, supported=["2026-07-28", "2025-11-25"], requested="x"),
        message("notifications/progress", progressToken=id, progress=0.5, total=1, message="half"),
        message("notifications/message", level="info", data={"a": 1}),
        message("notifications/tools/list_changed"),
        message("notifications/cancelled", requestId="q"),
        message("elicitation/create", "q", message="?", requestedSchema={"type": "object"}),
        message("roots/list", 1),
        message("ping", 2),
        b"[" + message("ping", 3) + b"," + result_message(id, {}) + b"]",
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
    """Return responses to a POST, or to the GET that resumes its stream."""
    kind = b"content-type: application/json"
    sent = messages(id)
    return [
        *(response(each, kind) for each in sent),
        *(stream(encode_event(each, id="t-1"), encode_event(sent[0], id="t-2")) for each in sent),
        stream(encode_event(b"", id="t-0", retry=100)),
        stream(encode_event(None, event="buffer_input", id="t-1"), encode_event(sent[0])),
        *(response(b"", status=status) for status in (202, 404, 405, 500)),
        response(error(id), kind, status=400),
        response(b"", b"retry-after: 5", status=503),
        response(b"", b"location: /mcp2?a=b", status=307),
        response(b"", b'www-authenticate: Bearer realm="x", scope="y"', status=401),
    ]


class FuzzClient:
    """A client, and a server that sends valid or mutated responses."""

    steps = 0
    """Effects performed and events taken so far."""
    damage = 0.3
    """The fraction of the server's responses that are mutated."""
    machine: type[Client] = Client

    def __init__(self, random: Mutator, **settings: Any) -> None:
        self.random, self.now = random, 0.0
        self.ended: Counter[int] = Counter()
        self.is_closed = False
        self.open: dict[int, OpenExchange] = {}
        self.input = b""
        self.is_stopping = False
        self.server_requests: list[RequestId] = []
        self.version = "2025-11-25"
        self.client = self.machine(
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
                self.server_requests.append(event.request.id)
                if self.random.random() < 0.5:
                    self.answer_server_requests()
            case _:
                pass

    def exchange(self, effect: OpenExchange, data: bytes) -> None:
        """Feed these bytes as the response of an exchange, in pieces, and close."""
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
        """Return the valid response to a request."""
        kind = b"content-type: application/json"
        if effect.head.method != b"POST":
            return response(b"", status=405 if effect.head.method == b"GET" else 200)
        request = as_object(json.loads(effect.body))
        if request is None or "id" not in request or "method" not in request:
            return response(b"", status=202)
        result = self.result(request["method"])
        return response(result_message(request["id"], result), kind, b"mcp-session-id: session-1")

    def damaged(self, effect: OpenExchange) -> bytes:
        """Return a mutated response to a request."""
        request = as_object(json.loads(effect.body or b"{}")) or {}
        id = request.get("id", 1)
        corpus = responses(id)
        corpus.append(stream(b"event: endpoint\ndata: /messages?s=1\n\n", encode_event(corpus[0])))
        corpus += [self.proper(effect)] * 4
        return self.random.mutated(self.random.choice(corpus), corpus)

    def answer_requests(self) -> None:
        """Respond to all open HTTP requests, to some with mutated responses."""
        for _ in range(100):
            if not self.open:
                return
            effect = next(iter(self.open.values()))
            is_damaged = self.random.random() < self.damage
            self.exchange(effect, self.damaged(effect) if is_damaged else self.proper(effect))

    def answer_lines(self) -> None:
        """Respond to all requests that were written to the process, or end it if it is stopping."""
        for _ in range(100):
            lines, self.input = self.input.split(b"\n"), b""
            for line in lines:
                request = as_object(json.loads(line or b"{}"))
                if request is not None and "id" in request and "method" in request:
                    reply = result_message(request["id"], self.result(request["method"]))
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

    def answer_server_requests(self) -> None:
        """Respond to the server requests."""
        for id in self.server_requests:
            self.client.respond(id, {"action": "accept"}, now=self.now)
        self.server_requests.clear()

    def exit(self) -> None:
        """End the server process."""
        self.is_stopping = False
        for part in (ProcessExited(1), StderrClosed(), StdoutClosed()):
            self.client.receive_process_part(part, now=self.now)
            self.run_pending()

    def call(self) -> int | None:
        """Make a call and return its handle; None if the client is closed."""
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
        """Advance the time; ``answered`` responds to requests that the client makes meanwhile."""
        end = self.now + seconds
        for _ in range(20_000):
            self.answer_server_requests()
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
    """Return a connected client of one of the transports."""
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
