"""What one message passes through: ``python -m tests.house.message_path`` prints it.

ARCHITECTURE.md follows a ``tools/call`` from bytes to its handler and back, and its answer from the
event stream to its caller. Both ways are traced here, at 2025-11-25 over HTTP/1.1, with the default
settings and without sockets: each function in the order of its first call. The page is written by a
person, who chooses the steps; a test checks that the functions which it names exist.
"""

from __future__ import annotations

import functools
import re
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, NamedTuple

from sansmcp import (
    App,
    BaseCall,
    Client,
    ClientConnection,
    ClientDriver,
    MemoryStore,
    PendingResult,
    Server,
    ServerCall,
    ServerConnection,
    ServerDriver,
)
from sansmcp.base_client import ServerRequest
from sansmcp.effects import ClientEffect, OpenExchange, SendBytes
from sansmcp.events import ServerEvent
from sansmcp.messages import Params
from sansmcp.testing import sequential_tokens

from .sources import ROOT, core

PAGE = ROOT / "ARCHITECTURE.md"

AT_THE_SERVER = "At the server, from bytes to the handler and back"
AS_A_STREAM = "At the server, if the response becomes an event stream"
AT_THE_CLIENT = "At the client, from the event stream to the caller"

_ITEM = re.compile(r"^\d+\. `([\w/]+)` `([\w.]+)`: ", re.MULTILINE)


class Function(NamedTuple):
    """A function of the library, or a method."""

    module: str
    """Its path below ``sansmcp``, without the ending."""
    name: str


def named(page: str) -> list[Function]:
    """The functions that the lists of a page name."""
    return [Function(module, name) for module, name in _ITEM.findall(page)]


# Tracing


def trace(act: Callable[[], None]) -> tuple[Function, ...]:
    """The functions of the library that are entered, in the order of their first entry."""
    known = functions()
    entered: dict[Function, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        function = known.get((code.co_filename, code.co_firstlineno))
        if event == "call" and function is not None:
            entered.setdefault(function)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(before)
    return tuple(entered)


@functools.cache
def functions() -> dict[tuple[str, int], Function]:
    """Every function of the library, by its file and its first line."""
    found: dict[tuple[str, int], Function] = {}
    for module in core():
        path = module.name.replace(".", "/")
        file = f"{path}/__init__.py" if module.is_package else f"{path}.py"
        for name, node in module.functions():
            line = min(part.lineno for part in (node, *node.decorator_list))
            found[str(ROOT / file), line] = Function(path.removeprefix("sansmcp/"), name)
    return found


# A client and a server without a network between them


class _Handle(BaseCall[Any, None]):
    """What the handler gets."""

    def wait_for_answer(self, id: int) -> Any:
        raise NotImplementedError

    def now(self) -> float:
        return 0.0

    def run_pending(self) -> None:
        raise NotImplementedError


class _ServerHost(ServerDriver):
    """Calls handlers in place."""

    def __init__(self, core: Server) -> None:
        super().__init__(core, MemoryStore(core.limits))
        self._connection = ServerConnection(core, driver=self, now=0.0)

    def now(self) -> float:
        return 0.0

    def unexpected(self, error: Exception) -> None:
        raise error

    def handle_for(self, call: ServerCall) -> _Handle:
        return _Handle(call)

    def start_task(self, call: ServerCall, result: Awaitable[Any]) -> None:
        raise NotImplementedError

    def authentication_failed(self, error: Exception) -> None:
        raise error

    def on_handler_error(self, call: ServerCall, error: Exception) -> None:
        raise error

    def on_other_event(self, event: ServerEvent) -> None:
        pass

    def wake(self) -> None:
        """What there is to send is pulled after each request anyway."""

    def respond(self, request: bytes) -> bytes:
        """Take the bytes of a request; returns those of the response."""
        self._connection.receive_data(request, now=0.0)
        self.pump()
        sent = b""
        while isinstance(effect := self._connection.next_effect(), SendBytes):
            sent += effect.data
        return sent


class _ClientHost(ClientDriver):
    """Keeps its HTTP requests until they are taken."""

    def __init__(self) -> None:
        self._requests: deque[OpenExchange] = deque()
        core = Client(
            "http://localhost/mcp",
            jitter=lambda: 0.0,
            versions=("2025-11-25",),
            standalone_stream=False,
        )
        super().__init__(core, None, PendingResult(), PendingResult())
        self.begin_session()

    def now(self) -> float:
        return 0.0

    def unexpected(self, error: Exception) -> None:
        raise error

    def perform_effect(self, effect: ClientEffect) -> None:
        if isinstance(effect, OpenExchange):
            self._requests.append(effect)

    def on_handler_error(self, request: ServerRequest, error: Exception) -> None:
        raise error

    def call(self, method: str, params: Params | None) -> PendingResult:
        pending = PendingResult()
        self.begin_call(pending, method, params, None, {})
        return pending

    def next_request(self) -> tuple[ClientConnection, bytes]:
        """The next request, and the connection for its response."""
        connection = ClientConnection(self.core)
        return connection, connection.begin(self._requests.popleft())

    def receive(self, connection: ClientConnection, data: bytes) -> None:
        """Take the bytes of a response."""
        connection.receive_data(data, now=0.0)
        self.pump()


@functools.cache
def paths() -> dict[str, tuple[Function, ...]]:
    """What is entered, by the heading of the page that tells of it."""
    plain, _ = _call()
    stream, answer = _call(stream_after=0.0)
    passed = {function.module for function in plain}
    return {
        AT_THE_SERVER: plain,
        AS_A_STREAM: tuple(function for function in stream if function.module not in passed),
        AT_THE_CLIENT: answer,
    }


def _call(**settings: Any) -> tuple[tuple[Function, ...], tuple[Function, ...]]:
    """Call a tool; returns what is entered at the server, and what by the answer at the client."""
    app = App("greeter", "1.0")

    @app.handler("tools/call", inline=True)
    def greet(call: _Handle) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"Hello {call.params['name']}"}]}

    server = _ServerHost(Server(app, new_token=sequential_tokens(), **settings))
    client = _ClientHost()
    for _ in ("initialize", "notifications/initialized"):
        connection, request = client.next_request()
        client.receive(connection, server.respond(request))

    def call() -> tuple[tuple[Function, ...], tuple[Function, ...]]:
        pending = client.call("tools/call", {"name": "World"})
        connection, request = client.next_request()
        responses: list[bytes] = []
        at_server = trace(lambda: responses.append(server.respond(request)))
        at_client = trace(lambda: client.receive(connection, responses[0]))
        assert "Hello World" in str(pending.result())
        return at_server, at_client

    call()  # what is imported when it is first needed is no part of the way
    return call()


if __name__ == "__main__":
    for heading, path in paths().items():
        print(f"\n{heading}\n")
        for function in path:
            print(f"{function.module} {function.name}")
