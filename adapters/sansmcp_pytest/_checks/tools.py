"""The application that the checks of servers call.

Each handler is written once, as a coroutine function. For an adapter whose handlers are plain
functions it is wrapped in one: its awaits then return at once, since the adapter's methods block.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from sansmcp.app import App
from sansmcp.base_call import BaseCall
from sansmcp.errors import JsonRpcError
from sansmcp.input_required import InputRequest, InputRequired
from sansmcp.messages import Params

from .adapter_under_test import ServerUnderTest

_TICK = 0.005
"""Seconds between two checks of the events that a handler waits for."""


class ToolCall:
    """A tool's view of its call, the same for async and plain handlers."""

    def __init__(self, tools: Tools, call: BaseCall[Any, Any]) -> None:
        self._tools = tools
        self._call = call
        self.name: str = call.params["name"]
        self.arguments: dict[str, Any] = call.params.get("arguments", {})
        self.input_responses = call.input_responses

    @property
    def principal(self) -> str:
        """The user of the client; empty if that is not known."""
        return self._call.principal

    async def progress(self, done: int) -> None:
        """Report progress."""
        await _done(self._call.progress(done))

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification."""
        await _done(self._call.notify(method, params))

    async def tell_session(self, method: str) -> None:
        """Send a notification that belongs to no call."""
        await _done(self._call.peer.notify(method))

    async def disconnect(self, retry: float) -> None:
        """Close the connection, and let the client reconnect."""
        await _done(self._call.disconnect(retry=retry))

    async def ask(self, method: str, params: Params) -> Any:
        """Send a server request, and return the result."""
        return await _done(self._call.ask(method, params))

    async def wait(self, *events: threading.Event) -> None:
        """Wait until one of the events is set."""
        while not any(event.is_set() for event in events):
            await _done(self._tools.subject.sleep(self._call, _TICK))


Tool: TypeAlias = Callable[[ToolCall], Awaitable[Any]]


class Tools:
    """The application, and the events by which a check and its handlers synchronise."""

    def __init__(self, subject: ServerUnderTest) -> None:
        self.subject = subject
        self.begun = threading.Semaphore(0)
        """Released by each handler that begins to wait."""
        self.go_on = threading.Event()
        """Set by the check to let waiting handlers continue."""
        self.stopped = threading.Event()
        """Set when a handler that waits without end was stopped."""
        self.over = threading.Event()
        """Set when the check is over: handlers must not wait."""
        self.sent = 0
        """The number of notifications that a flood has sent."""
        self.flooded = threading.Event()
        """Set when a flood has sent all of them."""
        self.app = App("tools-of-the-checks", "1")
        self.app.handler("tools/list")(self._native(self._list))
        self.app.handler("tools/call")(self._native(self._call))

    def _native(self, handle: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Any], Any]:
        return handle if self.subject.is_async else lambda call: _run_at_once(handle(call))

    async def _list(self, call: BaseCall[Any, Any]) -> Any:
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}

    async def _call(self, call: BaseCall[Any, Any]) -> Any:
        tool_call = ToolCall(self, call)
        tools: dict[str, Tool] = {
            "echo": self._echo,
            "large": self._large,
            "count": self._count,
            "compute": self._compute,
            "wait": self._wait,
            "hang": self._hang,
            "let go": self._let_go,
            "ask": self._ask,
            "ask in rounds": self._ask_in_rounds,
            "refuse": self._refuse,
            "raise": self._raise,
            "raise what is not JSON": self._raise_what_is_not_json,
            "flood": self._flood,
            "principal": self._principal,
            "print": self._print,
            "tell": self._tell,
        }
        return await tools[tool_call.name](tool_call)

    async def _echo(self, call: ToolCall) -> Any:
        return {"echo": call.arguments}

    async def _large(self, call: ToolCall) -> Any:
        return {"text": "x" * call.arguments["size"]}

    async def _count(self, call: ToolCall) -> Any:
        for number in range(1, call.arguments["to"] + 1):
            await call.progress(number)
        return {"done": True}

    async def _compute(self, call: ToolCall) -> Any:
        """Report progress a few times, then give nothing else a turn until the check goes on."""
        for number in range(1, call.arguments["reports"] + 1):
            await call.progress(number)
        while not (self.go_on.is_set() or self.over.is_set()):
            time.sleep(_TICK)
        return {"done": True}

    async def _wait(self, call: ToolCall) -> Any:
        """Report progress, wait for the check, and report progress again."""
        await call.progress(1)
        self.begun.release()
        await call.wait(self.go_on, self.over)
        await call.progress(2)
        return {"done": True}

    async def _hang(self, call: ToolCall) -> Any:
        if call.arguments.get("says something"):
            await call.progress(1)
        self.begun.release()
        try:
            await call.wait(self.over)
        finally:
            if not self.over.is_set():
                self.stopped.set()
        return {"done": True}

    async def _tell(self, call: ToolCall) -> Any:
        await call.tell_session("notifications/tools/list_changed")
        await call.wait(self.go_on, self.over)
        return {"done": True}

    async def _let_go(self, call: ToolCall) -> Any:
        await call.progress(1)
        await call.disconnect(0.01)
        self.begun.release()
        await call.wait(self.go_on, self.over)
        await call.progress(2)
        return {"done": True}

    async def _ask(self, call: ToolCall) -> Any:
        return {"answer": await call.ask("elicitation/create", {"message": "name?"})}

    async def _ask_in_rounds(self, call: ToolCall) -> Any:
        if not call.input_responses:
            request = InputRequest("elicitation/create", {"message": "name?"})
            return InputRequired({"name": request}, {"asked": True})
        return {"answer": call.input_responses["name"]}

    async def _refuse(self, call: ToolCall) -> Any:
        raise JsonRpcError(-7, "no", [1])

    async def _raise(self, call: ToolCall) -> Any:
        raise ValueError("the password is hunter2")

    async def _raise_what_is_not_json(self, call: ToolCall) -> Any:
        raise JsonRpcError(-7, "no", object())

    async def _flood(self, call: ToolCall) -> Any:
        for number in range(call.arguments["count"]):
            params = {"level": "info", "data": {"number": number, "text": "x" * 16_000}}
            await call.notify("notifications/message", params)
            self.sent += 1
        self.flooded.set()
        return {"done": True}

    async def _principal(self, call: ToolCall) -> Any:
        return {"principal": call.principal}

    async def _print(self, call: ToolCall) -> Any:
        print("a handler has printed this")
        return {"done": True}


def stdio_app(subject: ServerUnderTest) -> App:
    """Return the application that ``stdio_command()`` of a subject must serve."""
    return Tools(subject).app


async def _done(result: Any) -> Any:
    """Return the result of a method of the adapter's call, and await it if it is awaitable."""
    return await result if inspect.isawaitable(result) else result


def _run_at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a call method of a plain handler returned an awaitable")
