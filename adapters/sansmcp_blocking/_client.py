"""The client: as long as a method waits, it turns a loop of its own, and the machine with it.

There is no thread and no loop in the background. Whatever happens to a connection ends in its task
and becomes an input of the machine; what the machine has to say to the application is delivered
between two turns.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import sansmcp
import sansmcp_threads
from sansmcp.drivers.client import RequestHandler
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange
from sansmcp.events import ClientEvent
from sansmcp.types import Unpack
from sansmcp_local import (
    ClientParts,
    ConnectOptions,
    ConnectSettings,
    ServerProcess,
    client_parts,
    explains,
    ki_unprotected,
)

from ._loop import Loop, Steps, Task, Wait
from ._process import BlockingProcess
from ._streams import SocketStream, open_stream

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart

_logger = logging.getLogger("sansmcp")

_FLUSH = 5.0
"""Seconds for what nobody waits for to be sent; what is left goes out with the next method."""


class Client(sansmcp_threads.ConcurrentClient):
    """A connected client; made by :func:`connect`. A context manager that closes it at the end.

    While no method is running, nothing is read, answered or resumed. One thread may use it at a
    time: a second one gets LocalProtocolError. The functions that it calls (answers, progress
    reports) may use it. Ctrl-C interrupts a method where it waits; the client can be used
    afterwards, and a call that was interrupted is cancelled.
    """

    def __init__(
        self,
        parts: ClientParts,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(parts.core, request_handlers)
        self._loop = Loop()
        self._pool = sansmcp.ConnectionPool(parts.core)
        self._ssl_context = parts.ssl_context
        self._process = ServerProcess(
            partial(BlockingProcess, self._feed, lambda: self.is_paused, self._loop, parts.process)
        )
        self._carrying: dict[int, Task] = {}
        self._unsent: set[int] = set()

    def free(self) -> None:
        self._loop.close()
        self._process.leave()
        self._pool.close()

    # The machine

    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let everything go on until something is so; False if it is not after ``timeout`` seconds.

        Raises what functions of the application have raised, except those that answer the server.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        is_late = False
        with self.using():
            while True:
                self.run_pending()
                if is_done() or is_late:
                    return is_done()
                due = self.next_deadline()
                with ki_unprotected():
                    ready = self._loop.wait(min(deadline, due))
                self._loop.go_on(ready)  # what has come in time counts, however late we look
                self.handle_timeout()
                is_late = time.monotonic() >= deadline

    def flush(self) -> None:
        """Wait until all is sent that is to be sent now; no longer than a few seconds."""
        self.wait(lambda: self._is_closed.is_done or self._is_flushed(), _FLUSH)

    def _is_flushed(self) -> bool:
        child = self._process.child
        return not self._unsent and (child is None or not child.to_write)

    def perform_effect(self, effect: ClientEffect) -> None:
        match effect:
            case OpenExchange(exchange=exchange):
                self._unsent.add(exchange)
                self._carrying[exchange] = self._loop.start(self._carry(effect))
            case AbortExchange(exchange=exchange):
                if exchange in self._carrying:
                    self._loop.stop(self._carrying.pop(exchange))
                    self._unsent.discard(exchange)
            case _:
                self._process.perform(effect)

    def next_unclaimed_event(self) -> ClientEvent | None:
        self._loop.wake_idle()  # who has waited for room reads on
        return super().next_unclaimed_event()

    def on_other_event(self, event: ClientEvent) -> None:
        super().on_other_event(event)
        if self.is_paused:
            _logger.warning("nothing more is read until events are taken")

    def _feed(self, part: ProcessPart) -> None:
        self.process_said(part)

    def _carry(self, effect: OpenExchange) -> Steps[None]:
        """Carry one HTTP exchange; what is raised ends it, and no other."""
        try:
            yield from self._carry_exchange(effect)
        except Exception as error:
            self.exchange_failed(effect.exchange, error)
        finally:
            self._unsent.discard(effect.exchange)
            self._carrying.pop(effect.exchange, None)

    def _carry_exchange(self, effect: OpenExchange) -> Steps[None]:
        """Carry one HTTP exchange, from its request to the end of its response."""
        connection, request = self._pool.begin(effect, now=time.monotonic())
        try:
            if connection.driver is None:
                url = sansmcp.Url.parse(effect.url)
                connection.driver = yield from open_stream(
                    url, self._ssl_context, self.core.limits.tls_handshake_timeout
                )
            stream: SocketStream = connection.driver
            yield from stream.send(request)
            self._unsent.discard(effect.exchange)
            while not connection.is_done:
                while self.is_paused:
                    yield Wait()
                yield stream.reading()
                data = stream.receive()
                if data:
                    connection.receive_data(data, now=time.monotonic())
                elif data is not None:
                    connection.receive_eof(now=time.monotonic())
        except OSError as error:
            connection.connection_lost(str(error) or "connection lost", now=time.monotonic())
        finally:
            self._pool.release(effect.exchange, now=time.monotonic())


@explains(ConnectOptions, sansmcp.ClientOptions)
def connect(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> Client:
    """Connect to an MCP server. The client is closed by its method, or as a context manager.

    Args:
        target: the URL of an MCP endpoint, http or https; or a command, such as
            ``["python", "server.py"]``, that starts a server on stdio (not on Windows). When the
            client is closed, the process ends, with all that it has started.
        request_handlers: for each request that the server may make, such as
            ``"elicitation/create"``, a function from the :class:`sansmcp.ServerRequest` to the
            result, a JSON object. Declare the request in ``capabilities``, too.
        settings: those of :class:`sansmcp_local.ConnectOptions` and of
            :class:`sansmcp.ClientOptions`.

    Raises CallError if the handshake fails, LocalProtocolError if the target or a setting is wrong.
    """
    return Client(client_parts(target, **settings), request_handlers).open()
