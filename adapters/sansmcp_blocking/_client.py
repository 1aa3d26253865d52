"""The client: while a method waits, it runs a selector loop, and the machine with it.

There is no thread and no loop in the background. A connection's task passes bytes, and the end of
the connection, to the machine. The machine's events are delivered between two runs of the loop.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import sansmcp
import sansmcp_local
from sansmcp.drivers.client import RequestHandler
from sansmcp.effects import AbortExchange, OpenExchange, TransportEffect
from sansmcp.events import ClientEvent
from sansmcp.types import Unpack
from sansmcp_local import (
    ClientParts,
    ConnectOptions,
    ConnectSettings,
    ServerProcess,
    client_parts,
    connect_failure,
    explains,
    ki_unprotected,
    lost_reason,
)

from ._loop import Loop, Steps, Task, Wait
from ._process import BlockingProcess
from ._streams import SocketStream, open_stream

if TYPE_CHECKING:
    from sansmcp.process import ProcessPart

_logger = logging.getLogger("sansmcp")

_FLUSH = 5.0
"""Seconds that a method spends on sending what is unsent; the next method sends the rest."""


class Client(sansmcp_local.ConcurrentClient):
    """A blocking MCP client; :func:`connect` makes it. A context manager that closes it.

    While no method runs, the client reads nothing, responds to no server request and resumes no
    stream.

    One thread may use the client at a time; a second one gets LocalProtocolError. The functions
    that the client calls (request handlers, ``on_progress``) may use it. Ctrl-C interrupts a method
    where it waits: the interrupted call is cancelled, and the client can still be used.
    """


class ClientDriver(sansmcp_local.ConcurrentClientDriver):
    """Drives a blocking client, by a selector loop that runs while a method waits."""

    def __init__(
        self,
        parts: ClientParts,
        request_handlers: Mapping[str, RequestHandler] | None,
    ) -> None:
        super().__init__(parts.core, request_handlers)
        self._loop = Loop()
        self._pool = sansmcp.ConnectionPool(parts.core, parts.proxies)
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

    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Run the client until ``is_done()`` is true, or ``timeout`` seconds have passed.

        Args:
            is_done: the condition.
            timeout: seconds; None to wait without a limit.

        Returns:
            The last result of ``is_done()``.

        An exception of ``on_progress`` ends its call. One of a request handler is sent to the
        server as an error.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        is_late = False
        with self.using():
            while True:
                self.pump()
                if is_done() or is_late:
                    return is_done()
                self._turn(deadline)
                is_late = time.monotonic() >= deadline

    def _turn(self, until: float) -> bool:
        """Wait for something to do, at most until the time ``until``, and do it.

        Call :meth:`pump` before, and in :meth:`using`. Returns False if no task could run.
        """
        due = self.next_deadline()
        with ki_unprotected():
            ready = self._loop.wait(min(until, due))
        has_work = bool(ready) or self._loop.has_work
        self._loop.go_on(ready)  # before the deadlines: bytes may have come in time
        self.handle_timeout()
        return has_work

    def flush(self) -> None:
        """Wait until everything is sent, for a few seconds at most."""
        self.wait(lambda: self._is_closed.is_done or self._is_flushed(), _FLUSH)

    def _is_flushed(self) -> bool:
        child = self._process.child
        return not self._unsent and (child is None or not child.to_write)

    def perform_effect(self, effect: TransportEffect) -> None:
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
        self._loop.wake_idle()  # reading may have been paused until now
        return super().next_unclaimed_event()

    def on_other_event(self, event: ClientEvent) -> None:
        super().on_other_event(event)
        if self.is_paused:
            _logger.warning("nothing more is read until events are taken")

    def _feed(self, part: ProcessPart) -> None:
        self.receive_process_part(part)

    def _carry(self, effect: OpenExchange) -> Steps[None]:
        """Perform one HTTP exchange. An exception ends this exchange only."""
        try:
            yield from self._carry_exchange(effect)
        except Exception as error:
            self.exchange_failed(effect.exchange, error)
        finally:
            self._unsent.discard(effect.exchange)
            self._carrying.pop(effect.exchange, None)

    def _carry_exchange(self, effect: OpenExchange) -> Steps[None]:
        """Perform one HTTP exchange, from its request to the end of its response."""
        connection, request = self._pool.begin(effect, now=time.monotonic())
        try:
            if connection.driver is None:
                url = sansmcp.Url.parse(effect.url)
                patience, policy = self.core.limits.tls_handshake_timeout, effect.address_policy
                opened = yield from open_stream(
                    url, self._ssl_context, patience, policy, connection.proxy
                )
                connection.driver, connection.peer = opened, opened.peer
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
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name with an empty label
            text = str(error) or "connection lost"
            reason, unsent = lost_reason(error, text)
            if connection.driver is None:
                reason, unsent = connect_failure(error, text, effect.url, connection.proxy)
            connection.connection_lost(reason, unsent=unsent, now=time.monotonic())
        finally:
            self._pool.release(effect.exchange, now=time.monotonic())


@explains(ConnectOptions, sansmcp.ClientOptions)
def connect(
    target: str | Sequence[str],
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    **settings: Unpack[ConnectSettings],
) -> Client:
    """Connect to an MCP server, and return the connected client.

    Close it with ``close()``, or use it as a context manager.

    Args:
        target: the URL of an MCP endpoint, http or https; or that of a Unix socket, such as
            ``"http+unix://%2Frun%2Fmcp.sock/mcp"``; or the command that starts a server on stdio,
            such as ``["python", "server.py"]``. Closing the client ends that process, and all that
            it has started.
        request_handlers: functions that respond to the server's requests, by method, such as
            ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest` and returns the
            result, a JSON object, or raises JsonRpcError. The client declares the capability
            that each needs.
        settings: the fields of :class:`sansmcp_local.ConnectOptions` and
            :class:`sansmcp.ClientOptions`, explained below.

    Raises:
        CallError: the handshake failed.
        LocalProtocolError: the target or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    driver = ClientDriver(client_parts(target, **settings), request_handlers)
    driver.open()
    return Client(driver)


def log_out(url: str, **settings: Unpack[ConnectSettings]) -> None:
    """Revoke the stored tokens for an MCP server at their issuer (RFC 7009), and delete them.

    The refresh token is revoked, and with it its access tokens; without one, the access token. The
    MCP server is not asked. Each request to the issuer may take 10 s, and the first that fails is
    the last; all of it ends within 60 s, if the storage does not block for longer.

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
    ClientDriver(client_parts(url, **settings), None).log_out()
