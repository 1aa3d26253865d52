"""The asynchronous client: a task for each HTTP request."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import httpx

import sansmcp
import sansmcp_loop
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange
from sansmcp.types import Unpack
from sansmcp_local import explains, new_client
from sansmcp_loop import RequestHandler, Task, current_loop

from ._http import check_arguments, connection_lost_from, head_of, request_of

if TYPE_CHECKING:
    from sansmcp.http import ResponsePart


class Client(sansmcp_loop.AwaitableClient):
    """A client; made by :func:`connect`. All methods may be called from any task of its loop.

    Awaiting it, or entering its block, does the handshake and gives the client itself.
    """

    def __init__(
        self,
        core: sansmcp.Client,
        http: httpx.AsyncClient,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(core, current_loop(), request_handlers)
        self._http = http
        self._carrying: dict[int, Task] = {}

    async def _end(self) -> None:
        answering = [task for _, task in self._answering.values()]
        for task in (*answering, *self._carrying.values()):
            task.cancel()
        # The httpx client must not be closed while one of them uses it.
        await self._loop.run_shielded(self._carried_all)

    async def _carried_all(self) -> None:
        while self._carrying:
            await self._scheduler.state_changed.wait()

    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        return self._loop.spawn(_await, work)

    def perform_effect(self, effect: ClientEffect) -> None:
        match effect:
            case OpenExchange(exchange=exchange):
                self._carrying[exchange] = self._loop.spawn(self._carry, effect)
            case AbortExchange(exchange=exchange) if exchange in self._carrying:
                self._carrying[exchange].cancel()
            case _:
                pass  # the exchange has ended by itself; and there is no process

    async def _carry(self, effect: OpenExchange) -> None:
        """Carry one HTTP exchange, from its request to the end of its response."""
        # The machine has timeouts for all that it waits for; event streams may be silent for long.
        try:
            request = request_of(self._http, effect, read=None)
            sent = await self._http.send(request, stream=True, follow_redirects=False)
            async with aclosing(sent) as response:
                self._feed(effect, head_of(response))
                async for data in response.aiter_bytes():
                    self._feed(effect, sansmcp.BodyData(data))
                    while self.is_paused:
                        await self._scheduler.state_changed.wait()
            self._feed(effect, sansmcp.BodyEnd())
        except Exception as error:  # of httpx, or of what its user has given to it
            self._feed(effect, connection_lost_from(error))
        finally:
            del self._carrying[effect.exchange]
            self._scheduler.reschedule()

    def _feed(self, effect: OpenExchange, part: ResponsePart) -> None:
        try:
            self.core.receive_part(effect.exchange, part, now=self._loop.now())
        except Exception as error:
            self.exchange_failed(effect.exchange, error)
        self.run_pending()


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work


@explains(sansmcp.ClientOptions)
def connect(
    url: str,
    http: httpx.AsyncClient,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[sansmcp.ClientSettings],
) -> Client:
    """Connect to an MCP server by an httpx client.

    ``async with connect(...) as client:`` closes the client when the block ends. After ``client =
    await connect(...)`` it is to be closed by ``await client.aclose()``, in whatever task.

    Args:
        url: the URL of an MCP endpoint, http or https.
        http: what makes the requests, in the same event loop, asyncio's or trio's. It stays open;
            close it after the client. Its timeout for reading is not used: those of the settings
            and calls hold. Over HTTP/1.1 each call that waits for its answer and each event stream
            that is open holds one of its connections; if the limits of ``http`` allow too few,
            calls fail with Disconnected, which says so. Over HTTP/2, httpx (0.28) leaves a response
            unread while two others are open and silent: make one call at a time, or use HTTP/1.1.
        request_handlers: for each request that the server may make, such as
            ``"elicitation/create"``, a function, async or plain, from the
            :class:`sansmcp.ServerRequest` to the result, a JSON object. A plain one must not block.
            Declare the request in ``capabilities``, too.
        settings: those of :class:`sansmcp.ClientOptions`.

    Raises LocalProtocolError if an argument or setting is wrong, and RuntimeError where no loop is
    running; awaiting the client raises CallError if the handshake fails.
    """
    check_arguments(url, http, httpx.AsyncClient)
    return Client(new_client(url, **settings), http, request_handlers)
