"""The blocking client: one HTTP request after the other, each in the thread that waits for it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from types import ModuleType
from typing import TYPE_CHECKING

import sansmcp
import sansmcp_local
from sansmcp.drivers.client import RequestHandler
from sansmcp.effects import AbortExchange, OpenExchange, TransportEffect
from sansmcp.events import ClientEvent
from sansmcp.types import STREAMABLE_HTTP, Unpack
from sansmcp_local import explains, ki_unprotected, new_client

from ._http import (
    HttpClient,
    auth_of,
    connection_lost_from,
    library_of,
    request_of,
    response_parts,
)

if TYPE_CHECKING:
    from sansmcp.http import ResponsePart

_DEADLINE_SLACK = 0.1
"""Seconds after a deadline at which httpx stops reading, so that the machine times out first."""

_LONGEST_SILENCE = 30.0
"""Read timeout in seconds for a response while the machine has no deadline."""


class BlockingClient(sansmcp_local.BlockingClient):
    """A client on a ``Client`` of httpx or httpx2, made by :func:`connect_blocking`.

    It is a context manager.

    A blocking httpx client waits for one response at a time, and there is no thread in the
    background. So a method makes its HTTP requests one after the other. While no method runs, the
    client reads nothing, responds to no server request and resumes no stream. It opens no
    standalone stream: the server can send notifications and requests only during a call.

    One thread may use the client at a time; a second one gets LocalProtocolError.

    If a server sends the response of a call and fails to end the HTTP response after it, the call
    may return only when it would time out.

    httpx limits the time of each read, and not that of a whole head. A hostile server that sends
    its head a few bytes at a time, or interim responses without end, holds a method for longer than
    its timeouts. The other adapters end such a request in time.
    """


class _Driver(sansmcp_local.ThreadClientDriver):
    """Drives a client on a ``Client`` of httpx or httpx2."""

    def __init__(
        self,
        core: sansmcp.Client,
        http: HttpClient,
        library: ModuleType,
        request_handlers: Mapping[str, RequestHandler] | None,
        on_event: Callable[[ClientEvent], object],
    ) -> None:
        super().__init__(core, request_handlers)
        self._http = http
        self._library = library
        self._on_event = on_event
        self._raised: Exception | None = None
        """The exception of ``on_event``, to be raised by the method that runs."""
        self._to_open: deque[OpenExchange] = deque()
        self._carrying: set[int] = set()

    def close(self) -> None:
        with self.using():
            self.begin_close()
            self.wait(lambda: self._is_closed.is_done)

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Make HTTP requests, and wait for deadlines, until ``is_done()`` is true."""
        self.pump()
        while not is_done():
            if self._to_open:
                self._carry(self._to_open.popleft(), is_done)
            else:
                self._sleep()

    def flush(self) -> None:
        """Make the HTTP requests that are due."""
        self.wait(lambda: not self._to_open)

    def _sleep(self) -> None:
        """Wait for the next deadline: of the call, or of the next attempt to resume it."""
        deadline = self.next_deadline()
        assert deadline < math.inf, "a caller that waits has a deadline"
        with ki_unprotected():
            time.sleep(max(0.0, deadline - time.monotonic()))
        self.handle_timeout()

    def perform_effect(self, effect: TransportEffect) -> None:
        match effect:
            case OpenExchange():
                self._to_open.append(effect)
            case AbortExchange(exchange=exchange):
                self._carrying.discard(exchange)
                self._to_open = deque(one for one in self._to_open if one.exchange != exchange)
            case _:
                pass  # there is no process

    def on_other_event(self, event: ClientEvent) -> None:
        try:
            self._on_event(event)
        except Exception as error:
            self._raised = error

    def pump(self) -> None:
        super().pump()
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error

    def _carry(self, effect: OpenExchange, is_done: Callable[[], bool]) -> None:
        """Perform one HTTP exchange, from its request to the end of its response.

        Messages that are due meanwhile, such as responses to the server's requests, are sent
        between two reads. The GET of a resumed stream is aborted once ``is_done()`` is true.
        """
        exchange = effect.exchange
        self._carrying.add(exchange)
        try:
            with closing(self._parts(effect)) as parts:
                while exchange in self._carrying and (effect.body or not is_done()):
                    if self._to_open:
                        self._carry(self._to_open.popleft(), is_done)
                    else:
                        with ki_unprotected():
                            part = next(parts)
                        self.handle_timeout()
                        self._feed(exchange, part)
                        if isinstance(part, sansmcp.BodyEnd | sansmcp.ConnectionLost):
                            break
        finally:
            self._carrying.discard(exchange)
            self._feed(exchange, sansmcp.ConnectionLost("interrupted"))

    def _feed(self, exchange: int, part: ResponsePart) -> None:
        try:
            self.core.receive_part(exchange, part, now=time.monotonic())
        except Exception as error:
            self.exchange_failed(exchange, error)
        self.pump()

    def _parts(self, effect: OpenExchange) -> Generator[ResponsePart, None, None]:
        """Yield the parts of a response, and how it ended."""
        # httpx has one read timeout for all reads of a response, and a timeout ends the response.
        deadline = self.next_deadline()
        now = time.monotonic()
        read = (
            _LONGEST_SILENCE if deadline == math.inf else max(0.0, deadline - now) + _DEADLINE_SLACK
        )
        try:
            request = request_of(self._library, self._http, effect, read)
        except Exception as error:
            yield connection_lost_from(self._library, self._http, error, effect.url)
            return
        auth = auth_of(self._library, effect)
        yield from response_parts(self._library, self._http, request, auth, follow_redirects=False)


