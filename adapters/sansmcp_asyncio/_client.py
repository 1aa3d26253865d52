"""The client: no task of its own but to open connections, to answer the server, and for a process.

A call changes the machine, performs what the machine then wants (which is: write to sockets), and
waits for its own promise. Whatever happens to a connection is an input of the machine.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import sansmcp
import sansmcp_loop
from sansmcp.effects import ClientEffect
from sansmcp.types import Unpack
from sansmcp_local import (
    ClientParts,
    ConnectOptions,
    ConnectSettings,
    ServerProcess,
    client_parts,
    explains,
)
from sansmcp_loop import AsyncioTask, RequestHandler, current_loop, perform, wait_all_shielded

from ._pool import Pool
from ._process import AsyncioProcess
from ._tasks import Tasks

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart


class Client(sansmcp_loop.AwaitableClient):
    """A client; made by :func:`connect`. All methods may be called from any task of its loop.

    Awaiting it, or entering its block, does the handshake and gives the client itself.
    """

    def __init__(
        self,
        parts: ClientParts,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(parts.core, current_loop(), request_handlers)
        self._tasks = Tasks()
        self._pool = Pool(
            parts.core, self.run_pending, self.exchange_failed, self._tasks, parts.ssl_context
        )
        self._process = ServerProcess(
            partial(AsyncioProcess, self._feed, self._tasks, parts.process)
        )

    async def _end(self) -> None:
        try:
            await wait_all_shielded(self._tasks.cancel())
        finally:
            await self._pool.aclose()

    # The machine

    def run_pending(self) -> None:
        super().run_pending()
        if not self._is_over and self.is_paused is not self._pool.is_paused:
            self._pool.pause(is_paused=self.is_paused)
            if self._process.child is not None:
                self._process.child.pause(is_paused=self.is_paused)

    def perform_effect(self, effect: ClientEffect) -> None:
        perform(effect, self._pool, self._process)

    def _run(self, work: Coroutine[Any, Any, None]) -> AsyncioTask:
        return self._tasks.start(work)

    def _feed(self, part: ProcessPart) -> None:
        self.process_said(part)
        self.run_pending()


@explains(ConnectOptions, sansmcp.ClientOptions)
def connect(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> Client:
    """Connect to an MCP server.

    ``async with connect(...) as client:`` closes the client when the block ends. After ``client =
    await connect(...)`` it is to be closed by ``await client.aclose()``, in whatever task.

    Args:
        target: the URL of an MCP endpoint, http or https; or the command that starts a server on
            stdio, e.g. ``["python", "server.py"]``. That process, and all that it has started, end
            with the client.
        request_handlers: for each request that the server may make, such as
            ``"elicitation/create"``, a function, async or plain, from the
            :class:`sansmcp.ServerRequest` to the result, a JSON object. A plain one must not block.
            Declare the request in ``capabilities``, too.
        settings: those of :class:`sansmcp_local.ConnectOptions` and of
            :class:`sansmcp.ClientOptions`.

    Raises LocalProtocolError if the target or a setting is wrong, and RuntimeError where no loop is
    running; awaiting the client raises CallError if the handshake fails.
    """
    return Client(client_parts(target, **settings), request_handlers)
