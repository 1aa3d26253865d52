"""The trio adapter, as the checks of sansmcp_pytest want it: a loop in a thread."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import ModuleType
from typing import Any, Literal

import trio

import sansmcp
import sansmcp_trio
from sansmcp.events import ClientEvent, Connected
from sansmcp_pytest import Answer, Feature, stdio_app


class _Pending:
    """A call in a task."""

    def __init__(self, client: TrioClient) -> None:
        self._client = client
        self._result: Future[Any] = Future()
        self._scope = trio.CancelScope()

    async def run(self, call: Callable[[], Any]) -> None:
        with self._scope:
            try:
                self._result.set_result(await call())
            except Exception as error:
                self._result.set_exception(error)

    def result(self) -> Any:
        return self._result.result()

    def cancel(self) -> None:
        self._client.token.run_sync_soon(self._scope.cancel)


class TrioClient:
    """A client whose loop runs in a thread."""

    token: trio.lowlevel.TrioToken
    _client: sansmcp_trio.Client
    _nursery: trio.Nursery

    def __init__(self, open: Callable[[], Any]) -> None:
        self._is_open: Future[None] = Future()
        self._closing = trio.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main, open))
        self._thread.start()
        try:
            self._is_open.result()
        except BaseException:
            self._thread.join()
            raise

    async def _main(self, open: Callable[[], Any]) -> None:
        self.token = trio.lowlevel.current_trio_token()
        try:
            async with open() as self._client, trio.open_nursery() as self._nursery:
                self._is_open.set_result(None)
                await self._closing.wait()
                await self._client.aclose()
        except Exception as error:
            if self._is_open.done():
                raise
            self._is_open.set_exception(error)

    @property
    def connected(self) -> Connected:
        return self._client.connected

    def start(self, method: str, params: Any = None, **options: Any) -> _Pending:
        pending = _Pending(self)
        call = self._client.call
        self.token.run_sync_soon(
            self._nursery.start_soon, pending.run, lambda: call(method, params, **options)
        )
        return pending

    def notify(self, method: str, params: Any = None) -> None:
        trio.from_thread.run(self._client.notify, method, params, trio_token=self.token)

    def events(self) -> Iterator[ClientEvent]:
        events = trio.from_thread.run_sync(self._client.events, trio_token=self.token)

        async def take() -> ClientEvent | None:
            return await anext(events, None)

        def run() -> ClientEvent | None:
            return trio.from_thread.run(take, trio_token=self.token)

        return iter(run, None)

    def work(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def close(self) -> None:
        self.token.run_sync_soon(self._closing.set)
        self._thread.join()


class TrioClients:
    """The client of the adapter, or of a copy of it."""

    lacks: Mapping[Feature, str] = {}

    def __init__(self, module: ModuleType = sansmcp_trio) -> None:
        self._connect = module.connect

    def connect(
        self,
        target: str | Sequence[str],
        *,
        request_handlers: Mapping[str, Answer],
        **settings: Any,
    ) -> TrioClient:
        functions = {method: _asynchronous(request_handlers[method]) for method in request_handlers}
        return TrioClient(lambda: self._connect(target, request_handlers=functions, **settings))


def _asynchronous(answer: Answer) -> Callable[[Any], Any]:
    async def ask(params: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return answer(params)

    return ask


class _Running:
    """A server whose loop runs in a thread."""

    _serving: sansmcp_trio.RunningServer

    def __init__(self, serve: Callable[..., Any]) -> None:
        self._has_begun: Future[None] = Future()
        self._thread = threading.Thread(target=trio.run, args=(self._main, serve))
        self._thread.start()
        try:
            self._has_begun.result()
        except BaseException:
            self._thread.join()
            raise

    async def _main(self, serve: Callable[..., Any]) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            try:
                self._serving = await nursery.start(serve)
            except Exception as error:
                self._has_begun.set_exception(error)
            else:
                self._has_begun.set_result(None)

    @property
    def url(self) -> str:
        return self._serving.url

    def stop(self) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._serving.stop)
        self._thread.join()


class TrioServers:
    """The server of the adapter, or of a copy of it."""

    lacks: Mapping[Feature, str] = {}
    is_async = True

    def __init__(self, module: ModuleType = sansmcp_trio) -> None:
        self._serve = module.serve

    def sleep(self, call: Any, seconds: float) -> Any:
        return trio.sleep(seconds)

    def serve(self, app: sansmcp.App, **settings: Any) -> _Running:
        http = None if "unix" in settings else ("127.0.0.1", 0)
        return _Running(partial(self._serve, app, http=http, **settings))

    def stdio_command(self, stdio: Literal[True, "v2"] = True) -> list[str]:
        return [sys.executable, __file__, str(stdio)]


if __name__ == "__main__":
    stdio: bool | Literal["v2"] = "v2" if sys.argv[1] == "v2" else True
    trio.run(partial(sansmcp_trio.serve, stdio_app(TrioServers()), stdio=stdio))
