"""Servers for web frameworks in event loops: the framework does the HTTP, exchange by exchange."""

from __future__ import annotations

import abc
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import sansmcp
from sansmcp import Idle
from sansmcp.effects import Abort, ExchangeEffect, SendBody, SendEnd, SendHead
from sansmcp.http import RequestPart
from sansmcp.types import assert_never
from sansmcp_local import ServerParts

from ._loops import Task, current_loop
from ._serving import RunningServer

_logger = logging.getLogger("sansmcp")

_LINGER = 2.0
"""Seconds for a client that is refused to send the rest of its request. nginx: 5."""


def _ignore() -> None:
    pass


class HttpServing(RunningServer):
    """The server of one event loop, for a web framework: see :class:`HttpExchange`.

    What runs for it are tasks of the event loop itself. A handler goes on when its request is gone,
    and ends with :meth:`stop`, or with the loop.
    """

    def __init__(self, parts: ServerParts, on_end: Callable[[], object] = _ignore) -> None:
        """Start the server, in the event loop that is running.

        Args:
            parts: made by ``sansmcp_local.server_parts()`` from an application and its settings.
            on_end: is called when the server has stopped, or the loop ends.
        """
        super().__init__(
            parts.core,
            parts.store,
            current_loop(),
            threads=parts.options.threads,
            authenticate=parts.options.authenticate,
        )
        self.exchanges = 0
        """How many are being carried."""
        self._until_end = self.loop.spawn(self._wait_for_end, on_end)

    async def stop(self, graceful_timeout: float) -> None:
        """Accept nothing new, give running calls ``graceful_timeout`` seconds, end all streams."""
        await self.shut_down(graceful_timeout)
        await self.flush(lambda: not self.exchanges)
        self._until_end.cancel()

    async def _wait_for_end(self, on_end: Callable[[], object]) -> None:
        """Wait until :meth:`stop`, or the end of the loop, cancels this."""
        try:
            await self.loop.event().wait()
        finally:
            self.scheduler.stop()
            on_end()
            self.leave_threads()  # the loop ends, and nothing that they wait for comes any more


class HttpExchange(abc.ABC):
    """Carries one HTTP request and its response between a web framework and a server.

    A subclass says how the framework receives and sends. Its methods raise OSError if the client
    has disconnected. Make one for each request, and await :meth:`run`; cancelling that is another
    way to say that the client has disconnected.
    """

    def __init__(self, serving: HttpServing) -> None:
        self._serving = serving
        self._loop = serving.loop
        self._exchange = serving.core.open_exchange(self)
        self._is_reading = True
        self._woken = self._loop.event()
        self._watch: Task | None = None

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """What is known of the connection; ``authenticate`` is given it."""
        return sansmcp.ConnectionInfo()

    @abc.abstractmethod
    async def receive_body(self) -> bytes:
        """Wait for the next piece of the request's body; return ``b""`` at its end."""

    @abc.abstractmethod
    async def send_head(self, head: sansmcp.ResponseHead) -> None:
        """Send the start of the response."""

    @abc.abstractmethod
    async def send_body(self, data: bytes) -> None:
        """Send a piece of the response's body, and wait until there is room for more."""

    @abc.abstractmethod
    async def send_end(self) -> None:
        """End the response."""

    async def wait_disconnected(self) -> None:
        """Return when the client has disconnected.

        Runs in a task of its own, after the end of the request. By default it waits for ever, for
        frameworks that cancel :meth:`run`, or do not tell.
        """
        await self._loop.event().wait()

    async def run(self, head: sansmcp.RequestHead) -> bool:
        """Carry the exchange, from the start of the request to the end of the response.

        Returns:
            True if the response has been sent to its end. False if it has not, or has not even
            begun: close the connection, so that the client does not take it for complete.
        """
        self._serving.exchanges += 1
        try:
            self._feed(head)
            while True:
                effect = self._serving.core.next_effect_of(self._exchange)
                if (is_complete := await self._perform(effect)) is not None:
                    return is_complete
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._serving.exchanges -= 1
            self._feed(sansmcp.ConnectionLost())
            self._serving.run_pending()

    def wake(self) -> None:
        """There is something to send; the server calls it."""
        self._woken.set()

    async def _perform(self, effect: ExchangeEffect | Idle) -> bool | None:
        """Do what is to be done next; returns how the exchange has ended, None if it goes on."""
        match effect:
            case SendHead(head):
                self._serving.run_pending()
                return None if await self._send(self.send_head, head) else False
            case SendBody(data):
                return None if await self._send(self.send_body, data) else False
            case SendEnd():
                if self._is_reading:
                    # Some servers reset the connection of a request that was not read to its end,
                    # and the client loses the response.
                    await self._loop.within(_LINGER, self._read_rest)
                return await self._send(self.send_end)
            case Abort():
                return False
            case Idle() if self._exchange.is_done:
                return False
            case Idle():
                # This takes all events, so the machine is never too full to be fed.
                self._serving.run_pending()
                await (self._read() if self._is_reading else self._wait())
                return None
            case _ as impossible:
                assert_never(impossible)

    async def _send(self, send: Callable[..., Awaitable[None]], *part: Any) -> bool:
        """Send a part; False if the client takes nothing, or has disconnected."""
        try:
            return await self._loop.within(self._serving.core.limits.send_timeout, send, *part)
        except OSError as error:
            _logger.debug("connection lost: %s", error)
            return False

    async def _read(self) -> None:
        try:
            data = await self.receive_body()
        except OSError as error:
            _logger.debug("connection lost: %s", error)
            self._is_reading = False
            self._feed(sansmcp.ConnectionLost())
        else:
            self._is_reading = bool(data)
            self._feed(sansmcp.BodyData(data) if data else sansmcp.BodyEnd())

    async def _read_rest(self) -> None:
        while self._is_reading:
            await self._read()

    async def _wait(self) -> None:
        """Wait for something to send."""
        if self._watch is None and not self._woken.is_set():
            self._watch = self._loop.spawn(self._watch_client)
        await self._woken.wait()
        self._woken = self._loop.event()

    async def _watch_client(self) -> None:
        with suppress(OSError):
            await self.wait_disconnected()
        self._feed(sansmcp.ConnectionLost())
        self._serving.run_pending()
        self.wake()

    def _feed(self, part: RequestPart) -> None:
        self._serving.core.receive_part(self._exchange, part, now=self._loop.now())
