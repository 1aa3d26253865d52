"""Whatever is cancelled, closed or interrupted, wherever: it ends, and nothing is left."""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

import sansmcp_blocking
import sansmcp_httpx
from sansmcp import CallError, LocalProtocolError, ReconnectPolicy
from sansmcp_local import current_loop

from ..asgi.loops import Run, tasks, until
from ..blocking.conftest import ToolApp
from ..blocking.test_cancelling import Conversation, go_through
from ..leak_check import freeze_what_is_there, no_leaks
from ..stepping import in_shares, run_with_steps, wherever

VERSIONS = ["2025-11-25", "2026-07-28"]
AT_ONCE = ReconnectPolicy(initial_delay=0.001, max_attempts=3)


@pytest.fixture(autouse=True, scope="module")
def freeze_garbage() -> None:
    freeze_what_is_there()


@contextmanager
def served(version: str) -> Generator[str, None, None]:
    """A server whose tool does much; gives its URL."""
    world = ToolApp()
    world.tool(Conversation(version).work)
    settings: dict[str, Any] = {
        "http": ("127.0.0.1", 0),
        "versions": (version,),
        "graceful_timeout": 0.1,
    }
    with no_leaks(), sansmcp_blocking.serve(world.app, **settings) as serving:
        yield serving.url
        serving.wait_until(lambda: not serving.core.is_busy)


class Disturbance:
    """Cancels what waits for the n-th time, or closes its client."""

    def __init__(self, at: int, kind: str) -> None:
        self.has_happened = False
        self.clients: list[sansmcp_httpx.Client] = []
        self.outcome: BaseException | None = None
        self._at = at
        self._kind = kind
        self._disturb: Callable[[], object] = bool

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Await it, in a task of its own."""
        loop = current_loop()
        ended = loop.event()

        async def stay() -> None:
            try:
                await run_with_steps(work, self._wait)
            except (CallError, LocalProtocolError) as error:
                assert self._kind == "close", error
            except BaseException as error:
                self.outcome = error
                raise
            finally:
                ended.set()

        task = loop.spawn(stay)
        close = partial(loop.spawn, self._close)
        self._disturb = task.cancel if self._kind == "cancel" else close
        await ended.wait()

    async def _close(self) -> None:
        for client in self.clients:
            await client.aclose()

    def _wait(self, number: int, _: object) -> None:
        if number == self._at:
            self.has_happened = True
            self._disturb()


async def talk(
    url: str, version: str, http: httpx.AsyncClient, clients: list[sansmcp_httpx.Client]
) -> None:
    connecting = sansmcp_httpx.connect(url, http, versions=(version,), reconnect=AT_ONCE)
    async with connecting as client:
        clients.append(client)
        await client.call_tool("work")
        await client.notify("notifications/x")
        await client.call_tool("work")


@in_shares
@pytest.mark.parametrize("kind", ["cancel", "close"])
@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_a_task_waits(run: Run, version: str, kind: str, share: int) -> None:
    def once(at: int) -> bool:
        disturbance = Disturbance(at, kind)

        async def main() -> None:
            before = tasks()
            async with httpx.AsyncClient() as http:
                await disturbance.run(talk(url, version, http, disturbance.clients))
                await until(lambda: tasks() == before)
                await talk(url, version, http, [])
            await until(lambda: tasks() == before)

        with served(version) as url:
            run(main)
        is_cancelled = disturbance.outcome is not None
        assert is_cancelled is (disturbance.has_happened and kind == "cancel")
        return disturbance.has_happened

    assert wherever(once, share) > 1 or share


class Interrupting(httpx.HTTPTransport):
    """Ctrl-C comes at the n-th wait for a server: for its response, or for more of it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.has_happened = False
        self._at = at
        self._waits = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._wait()
        response = super().handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = Stream(response.stream, self._wait)
        return response

    def _wait(self) -> None:
        self._waits += 1
        if self._waits == self._at:
            self.has_happened = True
            signal.raise_signal(signal.SIGINT)


class Stream(httpx.SyncByteStream):
    """A response that tells when more of it is wanted."""

    def __init__(self, stream: httpx.SyncByteStream, wait: Callable[[], None]) -> None:
        self._stream = stream
        self._wait = wait

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            self._wait()
            yield piece

    def close(self) -> None:
        self._stream.close()


@in_shares
@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_a_thread_waits(version: str, share: int) -> None:
    def once(at: int) -> bool:
        transport, outcome = Interrupting(at), None
        with served(version) as url, httpx.Client(transport=transport) as http:
            settings: Any = {"versions": (version,), "reconnect": AT_ONCE}
            try:
                with sansmcp_httpx.connect_blocking(url, http, **settings) as client:
                    work = partial(client.call_tool, "work")
                    go_through(client, work, partial(client.notify, "notifications/x"), work)
            except KeyboardInterrupt as error:
                outcome = error
        assert (outcome is not None) is transport.has_happened
        return transport.has_happened

    assert wherever(once, share) > 1 or share
