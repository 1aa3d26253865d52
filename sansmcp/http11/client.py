"""A client's end of a connection."""

from __future__ import annotations

from typing import Any

from ..client.client import Client
from ..effects import OpenExchange
from ..errors import LocalProtocolError, RemoteProtocolError
from ..h11_pump import HTTP11
from ..http import BodyEnd, PeerGone, RequestHead, Url
from .meter import HeadMeter


class ClientConnection:
    """A connection of a client: carries its exchanges, one after the other.

    :meth:`begin` with an OpenExchange effect gives the bytes to send; then feed what comes until
    :attr:`is_done`. The parts go to the client by themselves. If :attr:`is_reusable` then, another
    exchange of the same origin may begin.
    """

    def __init__(self, client: Client) -> None:
        self.host: Any = None
        """What the bytes go through; the host of the client sets it, and uses it."""
        self._client = client
        self._limits = client.limits
        self._wire = (client.http11 or HTTP11).client(self._limits)
        self._meter = HeadMeter(self._limits.max_head_bytes)
        self._exchange: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether no exchange is under way."""
        return self._exchange is None

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange may begin on this connection."""
        return self.is_done and self._wire.is_ready

    def begin(self, effect: OpenExchange) -> bytes:
        """Begin an exchange; returns what to send.

        Raises LocalProtocolError if one is under way already.
        """
        if not self.is_reusable:
            raise LocalProtocolError("The connection is busy or used up")
        self._exchange = effect.exchange
        self._meter = HeadMeter(self._limits.max_head_bytes)
        head = effect.head
        headers = [(b"host", Url.parse(effect.url).authority.encode()), *head.headers]
        if effect.body or head.method == b"POST":
            headers.append((b"content-length", b"%d" % len(effect.body)))
        sent = RequestHead(method=head.method, target=head.target, headers=tuple(headers))
        return self._wire.send(sent, effect.body)

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Bytes have come from the server."""
        if self._exchange is not None:
            if not self._meter.feed(data):
                self.connection_lost("the response head is too large", now=now)
            else:
                self._wire.receive(data)
                self._read(now)

    def receive_eof(self, *, now: float) -> None:
        """The server has closed its side: the end of the response, or the middle of it."""
        if self._exchange is not None:
            self._wire.receive(b"")
            self._read(now)
            self.connection_lost("closed before the response was complete", now=now)

    def connection_lost(self, reason: str, *, now: float) -> None:
        """The connection broke or could not be made. May be called any number of times."""
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._client.receive(exchange, PeerGone(reason), now=now)

    def _read(self, now: float) -> None:
        try:
            while self._exchange is not None and (part := self._wire.next_part()) is not None:
                exchange = self._exchange
                if isinstance(part, BodyEnd):
                    self._exchange = None
                self._client.receive(exchange, part, now=now)
        except RemoteProtocolError as error:
            self.connection_lost(f"the response is not HTTP/1.1: {error.message}", now=now)
