"""Whoever leaves, or cancels us, at whatever step of a request: nothing of it is left."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp_asgi import AsgiApp, Call, asgi_app
from sansmcp_local import Loop, Task, current_loop

from ..leak_check import freeze_what_is_there, no_leaks, unfinished
from ..stepping import run_with_steps, wherever
from ..tool_app import ToolApp
from .loops import Run, tasks, until
from .test_ending import Peer, modern

CALL: dict[str, Any] = {**modern("work"), "params": {"name": "work", "arguments": {}}}

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    freeze_what_is_there()


class Disturbance:
    """Cancels a request when it waits for the n-th time, or leaves when it is served.

    It is told of its task as soon as there is one.
    """

    def __init__(self, at: int, kind: str) -> None:
        self.has_happened = False
        self.task: Task
        self._at = at
        self._kind = kind
        self._services = 0

    def waits(self, number: int, _: object) -> None:
        if self._kind == "cancel" and number == self._at:
            self.has_happened = True
            self.task.cancel()

    def serves(self) -> None:
        self._services += 1
        if self._kind == "leave" and self._services == self._at:
            self.has_happened = True


class Leaver(Peer):
    """An ASGI server whose client leaves, or which cancels us."""

    def __init__(
        self, loop: Loop, message: Any, version: str, disturbance: Disturbance | None = None
    ) -> None:
        super().__init__(loop, message, version)
        self._disturbance = disturbance or Disturbance(0, "never")

    async def ask(self, app: AsgiApp) -> None:
        try:
            await run_with_steps(super().ask(app), self._disturbance.waits)
        finally:
            self.ended.set()

    async def receive(self) -> Any:
        self._look()
        return await super().receive()

    async def send(self, message: Any) -> None:
        self._look()
        if self.gone.is_set():
            raise OSError("The client has left")
        await super().send(message)

    def _look(self) -> None:
        self._disturbance.serves()
        if self._disturbance.has_happened:
            self.requests.clear()
            self.gone.set()


class Conversation:
    """An application on a loop, and those who ask it."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._running = self._cancelled = 0
        world = ToolApp()
        world.tool(self.work)
        self._app = asgi_app(world.app, graceful_timeout=0.1, versions=(version,))

    async def work(self, call: Call) -> Any:
        self._running += 1
        try:
            for _ in range(3):
                await call.notify("notifications/x")
            return {}
        except BaseException:
            self._cancelled += 1
            raise
        finally:
            self._running -= 1

    async def run(self, disturbance: Disturbance) -> None:
        session = () if self._version == "2026-07-28" else await self._begin()
        await self._ask(session, disturbance)
        await until(lambda: not (self._running or unfinished()))
        await self._ask(session, None)
        await self._app.stop()
        assert not self._cancelled or self._version == "2026-07-28"

    async def _begin(self) -> tuple[tuple[bytes, bytes], ...]:
        """Begin a session; returns the fields that name it."""
        asking = Leaver(current_loop(), HELLO, self._version)
        await asking.ask(self._app)
        fields = dict(asking.sent[0]["headers"])
        return ((b"mcp-session-id", fields[b"mcp-session-id"]),)

    async def _ask(
        self, session: tuple[tuple[bytes, bytes], ...], disturbance: Disturbance | None
    ) -> None:
        message = CALL if session else modern("work")
        asking = Leaver(current_loop(), message, self._version, disturbance)
        asking.scope["headers"] = [*asking.scope["headers"], *session]
        task = current_loop().spawn(asking.ask, self._app)
        if disturbance is not None:
            disturbance.task = task
        await asking.ended.wait()
        assert asking.is_complete or (disturbance is not None and disturbance.has_happened)


@pytest.mark.parametrize("kind", ["cancel", "leave"])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_wherever_it_happens(run: Run, kind: str, version: str) -> None:
    def once(at: int) -> bool:
        disturbance = Disturbance(at, kind)

        async def main() -> None:
            before = tasks()
            await Conversation(version).run(disturbance)
            await until(lambda: tasks() == before)

        with no_leaks():
            run(main)
        return disturbance.has_happened

    assert wherever(once) >= 3
