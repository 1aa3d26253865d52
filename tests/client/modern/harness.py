"""Clients that speak all revisions, their servers of the stateless one, and what these say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sansmcp import ClientSettings
from sansmcp.effects import ClientEffect, KillProcess, OpenExchange, StartProcess, WriteStdin
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Connected,
    ProtocolViolation,
    ServerRequestReceived,
)
from sansmcp.revisions import REVISIONS
from sansmcp.types import Era, Unpack

from ..harness import URL, Asked, ClientHarness
from ..process_harness import COMMAND, ProcessHarness

MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
SUBSCRIPTION = PREFIX + "subscriptionId"
TASKS = PREFIX + "tasks"
META: Mapping[str, Any] = {
    PREFIX + "protocolVersion": MODERN,
    PREFIX + "clientCapabilities": {"extensions": {TASKS: {}}},
    PREFIX + "clientInfo": {"name": "sansmcp", "version": "0"},
}


class ModernClientHarness(ClientHarness):
    """A client that is ready to find out what its server speaks."""

    def __init__(
        self, *, jitter: float = 0.5, url: str = URL, **settings: Unpack[ClientSettings]
    ) -> None:
        options: ClientSettings = {
            "versions": tuple(REVISIONS),
            "standalone_stream": True,
            **settings,
        }
        super().__init__(jitter=jitter, url=url, **options)

    def start(self) -> Asked:
        """Up to ``server/discover``."""
        self.run_command(self.client.start)
        asked = self.take()
        assert asked.json["method"] == "server/discover"
        return asked

    def connect(self, version: str = MODERN, session: str | None = None) -> ModernClientHarness:
        asked = self.start()
        asked.answer(discovered(asked.id, version))
        assert self.era() is Era.MODERN
        self.events.clear()
        return self

    def era(self) -> Era:
        """Of the conversation that has just been opened."""
        event = self.events[-1]
        assert isinstance(event, Connected)
        return REVISIONS[event.version].era

    def learn(self, *tools: Any) -> None:
        """Let the client list the tools."""
        _, asked = self.call("tools/list")
        asked.result({"tools": list(tools)})


class ModernProcess(ProcessHarness):
    """The same, with a server that is a process; it may be started twice."""

    def __init__(self, **settings: Unpack[ClientSettings]) -> None:
        options: ClientSettings = {"versions": tuple(REVISIONS), **settings}
        super().__init__(**options)

    def perform(self, effect: ClientEffect) -> None:
        assert not isinstance(effect, OpenExchange)
        if isinstance(effect, WriteStdin):
            assert self.did[-1] == StartProcess(COMMAND)
            self.input += effect.data
        else:
            if isinstance(effect, StartProcess) and self.did:
                assert self.did[-1] == KillProcess()
                self.input = b""
            self.did.append(effect)

    def start(self) -> ModernProcess:
        """Up to ``server/discover``."""
        self.run_command(self.client.start)
        (message,) = self.written
        assert (message["id"], message["method"]) == (0, "server/discover")
        return self

    def connect(self, version: str = MODERN, session: str | None = None) -> ModernProcess:
        self.start().say(discovered(0, version))
        assert self.written == []
        self.take_events()
        return self

    def offered(self) -> str:
        """The version in the ``initialize`` that has been written."""
        (message,) = self.written
        assert message["method"] == "initialize"
        assert "_meta" not in message["params"]
        version = message["params"]["protocolVersion"]
        assert isinstance(version, str)
        return version


def discovered(id: Any, *versions: str, **more: Any) -> dict[str, Any]:
    """The answer to ``server/discover``."""
    result: dict[str, Any] = {
        "resultType": "complete",
        "supportedVersions": list(versions or (MODERN,)),
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        **more,
    }
    return {"jsonrpc": "2.0", "id": id, "result": result}


def refused_version(id: Any, *supported: str) -> dict[str, Any]:
    data = {"supported": list(supported), "requested": MODERN}
    return failed(id, -32022, "that version is not served", data)


def failed(id: Any, code: int, message: str = "no", data: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}}


def offered(asked: Asked) -> str:
    """The version in an ``initialize`` that is like any other: of the new era is nothing in it."""
    message = asked.json
    assert message["method"] == "initialize"
    assert "_meta" not in message["params"]
    for name in ("mcp-protocol-version", "mcp-method", "mcp-session-id"):
        assert asked.header(name) is None
    version = message["params"]["protocolVersion"]
    assert isinstance(version, str)
    return version


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def mirrored(header: str, kind: str = "string") -> dict[str, Any]:
    """The schema of an argument that a header repeats."""
    return {"type": kind, "x-mcp-header": header}


def question(method: str = "elicitation/create", **params: Any) -> dict[str, Any]:
    return {"method": method, "params": params}


def input_required(questions: Any = None, state: Any = None) -> dict[str, Any]:
    result: dict[str, Any] = {"resultType": "input_required"}
    if questions is not None:
        result["inputRequests"] = questions
    if state is not None:
        result["requestState"] = state
    return result


def asked_ids(harness: ClientHarness) -> list[Any]:
    """The ids of the questions to the application."""
    return [
        event.request.id for event in harness.events if isinstance(event, ServerRequestReceived)
    ]


def ends(harness: ClientHarness) -> list[CallCompleted | CallFailed]:
    return [event for event in harness.events if isinstance(event, CallCompleted | CallFailed)]


def violations(harness: ClientHarness) -> list[str]:
    return [event.error.reason for event in harness.events if isinstance(event, ProtocolViolation)]
