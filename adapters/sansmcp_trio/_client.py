"""The client: a background task for each connection.

A call changes the machine, performs its effects (writing to sockets, for the most part) and waits
for its result. The connection's task passes bytes, and the end of the connection, to the machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

import sansmcp
import sansmcp_local
from sansmcp.effects import TransportEffect
from sansmcp.types import Unpack
from sansmcp_local import (
    ClientParts,
    ConnectOptions,
    ConnectSettings,
    RequestHandler,
    ServerProcess,
    client_parts,
    current_loop,
    explains,
    perform,
)

from ._nursery import plain_nursery
from ._pool import Pool
from ._process import TrioProcess

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart


class Client(sansmcp_local.Client, trio.abc.AsyncResource):
    """An MCP client on trio; :func:`connect` makes it. Call its methods from any task."""


class _Driver(sansmcp_local.LoopClientDriver):
    """Drives a client on trio."""

    def __init__(
        self,
        parts: ClientParts,
        nursery: trio.Nursery,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(parts.core, current_loop(), request_handlers)
        self._nursery = nursery
        self._pool = Pool(
            parts.core,
            self.pump,
            self.exchange_failed,
            self._may_read,
            nursery,
            parts.ssl_context,
            parts.proxies,
        )
        self._process = ServerProcess(
            partial(TrioProcess, self._feed, self._may_read, nursery, parts.process)
        )

    async def end(self) -> None:
        self._pool.close()  # the tasks end with the nursery

    def perform_effect(self, effect: TransportEffect) -> None:
        perform(effect, self._pool, self._process)

    def _run(self, work: Coroutine[Any, Any, None]) -> trio.CancelScope:
        scope = trio.CancelScope()
        self._nursery.start_soon(_within, scope, work)
        return scope

    def _feed(self, part: ProcessPart) -> None:
        self.receive_process_part(part)
        self.pump()

    async def _may_read(self) -> None:
        """Wait while reading is paused because the application has not consumed its events."""
        while self.is_paused:
            await self._scheduler.state_changed.wait()


async def _within(scope: trio.CancelScope, work: Coroutine[Any, Any, None]) -> None:
    with scope:
        await work


@explains(ConnectOptions, sansmcp.ClientOptions)
@asynccontextmanager
async def connect(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> AsyncGenerator[Client, None]:
    """Connect to an MCP server, and close the client when the block ends.

    Args:
        target: the URL of an MCP endpoint, http or https; or that of a Unix socket, such as
            ``"http+unix://%2Frun%2Fmcp.sock/mcp"``; or the command that starts a server on stdio,
            such as ``["python", "server.py"]``. The end of the block ends that process, and all
            that it has started.
        request_handlers: functions that respond to the server's requests, by method, such as
            ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest` and returns the
            result, a JSON object, or raises JsonRpcError. It may be async; a plain one runs in the
            event loop and must not block. The client declares the capability that each needs.
        settings: the fields of :class:`sansmcp_local.ConnectOptions` and
            :class:`sansmcp.ClientOptions`, explained below.

    Raises:
        CallError: the handshake failed.
        LocalProtocolError: the target or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    parts = client_parts(target, **settings)
    async with plain_nursery() as nursery:
        driver = _Driver(parts, nursery, request_handlers)
        try:
            await driver.open()
            yield Client(driver)
        finally:
            await driver.close()
        nursery.cancel_scope.cancel()


async def log_out(url: str, **settings: Unpack[ConnectSettings]) -> None:
    """Revoke the stored tokens for an MCP server at their issuer (RFC 7009), and delete them.

    The refresh token is revoked, and with it its access tokens; without one, the access token. The
    MCP server is not asked. Each request to the issuer may take 10 s, and the first that fails is
    the last; all of it ends within 60 s. If it is cancelled, the tokens stay stored unless they
    were deleted already.

    Args:
        url: the URL of the MCP endpoint.
        settings: those of :func:`connect`. ``authorization`` has the storage, the account and, if
            the client was not registered by this library, the client; ``proxy``, ``ca_file`` and
            the like are for the way to the issuer.

    Raises:
        AuthorizationFailed: with the reason ``not_revoked``, the tokens were deleted and the issuer
            may still accept them; the text says why. With another one, they are still stored.
        LocalProtocolError: ``authorization`` is missing, or another argument is wrong.
        TypeError: a setting is unknown.
    """
    parts = client_parts(url, **settings)
    async with plain_nursery() as nursery:
        await _Driver(parts, nursery, None).log_out()
        nursery.cancel_scope.cancel()
