"""Servers for web frameworks in event loops, which do the HTTP themselves."""

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

from .._machine import ServerParts
from ._loops import Event, Task, current_loop
from ._serving import RunningServer

_logger = logging.getLogger("sansmcp")

_LINGER = 2.0
"""Seconds for reading the rest of a request after its response was decided. nginx: 5."""


def _ignore() -> None:
    pass


class HttpServing(RunningServer):
    """The server of one event loop, for a web framework; see :class:`HttpExchange`.

    Handlers run in tasks of the event loop itself. A handler may outlive its HTTP request; it is
    cancelled by :meth:`stop`, or when the loop ends.
    """

    def __init__(self, parts: ServerParts, on_end: Callable[[], object] = _ignore) -> None:
        """Start the server, in the event loop that is running.

        Args:
            parts: made by ``sansmcp_local.server_parts()`` from an application and its settings.
            on_end: called when the server has stopped, or the loop ends.
        """
        super().__init__(
            parts.core,
            parts.store,
            current_loop(),
            threads=parts.options.threads,
            authenticate=parts.options.authenticate,
        )
        self.exchanges = 0
        """Number of HTTP exchanges in progress."""
        self._handlers = 0
        """Number of async handlers that run."""
        self._until_end = self.loop.spawn(self._wait_for_end, on_end)

    async def stop(self, graceful_timeout: float) -> None:
        """Accept nothing new, give running calls ``graceful_timeout`` seconds, end all streams."""
        await self.shut_down(graceful_timeout)
        # A handler that was cancelled still leaves its blocks, as those of a pool's connection. The
        # application closes the pool after this.
        await self.flush(lambda: not (self.exchanges or self._handlers))
        self._until_end.cancel()

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        call.driver = self.loop.spawn(self._finish, call, result)

    async def _finish(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        self._handlers += 1
        try:
            await self.finish(call, result)
        finally:
            self._handlers -= 1
            self.on_idle()  # stop() may wait for this one

    async def _wait_for_end(self, on_end: Callable[[], object]) -> None:
        """Wait until :meth:`stop`, or the end of the loop, cancels this."""
        try:
            await self.loop.event().wait()
        finally:
            self.scheduler.stop()
            on_end()
            self.leave_threads()  # they may wait for the loop, which has ended


class HttpExchange(abc.ABC):
    """Connects one HTTP exchange of a web framework with a server.

    A subclass implements receiving and sending with the framework. Its methods raise OSError if the
    client has disconnected. Make an instance for each HTTP request, and await :meth:`run`. If the
    client disconnects, the framework may also cancel :meth:`run`.
    """

    def __init__(self, serving: HttpServing) -> None:
        self._serving = serving
        self._loop = serving.loop
        self._exchange = serving.core.open_exchange(self)
        self._is_reading = True
        self._has_piece = False
        """True if a piece of the body was fed that was not known to be the last."""
        self._is_woken = False
        self._woken: Event | None = None
        """Set by :meth:`wake`, while :meth:`run` waits for it."""
        self._watch: Task | None = None

    @property
    def connection(self) -> sansmcp.ConnectionInfo:
        """What is known about the connection, for ``authenticate``."""
        return sansmcp.ConnectionInfo()

    @property
    def is_read(self) -> bool:
        """True if the whole body was received; False if only :meth:`receive_body` can tell."""
        return False

    @abc.abstractmethod
    async def receive_body(self) -> bytes:
        """Return the next piece of the request's body, or ``b""`` at its end."""

    @abc.abstractmethod
    async def send_head(self, head: sansmcp.ResponseHead) -> None:
        """Send the start of the response."""

    @abc.abstractmethod
    async def send_body(self, data: bytes) -> None:
        """Send a piece of the response's body, and wait until there is room for more."""

    @abc.abstractmethod
    async def send_end(self) -> None:
        """End the response."""

    async def send_last(self, data: bytes) -> None:
        """Send the last piece of the response's body, and end the response."""
        await self.send_body(data)
        await self.send_end()

    async def send_response(self, head: sansmcp.ResponseHead, body: bytes) -> None:
        """Send a complete response."""
        await self.send_head(head)
        if body:
            await self.send_last(body)
        else:
            await self.send_end()

    async def wait_disconnected(self) -> None:
        """Return when the client has disconnected.

        Runs in a task of its own, after the end of the request. The default waits for ever; it is
        for frameworks that cancel :meth:`run`, or do not report disconnections.
        """
        await self._loop.event().wait()

    async def run(self, head: sansmcp.RequestHead) -> bool:
        """Perform the exchange, from the head of the request to the end of the response.

        Args:
            head: the head of the request.

        Returns:
            True if the whole response was sent. If False, it is incomplete or was not begun: close
            the connection, so that the client does not take it for complete.
        """
        self._serving.exchanges += 1
        is_complete: bool | None = None
        try:
            self._feed(head)
            while is_complete is None:
                if self._exchange.is_done and not self._is_reading:
                    is_complete = await self._send_whole()
                if is_complete is None:
                    effect = self._serving.core.next_effect_of(self._exchange)
                    is_complete = await self._perform(effect)
            return is_complete
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._serving.exchanges -= 1
            if not is_complete:
                self._feed(sansmcp.ConnectionLost())
            self._serving.pump()

    def wake(self) -> None:
        """Record that there is something to send. The server calls this."""
        self._is_woken = True
        if self._woken is not None:
            self._woken.set()

    async def _send_whole(self) -> bool | None:
        """Send the response in one piece, as :meth:`_perform` does; None if it has begun."""
        response = self._serving.core.next_response_of(self._exchange)
        if response is None:
            return None
        self._serving.pump()
        return await self._send(self.send_response, *response)

    async def _perform(self, effect: ExchangeEffect | Idle) -> bool | None:
        """Perform an effect. Return the result of :meth:`run`, or None if the exchange goes on."""
        match effect:
            case SendHead(head):
                self._serving.pump()
                return None if await self._send(self.send_head, head) else False
            case SendBody(data):
                if self._is_reading or not self._exchange.is_at_end:
                    return None if await self._send(self.send_body, data) else False
                is_sent = await self._send(self.send_last, data)
                if is_sent:
                    self._serving.core.next_effect_of(self._exchange)  # the end, which was sent
                return is_sent
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
                # This consumes all events, so the machine never has to pause its input.
                self._serving.pump()
                await (self._read() if self._is_reading else self._wait())
                return None
            case _ as impossible:
                assert_never(impossible)

    async def _send(self, send: Callable[..., Awaitable[None]], *part: Any) -> bool:
        """Send a part. Return False if the client does not read, or has disconnected."""
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
            is_whole = not self._has_piece and self.is_read
            self._is_reading = bool(data) and not self.is_read
            if is_whole:
                self._serving.core.receive_body(self._exchange, data, now=self._loop.now())
                return
            self._has_piece = True
            if data:
                self._feed(sansmcp.BodyData(data))
            if not self._is_reading:
                self._feed(sansmcp.BodyEnd())

    async def _read_rest(self) -> None:
        while self._is_reading:
            await self._read()

    async def _wait(self) -> None:
        """Wait for something to send."""
        if self._watch is None and not self._is_woken:
            await self._loop.checkpoint()  # most handlers respond meanwhile
        if not self._is_woken:
            if self._watch is None:
                self._watch = self._loop.spawn(self._watch_client)
            self._woken = self._loop.event()
            await self._woken.wait()
            self._woken = None
        self._is_woken = False

    async def _watch_client(self) -> None:
        with suppress(OSError):
            await self.wait_disconnected()
        self._feed(sansmcp.ConnectionLost())
        self._serving.pump()
        self.wake()

    def _feed(self, part: RequestPart) -> None:
        self._serving.core.receive_part(self._exchange, part, now=self._loop.now())
