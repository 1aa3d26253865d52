"""A client's end of a connection."""

from __future__ import annotations

from typing import Any

from ..client.client import Client
from ..codecs.http11_framing import encode_head
from ..effects import OpenExchange
from ..errors import LocalProtocolError, RemoteProtocolError
from ..h11_parser import HTTP11
from ..http import BodyEnd, ConnectionLost, Url
from .message_parser import ResponseParser


class ClientConnection:
    """A connection of a client: carries its exchanges, one after the other.

    :meth:`begin` with an OpenExchange effect gives the bytes to send; then feed what comes until
    :attr:`is_done`. The parts go to the client by themselves. If :attr:`is_reusable` then, another
    exchange of the same origin may begin.
    """

    def __init__(self, client: Client) -> None:
        self.driver: Any = None
        """What the bytes go through; the host of the client sets it, and uses it."""
        self._client = client
        http11 = client.http11 or HTTP11
        self._reader = ResponseParser(http11.read_response_head, client.limits.max_head_bytes)
        self._exchange: int | None = None
        self._is_lost = False

    @property
    def is_done(self) -> bool:
        """Whether no exchange is under way."""
        return self._exchange is None

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange may begin on this connection."""
        return self.is_done and not self._is_lost and self._reader.is_ready

    def begin(self, effect: OpenExchange) -> bytes:
        """Begin an exchange; returns what to send.

        Raises LocalProtocolError where it is not :attr:`is_reusable`.
        """
        if not self.is_reusable:
            raise LocalProtocolError("The connection is busy or used up")
        self._exchange = effect.exchange
        head = effect.head
        headers = ((b"host", Url.parse(effect.url).authority.encode()), *head.headers)
        if effect.body or head.method == b"POST":
            headers = (*headers, (b"content-length", b"%d" % len(effect.body)))
        return encode_head(b"%b %b HTTP/1.1" % (head.method, head.target), headers) + effect.body

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Bytes have come from the server."""
        if self._exchange is not None:
            self._reader.receive(data)
            self._read(now)

    def receive_eof(self, *, now: float) -> None:
        """The server has closed its side: the end of the response, or the middle of it."""
        if self._exchange is not None:
            self._reader.receive(b"")
            self._read(now)
        self.connection_lost("closed before the response was complete", now=now)

    def connection_lost(self, reason: str, *, now: float) -> None:
        """The connection broke or could not be made. May be called any number of times."""
        self._is_lost = True
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._client.receive_part(exchange, ConnectionLost(reason), now=now)

    def _read(self, now: float) -> None:
        try:
            while self._exchange is not None and (part := self._reader.next_part()) is not None:
                exchange = self._exchange
                if isinstance(part, BodyEnd):
                    self._exchange = None
                self._client.receive_part(exchange, part, now=now)
        except RemoteProtocolError as error:
            self.connection_lost(f"the response is not HTTP/1.1: {error.message}", now=now)