def _ignore(event: ClientEvent) -> None:
    pass


@explains(sansmcp.ClientOptions)
def connect_blocking(
    url: str,
    http: HttpClient,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    on_event: Callable[[ClientEvent], object] = _ignore,
    **settings: Unpack[sansmcp.ClientSettings],
) -> BlockingClient:
    """Connect to an MCP server through a client of httpx or httpx2.

    Returns the connected client. Close it with ``close()``, or use it as a context manager.

    Args:
        url: the URL of an MCP endpoint of Streamable HTTP, http or https.
        http: makes the HTTP requests: a ``Client`` of httpx or httpx2. Closing the MCP client
            leaves it open; close it afterwards. Its read timeout is not used; the timeouts of
            settings and calls are.
        request_handlers: functions that respond to the server's requests during a call, by method,
            such as ``"elicitation/create"``. Each takes a :class:`sansmcp.ServerRequest` and
            returns the result, a JSON object, or raises JsonRpcError. The client declares the
            capability that each needs.
        on_event: a plain function, called during a call with each event that belongs to no call:
            notifications, reconnections, a lost session. The method that runs raises what it
            raises.
        settings: the fields of :class:`sansmcp.ClientOptions`, explained below;
            ``standalone_stream`` and ``transports`` have no effect. With ``authorization``, httpx
            resolves the names of authorization servers by itself, so only literal addresses are
            checked against those of the MCP server.

    Raises:
        CallError: the handshake failed.
        LocalProtocolError: an argument or the value of a setting is wrong.
        TypeError: a setting is unknown.
    """
    sansmcp_local.check_plain("on_event", on_event)
    driver = _driver(url, http, request_handlers, on_event, settings)
    driver.open()
    return BlockingClient(driver)


def log_out_blocking(
    url: str, http: HttpClient, **settings: Unpack[sansmcp.ClientSettings]
) -> None:
    """Revoke the stored tokens for an MCP server at their issuer (RFC 7009), and delete them.

    The refresh token is revoked, and with it its access tokens; without one, the access token. The
    MCP server is not asked. Each request to the issuer may take 10 s, and the first that fails is
    the last; all of it ends within 60 s.

    Args:
        url: the URL of the MCP endpoint.
        http: makes the requests to the issuer, as in :func:`connect_blocking`.
        settings: those of :func:`connect_blocking`. ``authorization`` has the storage, the
            account and, if the client was not registered by this library, the client.

    Raises:
        AuthorizationFailed: with the reason ``not_revoked``, the tokens were deleted and the issuer
            may still accept them; the text says why. With another one, they are still stored.
        LocalProtocolError: ``authorization`` is missing, or another argument is wrong.
        TypeError: a setting is unknown.
    """
    _driver(url, http, None, _ignore, settings).log_out()


def _driver(
    url: str,
    http: HttpClient,
    request_handlers: Mapping[str, RequestHandler] | None,
    on_event: Callable[[ClientEvent], object],
    settings: sansmcp.ClientSettings,
) -> _Driver:
    """Return the driver of a client that is not connected yet."""
    library = library_of(url, http, "Client")
    settings |= sansmcp.ClientSettings(
        standalone_stream=False,
        transports=(STREAMABLE_HTTP,),
        cookies=False,  # the HTTP client keeps them
    )
    return _Driver(new_client(url, **settings), http, library, request_handlers, on_event)
