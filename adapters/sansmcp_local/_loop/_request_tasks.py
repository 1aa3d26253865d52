"""Drivers of clients on an asynchronous HTTP library: a task for each HTTP request."""

from __future__ import annotations

import abc
from collections.abc import Coroutine, Mapping
from typing import Any

import sansmcp
from sansmcp.effects import AbortExchange, OpenExchange, TransportEffect
from sansmcp.http import ResponsePart

from ._client_driver import LoopClientDriver, RequestHandler
from ._loops import Task, current_loop


class RequestTaskDriver(LoopClientDriver):
    """Drives a client, with a task for each HTTP request, in which an HTTP library makes it."""

    def __init__(
        self, core: sansmcp.Client, request_handlers: Mapping[str, RequestHandler] | None
    ) -> None:
        super().__init__(core, current_loop(), request_handlers)
        self._carrying: dict[int, Task] = {}

    @abc.abstractmethod
    async def make_request(self, effect: OpenExchange) -> None:
        """Make an HTTP request, and pass the parts of its response to :meth:`feed`.

        Use no timeout: the machine has timeouts for all that it waits for, and event streams may be
        silent for long. Follow no redirects. The task is cancelled to abort the request. What this
        raises is passed to :meth:`lost_part`.
        """

    @abc.abstractmethod
    def lost_part(self, error: Exception, url: str) -> sansmcp.ConnectionLost:
        """Return the part that reports an exception of :meth:`make_request`."""

    async def feed(self, effect: OpenExchange, part: ResponsePart) -> None:
        """Feed a part of a response, and wait until reading may go on."""
        self._feed(effect, part)
        while self.is_paused:
            await self._scheduler.state_changed.wait()

    async def end(self) -> None:
        answering = [task for _, task in self._answering.values()]
        for task in (*answering, *self._carrying.values()):
            task.cancel()
        # The HTTP library must not be closed while one of them uses it.
        await self._loop.run_shielded(self._carried_all)

    async def _carried_all(self) -> None:
        while self._carrying:
            await self._scheduler.state_changed.wait()

    def _run(self, work: Coroutine[Any, Any, None]) -> Task:
        return self._loop.spawn(_await, work)

    def perform_effect(self, effect: TransportEffect) -> None:
        match effect:
            case OpenExchange(exchange=exchange):
                self._carrying[exchange] = self._loop.spawn(self._carry, effect)
            case AbortExchange(exchange=exchange) if exchange in self._carrying:
                self._carrying[exchange].cancel()
            case _:
                pass  # the exchange has ended by itself; and there is no process

    async def _carry(self, effect: OpenExchange) -> None:
        """Perform one HTTP exchange, from its request to the end of its response."""
        try:
            await self.make_request(effect)
            self._feed(effect, sansmcp.BodyEnd())
        except Exception as error:  # raised by the library, or by what its user has given to it
            self._feed(effect, self.lost_part(error, effect.url))
        finally:
            del self._carrying[effect.exchange]
            self._scheduler.reschedule()

    def _feed(self, effect: OpenExchange, part: ResponsePart) -> None:
        try:
            self.core.receive_part(effect.exchange, part, now=self._loop.now())
        except Exception as error:
            self.exchange_failed(effect.exchange, error)
        self.pump()


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work
