"""The client: tasks only for opening connections, async request handlers and a server process.

A call changes the machine, performs its effects (writing to sockets, for the most part) and waits
for its result. Bytes, and the end of a connection, are passed to the machine by the connection's
protocol, without a task.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import sansmcp
import sansmcp_local
from sansmcp.effects import TransportEffect
from sansmcp.types import Unpack
from sansmcp_local import (
    AsyncioTask,
    ClientParts,
    ConnectOptions,
    ConnectSettings,
    RequestHandler,
    ServerProcess,
    client_parts,
    current_loop,
    explains,
    perform,
    wait_all_shielded,
)

from ._pool import Pool
from ._process import AsyncioProcess
from ._tasks import Tasks

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart


class Client(sansmcp_local.AwaitableClient):
    """An MCP client on asyncio; :func:`connect` makes it.

    ``await client`` and ``async with client`` do the handshake and return the client. All methods
    may be called from any task of its event loop.
    """


class ClientDriver(sansmcp_local.LoopClientDriver):
    """Drives a client on asyncio."""

    def __init__(
        self,
        parts: ClientParts,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(parts.core, current_loop(), request_handlers)
        self._tasks = Tasks()
        self._pool = Pool(
            parts.core,
            self.pump,
            self.exchange_failed,
            self._tasks,
            parts.ssl_context,
            parts.proxies,
        )
        self._process = ServerProcess(
            partial(AsyncioProcess, self._feed, self._tasks, parts.process)
        )

    async def end(self) -> None:
        try:
            await wait_all_shielded(self._tasks.cancel())
        finally:
            await self._pool.aclose()

    # The machine

    def on_idle(self) -> None:
        super().on_idle()
        if self.is_paused is not self._pool.is_paused:
            self._pool.pause(is_paused=self.is_paused)
            if self._process.child is not None:
                self._process.child.pause(is_paused=self.is_paused)

    def perform_effect(self, effect: TransportEffect) -> None:
        perform(effect, self._pool, self._process)

    def _run(self, work: Coroutine[Any, Any, None]) -> AsyncioTask:
        return self._tasks.start(work)

    def _feed(self, part: ProcessPart) -> None:
        self.receive_process_part(part)
        self.pump()


@explains(ConnectOptions, sansmcp.ClientOptions)
def connect(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> Client:
    """Connect to an MCP server.

    ``async with connect(...) as client:`` closes the client when the block ends. After ``client =
    await connect(...)`` call ``await client.aclose()`` yourself, in any task of the same loop.

    Args:
        target: the URL of an MCP endpoint, http or https; or that of a Unix socket, such as
            ``"http+unix://%2Frun%2Fmcp.sock/mcp"``; or the command that starts a server on stdio,
            such as ``["python", "server.py"]``. Closing the client ends that process, and all that
            it has started.
        request_handlers: functions that respond to the server's requests, by method, such as
            ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest` and returns the
            result, a JSON object, or raises JsonRpcError. It may be async; a plain one runs in the
            event loop and must not block. The client declares the capability that each needs.
        settings: the fields of :class:`sansmcp_local.ConnectOptions` and
            :class:`sansmcp.ClientOptions`, explained below.

    Returns:
        The client, which is not connected yet: await it, or enter its block. Either raises
        CallError if the handshake fails.

    Raises:
        LocalProtocolError: the target or the value of a setting is wrong.
        TypeError: a setting is unknown.
        RuntimeError: no event loop is running.
    """
    return Client(ClientDriver(client_parts(target, **settings), request_handlers))


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
    await ClientDriver(client_parts(url, **settings), None).log_out()
