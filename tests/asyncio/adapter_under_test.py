"""The asyncio adapter, as the checks of sansmcp_pytest want it: a loop in a thread.

``python subject.py`` serves the application of the checks on stdio.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

import sansmcp
import sansmcp_asyncio
import sansmcp_local
from sansmcp.events import ClientEvent, Connected
from sansmcp_pytest import Answer, Feature, stdio_app

from .loops import LOOPS

_Result = TypeVar("_Result")


class _Loop:
    """A loop that runs in a thread."""

    def __init__(self, kind: str) -> None:
        self._loop = LOOPS[kind]()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self.begin(work).result()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class _Pending:
    """A call in a task of such a loop."""

    def __init__(self, future: Future[Any]) -> None:
        self.result = future.result
        self._future = future

    def cancel(self) -> None:
        self._future.cancel()


class AsyncioClient:
    """A client on such a loop."""

    def __init__(self, loop: _Loop, client: sansmcp_local.AwaitableClient) -> None:
        self._loop = loop
        self._client = client

    @property
    def connected(self) -> Connected:
        return self._client.connected

    def start(self, method: str, params: Any = None, **options: Any) -> _Pending:
        return _Pending(self._loop.begin(self._client.call(method, params, **options)))

    def notify(self, method: str, params: Any = None) -> None:
        self._loop.do(self._client.notify(method, params))

    def events(self) -> Iterator[ClientEvent]:
        events = self._client.events()

        async def take() -> ClientEvent | None:
            return await anext(events, None)

        return iter(lambda: self._loop.do(take()), None)

    def work(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def close(self) -> None:
        self._loop.do(self._client.aclose())
        self._loop.end()


class AsyncioClients:
    """The client of the adapter, on one kind of loop."""

    lacks: Mapping[Feature, str] = {}

    def __init__(self, kind: str, connect: Callable[..., Any] = sansmcp_asyncio.connect) -> None:
        self._kind = kind
        self._connect = connect

    def connect(
        self,
        target: str | Sequence[str],
        *,
        request_handlers: Mapping[str, Answer],
        **settings: Any,
    ) -> AsyncioClient:
        functions = {method: _asynchronous(request_handlers[method]) for method in request_handlers}

        async def connect() -> Any:
            return await self._connect(target, request_handlers=functions, **settings)

        loop = _Loop(self._kind)
        try:
            return AsyncioClient(loop, loop.do(connect()))
        except BaseException:
            loop.end()
            raise


def _asynchronous(answer: Answer) -> Callable[[Any], Any]:
    async def ask(params: Any) -> Any:
        await asyncio.sleep(0)
        return answer(params)

    return ask


class _Running:
    """A server on such a loop."""

    def __init__(self, loop: _Loop, serving: sansmcp_asyncio.RunningServer) -> None:
        self._loop: _Loop | None = loop
        self._serving = serving
        self.url = serving.url

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.do(self._serving.__aexit__(None, None, None))
            self._loop.end()
            self._loop = None


class AsyncioServers:
    """The server of the adapter, on one kind of loop."""

    lacks: Mapping[Feature, str] = {}
    is_async = True

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def sleep(self, call: Any, seconds: float) -> Any:
        return asyncio.sleep(seconds)

    def serve(self, app: sansmcp.App, **settings: Any) -> _Running:
        http = None if "unix" in settings else ("127.0.0.1", 0)

        async def serve() -> sansmcp_asyncio.RunningServer:
            return await sansmcp_asyncio.serve(app, http=http, **settings).__aenter__()

        loop = _Loop(self._kind)
        try:
            return _Running(loop, loop.do(serve()))
        except BaseException:
            loop.end()
            raise

    def stdio_command(self, stdio: Literal[True, "v2"] = True) -> list[str]:
        return [sys.executable, "-m", __name__, self._kind, str(stdio)]


async def _serve_on_stdio(kind: str, stdio: str) -> None:
    app = stdio_app(AsyncioServers(kind))
    await sansmcp_asyncio.serve(app, stdio="v2" if stdio == "v2" else True)


if __name__ == "__main__":
    loop = LOOPS[sys.argv[1]]()
    loop.run_until_complete(_serve_on_stdio(*sys.argv[1:]))
    loop.close()
