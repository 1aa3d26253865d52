"""A client of HTTP+SSE on the bench: one stream to hear everything, a POST for each message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sansmcp import ServerCall, Session

from .harness import (
    JSON,
    LATEST,
    STREAM,
    RawExchange,
    ServerHarness,
    initialize,
    notification,
    request,
)


class SseClient:
    """A stream of HTTP+SSE that a client has opened."""

    def __init__(self, harness: ServerHarness, path: str = "/sse", *, principal: str = "") -> None:
        self.harness = harness
        self.path = path
        self.principal = principal
        self.stream = harness.send("GET", {"accept": STREAM}, target=path, principal=principal)
        assert self.stream.status == 200, self.stream.body
        endpoint = self.stream.events[0]
        assert endpoint.event == "endpoint"
        self.uri = endpoint.data or ""
        """Where the client POSTs its messages."""
        self._seen = 1

    def post(self, message: Any, headers: Mapping[str, str | None] | None = None) -> RawExchange:
        """A POST of a JSON value, or of bytes."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.harness.send(
            "POST",
            {"content-type": JSON, **(headers or {})},
            body,
            target=self.uri,
            principal=self.principal,
        )

    def say(self, *messages: Any) -> SseClient:
        """POST each message; the HTTP responses say nothing but that it came in."""
        for message in messages:
            talk = self.post(message)
            assert (talk.status, talk.body, talk.ended) == (202, b"", True)
        return self

    @property
    def said(self) -> list[Any]:
        """The messages on the stream since the last look."""
        events = self.stream.events[self._seen :]
        self._seen += len(events)
        assert all(event.event == "message" for event in events)
        assert all(event.id is None and event.retry is None for event in events)
        return [json.loads(event.data or "") for event in events]

    def open(
        self, version: str = LATEST, capabilities: Mapping[str, Any] | None = None
    ) -> SseClient:
        """The whole handshake."""
        self.say(initialize(version, capabilities), notification("notifications/initialized"))
        (answer,) = self.said
        assert answer["result"]["protocolVersion"] == version
        self.harness.events.clear()
        return self

    def call(self, id: Any = 1, method: str = "tools/call", **params: Any) -> ServerCall:
        """A request, and the call that the application gets."""
        self.say(request(id, method, **params))
        return self.harness.last_call()

    @property
    def session(self) -> Session:
        (session,) = self.harness.server.sessions
        return session
