"""The clients on httpx do what the published checks want of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest

import sansmcp
import sansmcp_httpx
from sansmcp.events import ClientEvent, Connected
from sansmcp.types import Self
from sansmcp_pytest import Check, ClientUnderTest, Feature, client_checks

from ..asyncio.adapter_under_test import AsyncioClients
from ..tls import PUBLIC
from ..trio.adapter_under_test import TrioClients

LACKS: Mapping[Feature, str] = {
    Feature.STDIO: "httpx is for HTTP",
    Feature.UNIX: "the transport of the httpx client has the path",
}


class Client(sansmcp_httpx.Client):
    """With an HTTP client of its own."""

    def __init__(
        self, library: ModuleType, target: str, request_handlers: Any = None, **settings: Any
    ) -> None:
        self._own = library.AsyncClient(verify=PUBLIC)
        settings.setdefault("known_servers", sansmcp.KnownServers())
        made = sansmcp_httpx.connect(
            target, self._own, request_handlers=request_handlers, **settings
        )
        super().__init__(made._driver)  # noqa: SLF001

    async def __aenter__(self) -> Self:
        try:
            return await super().__aenter__()
        except BaseException:
            await self._own.aclose()
            raise

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            await self._own.aclose()


class OnTrio(TrioClients):
    lacks = LACKS

    def __init__(self, library: ModuleType) -> None:
        module = ModuleType("sansmcp_httpx")
        vars(module)["connect"] = partial(Client, library)
        super().__init__(module)


class OnAsyncio(AsyncioClients):
    lacks = LACKS

    def __init__(self, library: ModuleType) -> None:
        super().__init__("asyncio", partial(Client, library))


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("subject", [OnTrio, OnAsyncio])
@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_client(
    subject: Callable[[ModuleType], ClientUnderTest],
    check: Check[ClientUnderTest],
    library: ModuleType,
) -> None:
    check(subject(library))


class Pending:
    """A call that is made when its result is asked for."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result = call

    def cancel(self) -> None:
        raise NotImplementedError


class BlockingHttpx:
    """The blocking client."""

    def __init__(self, library: ModuleType, url: str, **settings: Any) -> None:
        self._events: deque[ClientEvent] = deque()
        self._http = library.Client()
        try:
            self._client = sansmcp_httpx.connect_blocking(
                url, self._http, on_event=self._events.append, **settings
            )
        except BaseException:
            self._http.close()
            raise

    @property
    def connected(self) -> Connected:
        return self._client.connected

    def start(self, method: str, params: Any = None, **options: Any) -> Pending:
        return Pending(partial(self._client.call, method, params, **options))

    def notify(self, method: str, params: Any = None) -> None:
        self._client.notify(method, params)

    def events(self) -> Iterator[ClientEvent]:
        while self._events:
            yield self._events.popleft()

    def work(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        self._client.close()
        self._http.close()


class BlockingSubject:
    lacks: Mapping[Feature, str] = {
        **LACKS,
        Feature.CONCURRENCY: "httpx waits for one response at a time",
        Feature.CANCELLING: "nothing else runs while a call does",
    }

    def __init__(self, library: ModuleType) -> None:
        self._library = library

    def connect(self, target: Any, **settings: Any) -> BlockingHttpx:
        return BlockingHttpx(self._library, target, **settings)


COSTS_A_CONNECTION = pytest.mark.xfail(
    reason="some servers never end a stream that was resumed, so it is broken off after the answer"
)


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(
            check, marks=COSTS_A_CONNECTION if check.name == "a_server_that_lets_go" else ()
        )
        for check in client_checks()
    ],
    ids=str,
)
def test_blocking(check: Check[ClientUnderTest], library: ModuleType) -> None:
    check(BlockingSubject(library))
