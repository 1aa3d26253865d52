"""Requests that stand alone: what they say of themselves, and the headers that repeat it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sansmcp import App, BodyData, BodyEnd, RequestHead, ServerCall, StateSigner

from ...handlers import nothing
from ..harness import BOTH, JSON, RawExchange, ServerHarness

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
VERSION = PREFIX + "protocolVersion"
CAPABILITIES = PREFIX + "clientCapabilities"
CLIENT_INFO = PREFIX + "clientInfo"
SERVER_INFO = PREFIX + "serverInfo"
LOG_LEVEL = PREFIX + "logLevel"
SUBSCRIPTION_ID = PREFIX + "subscriptionId"

KEY = b"sixteen bytes at least"
CALL = {"name": "add", "arguments": {"a": 1}}
"""The parameters of a tool call."""

_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def modern_app() -> App:
    """An application with everything; the test answers its calls by hand."""
    told = {"listChanged": True}
    capabilities = {
        "tools": told,
        "prompts": told,
        "resources": {"subscribe": True, **told},
    }
    app = App("bench", "1", instructions="Add.", capabilities=capabilities)
    for method in (
        "completion/complete",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "tools/call",
        "tools/list",
    ):
        app.handler(method)(nothing)
    return app


def meta(capabilities: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What each request says of itself; the names of ``more`` get the prefix."""
    added = {PREFIX + name: value for name, value in more.items()}
    return {VERSION: MODERN, CAPABILITIES: dict(capabilities or {}), **added}


def modern(id: Any, method: str = "tools/call", about: Any = None, **params: Any) -> dict[str, Any]:
    """A request of this revision."""
    if method == "tools/call":
        params = {**CALL, **params}
    params["_meta"] = meta() if about is None else about
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def notification_from(method: str, **params: Any) -> dict[str, Any]:
    """A notification of this revision."""
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta()}}


def mirrored(message: Any) -> dict[str, str | None]:
    """The headers that a client sends with a message."""
    params = message.get("params", {})
    version = params.get("_meta", {}).get(VERSION, MODERN)
    found = {"mcp-protocol-version": version, "mcp-method": message["method"]}
    if message["method"] in _NAMES:
        found["mcp-name"] = params.get(_NAMES[message["method"]])
    return found


class ModernServerHarness(ServerHarness):
    """A bench whose clients speak the stateless revision."""

    def ask(
        self,
        message: dict[str, Any],
        headers: Mapping[str, str | None] | None = None,
        *,
        principal: str = "",
    ) -> RawExchange:
        """POST a message, with the headers that belong to it; None leaves one out."""
        return self.post(
            message, headers={**mirrored(message), **(headers or {})}, principal=principal
        )

    def ask_with(self, message: Any, *more: tuple[bytes, bytes]) -> RawExchange:
        """The same, with further header lines as they are."""
        first = {"host": "localhost", "accept": BOTH, "content-type": JSON, **mirrored(message)}
        pairs = tuple((name.encode(), value.encode()) for name, value in first.items() if value)
        head = RequestHead(method=b"POST", target=b"/mcp", headers=(*pairs, *more))
        talk = RawExchange(self).feed(head).feed(BodyData(json.dumps(message).encode()))
        return talk.feed(BodyEnd())

    def start(
        self,
        message: dict[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        *,
        principal: str = "",
    ) -> tuple[RawExchange, ServerCall]:
        """A request, and the call that the application gets."""
        asked = modern(next(self.ids)) if message is None else message
        talk = self.ask(asked, headers, principal=principal)
        return talk, self.last_call()

    def refused(
        self, message: dict[str, Any], **headers: str | None
    ) -> tuple[int | None, int, Any]:
        """Status, code and reason of a refusal; no handler has run."""
        before = len(self.events)
        talk = self.ask(message, {name.replace("_", "-"): value for name, value in headers.items()})
        assert talk.ended
        assert b"\n" not in talk.body
        assert len(self.events) == before + 1
        error = talk.error
        assert error["message"]
        assert talk.json.get("id") == message.get("id")
        return talk.status, error["code"], error["data"]["reason"]


class Clock:
    """The time of day, by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def new_seal(
    *keys: bytes,
    clock: Clock | None = None,
    lifetime: float = 600.0,
    claim_once: Callable[[str], bool] | None = None,
) -> StateSigner:
    """A seal for a test."""
    return StateSigner(
        keys=keys or (KEY,), clock=clock or Clock(), lifetime=lifetime, claim_once=claim_once
    )
