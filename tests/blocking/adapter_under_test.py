"""The blocking adapter as a subject of the published checks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import sansmcp_blocking
from sansmcp.base_client import OnProgress
from sansmcp.events import ClientEvent, Connected
from sansmcp.messages import Params
from sansmcp.types import Unpack
from sansmcp_pytest import (
    Answer,
    ClientUnderTest,
    ConnectedClient,
    Feature,
    Pending,
    Running,
    ServerUnderTest,
    SubjectSettings,
    stdio_app,
)

if TYPE_CHECKING:
    import sansmcp
    from sansmcp_blocking import Call


class _Client(ConnectedClient):
    def __init__(self, client: sansmcp_blocking.Client) -> None:
        self._client = client

    @property
    def connected(self) -> Connected:
        return self._client.connected

    def start(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Pending:
        return self._client.start_call(method, params, on_progress=on_progress, **settings)

    def notify(self, method: str, params: Params | None = None) -> None:
        self._client.notify(method, params)

    def events(self) -> Iterator[ClientEvent]:
        return self._client.events()

    def work(self, seconds: float) -> None:
        driver = self._client._calls  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
        driver.wait(lambda: False, seconds)

    def close(self) -> None:
        self._client.close()


class BlockingClients(ClientUnderTest):
    lacks: Mapping[Feature, str] = {}

    def connect(
        self,
        target: str | Sequence[str],
        *,
        request_handlers: Mapping[str, Answer],
        transport: Literal["stdio-v2"] | None = None,
        **settings: Unpack[sansmcp.ClientSettings],
    ) -> ConnectedClient:
        return _Client(
            sansmcp_blocking.connect(
                target, request_handlers=request_handlers, transport=transport, **settings
            )
        )


class _Running(Running):
    def __init__(self, serving: sansmcp_blocking.RunningServer) -> None:
        self._serving = serving

    @property
    def url(self) -> str:
        return self._serving.url

    def stop(self) -> None:
        self._serving.close()


class BlockingServers(ServerUnderTest):
    lacks: Mapping[Feature, str] = {}
    is_async = False

    def sleep(self, call: Call, seconds: float) -> None:
        call.sleep(seconds)

    def serve(
        self,
        app: sansmcp.App,
        *,
        graceful_timeout: float,
        unix: str | None = None,
        **settings: Unpack[SubjectSettings],
    ) -> Running:
        http = ("127.0.0.1", 0) if unix is None else None
        return _Running(
            sansmcp_blocking.serve(
                app, http=http, unix=unix, graceful_timeout=graceful_timeout, **settings
            )
        )

    def stdio_command(self, stdio: Literal[True, "v2"] = True) -> list[str]:
        return [sys.executable, __file__, str(stdio)]


if __name__ == "__main__":
    stdio: bool | Literal["v2"] = "v2" if sys.argv[1] == "v2" else True
    with sansmcp_blocking.serve(stdio_app(BlockingServers()), stdio=stdio) as main:
        main.wait()
