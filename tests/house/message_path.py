"""What one message passes through: ``python -m tests.house.message_path`` writes it anew.

ARCHITECTURE.md follows a ``tools/call`` from bytes to its handler and back, and its answer from the
event stream to its caller. Both ways are traced here, at 2025-11-25 over HTTP/1.1, with the default
settings and without sockets. A step of a list is a function; the author of the page chooses it and
says what it does. The trace decides the order of the steps, and that no module is left out.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
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

HELPERS = frozenset(
    {
        "codecs/delimited_buffer",
        "codecs/http11_framing",
        "codecs/headers",
        "codecs/json",
        "errors",
        "http",
        "limits",
        "meta_keys",
        "shares",
        "states",
        "store",
        "timers",
        "types",
    }
)
"""Modules that no list has to name: tables, words and small functions that everything uses."""

UNKNOWN = "(say what it does)"

_ITEM = re.compile(r"^\d+\. `([\w/]+)` `([\w.]+)`: (.*(?:\n +.*)*)\n", re.MULTILINE)


class Function(NamedTuple):
    """A function of the library, or a method."""

    module: str
    """Its path below ``sansmcp``, without the ending."""
    name: str


Clauses = dict[Function, str]
"""The steps of a list, and what each does."""


def section(page: str, heading: str) -> str:
    """What stands under a heading of the page."""
    _, found, rest = page.partition(f"\n### {heading}\n")
    assert found, f"ARCHITECTURE.md has no heading {heading!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def items(text: str) -> str:
    """The list in a section, as it stands there."""
    return "".join(found[0] for found in _ITEM.finditer(text))


def clauses(text: str) -> Clauses:
    """The list in a section: what each step does."""
    return {
        Function(module, name): " ".join(clause.split())
        for module, name, clause in _ITEM.findall(text)
    }


def render(path: Sequence[Function], known: Clauses) -> str:
    """The list of what a message passes through: known steps, and one of each other module."""
    listed = {function.module for function in path if function in known} | HELPERS
    lines: list[str] = []
    for function in path:
        if function in known or function.module not in listed:
            listed.add(function.module)
            number = f"{len(lines) + 1}. "
            item = f"{number}`{function.module}` `{function.name}`: {known.get(function, UNKNOWN)}"
            indent = " " * len(number)
            lines.append(textwrap.fill(item, 100, subsequent_indent=indent, break_on_hyphens=False))
    return "".join(f"{line}\n" for line in lines)


# Tracing


def trace(act: Callable[[], None]) -> tuple[Function, ...]:
    """The functions of the library that are entered, in the order of their first entry."""
    functions = _functions()
    entered: dict[Function, None] = {}

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        function = functions.get((code.co_filename, code.co_firstlineno))
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
def _functions() -> dict[tuple[str, int], Function]:
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
        self.run_pending()
        sent = b""
        while isinstance(effect := self._connection.next_effect(), SendBytes):
            sent += effect.data
        return sent


class _ClientHost(ClientDriver[PendingResult, None]):
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

    def call(self, method: str, params: Params | None = None, **_: Any) -> PendingResult:
        pending = PendingResult()
        self.begin_call(pending, method, params, None, {})
        return pending

    def notify(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError

    def next_request(self) -> tuple[ClientConnection, bytes]:
        """The next request, and the connection for its response."""
        connection = ClientConnection(self.core)
        return connection, connection.begin(self._requests.popleft())

    def receive(self, connection: ClientConnection, data: bytes) -> None:
        """Take the bytes of a response."""
        connection.receive_data(data, now=0.0)
        self.run_pending()


@functools.cache
def paths() -> dict[str, tuple[Function, ...]]:
    """What is entered, by the heading under which the page lists it."""
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


def renewed(page: str) -> str:
    """The page with its lists as they have to be."""
    for heading, path in paths().items():
        text = section(page, heading)
        old, new = items(text), render(path, clauses(text))
        page = page.replace(text, text.replace(old, new) if old else f"\n{new}{text}")
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
    if UNKNOWN in PAGE.read_text():
        print(f"{PAGE.name} has new steps: look for {UNKNOWN!r}", file=sys.stderr)
