"""The blocking client: one HTTP request after the other, each in the thread that waits for it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import httpx

import sansmcp
import sansmcp_threads
from sansmcp.drivers.client import RequestHandler
from sansmcp.effects import AbortExchange, ClientEffect, OpenExchange
from sansmcp.events import ClientEvent
from sansmcp.types import STREAMABLE_HTTP, Unpack
from sansmcp_local import explains, ki_unprotected, new_client

from ._http import check_arguments, connection_lost_from, head_of, request_of

if TYPE_CHECKING:
    from sansmcp.http import ResponsePart

_DEADLINE_SLACK = 0.1
"""Seconds after a deadline at which httpx gives up reading: the machine is to be told first."""

_LONGEST_SILENCE = 30.0
"""Seconds of silence in the answer to a message for which no deadline is set."""


class BlockingClient(sansmcp_threads.Client):
    """A connected client; made by :func:`connect_blocking`. A context manager that closes it.

    httpx can wait for one response at a time, and there is no thread in the background. So a method
    makes its HTTP requests one after the other, and while no method runs nothing is read, answered
    or resumed. There is no standalone event stream: the server can say and ask things during a call
    only. One thread may use the client at a time: a second one gets LocalProtocolError.

    A server that answers a call and does not end the response to it, as it should, keeps the answer
    back: at most until the call would time out.
    """

    def __init__(
        self,
        core: sansmcp.Client,
        http: httpx.Client,
        request_handlers: Mapping[str, RequestHandler] | None,
        on_event: Callable[[ClientEvent], object],
    ) -> None:
        super().__init__(core, request_handlers)
        self._http = http
        self._on_event = on_event
        self._raised: Exception | None = None
        """What ``on_event`` has raised: it is for the method that runs."""
        self._to_open: deque[OpenExchange] = deque()
        self._carrying: set[int] = set()

    def close(self) -> None:
        """End the session. May be called twice. It takes no longer than ``close_timeout``."""
        with self.using():
            self.begin_close()
            self.wait(lambda: self._is_closed.is_done)

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Make requests, and wait for what is due, until something is so."""
        self.run_pending()
        while not is_done():
            if self._to_open:
                self._carry(self._to_open.popleft(), is_done)
            else:
                self._sleep()

    def flush(self) -> None:
        """Make the requests that nobody waits for."""
        self.wait(lambda: not self._to_open)

    def _sleep(self) -> None:
        """Wait for the next deadline: that of the call, or of the next attempt to resume it."""
        deadline = self.next_deadline()
        assert deadline < math.inf, "who waits has a deadline"
        with ki_unprotected():
            time.sleep(max(0.0, deadline - time.monotonic()))
        self.handle_timeout()

    def perform_effect(self, effect: ClientEffect) -> None:
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

    def run_pending(self) -> None:
        super().run_pending()
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error

    def _carry(self, effect: OpenExchange, is_done: Callable[[], bool]) -> None:
        """Carry one HTTP exchange, from its request to the end of its response.

        Messages to the server that are due meanwhile, such as answers, go out between two reads.
        A stream that was resumed may go on when what is waited for has come, and is broken off.
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
        self.run_pending()

    def _parts(self, effect: OpenExchange) -> Generator[ResponsePart, None, None]:
        """The response to a request, as far as it comes, and its end."""
        # httpx takes a time limit for all reads of a response, and it ends the response.
        deadline = self.next_deadline()
        now = time.monotonic()
        read = (
            _LONGEST_SILENCE if deadline == math.inf else max(0.0, deadline - now) + _DEADLINE_SLACK
        )
        try:
            request = request_of(self._http, effect, read)
            sent = self._http.send(request, stream=True, follow_redirects=False)
            with closing(sent) as response:
                yield head_of(response)
                for data in response.iter_bytes():
                    yield sansmcp.BodyData(data)
            yield sansmcp.BodyEnd()
        except Exception as error:  # of httpx, or of what its user has given to it
            yield connection_lost_from(error)


def _ignore(event: ClientEvent) -> None:
    pass


@explains(sansmcp.ClientOptions)
def connect_blocking(
    url: str,
    http: httpx.Client,
    *,
    request_handlers: Mapping[str, RequestHandler] | None = None,
    on_event: Callable[[ClientEvent], object] = _ignore,
    **settings: Unpack[sansmcp.ClientSettings],
) -> BlockingClient:
    """Connect to an MCP server by an httpx client. What is returned is to be closed.

    Args:
        url: the URL of an MCP endpoint, http or https, of Streamable HTTP.
        http: what makes the requests. It stays open; close it after the client. Its timeout for
            reading is not used: those of the settings and calls hold.
        request_handlers: for each request that the server may make during a call, such as
            ``"elicitation/create"``, a function from the :class:`sansmcp.ServerRequest` to the
            result, a JSON object. Declare the request in ``capabilities``, too.
        on_event: is told, during a call, what happens and belongs to no call: notifications,
            reconnections, a lost session.
        settings: those of :class:`sansmcp.ClientOptions`; ``listen`` and ``transports`` have no
            effect.

    Raises CallError if the handshake fails, LocalProtocolError if an argument or setting is wrong.
    """
    check_arguments(url, http, httpx.Client)
    sansmcp_threads.check_plain("on_event", on_event)
    settings |= sansmcp.ClientSettings(standalone_stream=False, transports=(STREAMABLE_HTTP,))
    return BlockingClient(new_client(url, **settings), http, request_handlers, on_event).open()
