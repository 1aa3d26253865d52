"""A client's end of a connection."""

from __future__ import annotations

import h11

from ..client.client import Client
from ..effects import OpenExchange
from ..errors import LocalProtocolError
from ..http import BodyData, BodyEnd, PeerGone, ResponseHead, Url
from .meter import HeadMeter

_PIECE = 64 * 1024
"""How much is fed at once, at least, without being refused by h11."""


class ClientConnection:
    """A connection of a client: carries its exchanges, one after the other.

    :meth:`begin` with an OpenExchange effect gives the bytes to send; then feed what comes until
    :attr:`is_done`. The parts go to the client by themselves. If :attr:`is_reusable` then, another
    exchange of the same origin may begin.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._limits = client.limits
        self._h11 = h11.Connection(h11.CLIENT, 2 * self._limits.max_head_bytes + _PIECE)
        self._meter = HeadMeter(self._limits.max_head_bytes)
        self._exchange: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether no exchange is under way."""
        return self._exchange is None

    @property
    def is_reusable(self) -> bool:
        """Whether another exchange may begin on this connection."""
        return self.is_done and self._h11.our_state is h11.IDLE

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
        request = h11.Request(method=head.method, target=head.target, headers=headers)
        parts = (request, h11.Data(data=effect.body), h11.EndOfMessage())
        return b"".join(self._h11.send(part) or b"" for part in parts)

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Bytes have come from the server."""
        if self._exchange is not None:
            if not self._meter.feed(data):
                self.connection_lost("the response head is too large", now=now)
            else:
                self._h11.receive_data(data)
                self._read(now)

    def receive_eof(self, *, now: float) -> None:
        """The server has closed its side: the end of the response, or the middle of it."""
        if self._exchange is not None:
            self._h11.receive_data(b"")
            self._read(now)
            self.connection_lost("closed before the response was complete", now=now)

    def connection_lost(self, reason: str, *, now: float) -> None:
        """The connection broke or could not be made. May be called any number of times."""
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            self._client.receive(exchange, PeerGone(reason), now=now)

    def _read(self, now: float) -> None:
        try:
            while self._exchange is not None:
                match self._h11.next_event():
                    case h11.Response(status_code=status, headers=headers):
                        head = ResponseHead(status=status, headers=tuple(headers))
                        self._client.receive(self._exchange, head, now=now)
                    case h11.Data(data=data):
                        self._client.receive(self._exchange, BodyData(bytes(data)), now=now)
                    case h11.EndOfMessage():
                        self._end(self._exchange, now)
                    case h11.InformationalResponse():
                        pass
                    case _:
                        return
        except h11.RemoteProtocolError as error:
            is_closed = self._h11.trailing_data[1]
            if not is_closed:
                self.connection_lost(f"the response is not HTTP/1.1: {error}", now=now)

    def _end(self, exchange: int, now: float) -> None:
        self._exchange = None
        both_done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        if both_done and self._h11.trailing_data == (b"", False):
            self._h11.start_next_cycle()
        self._client.receive(exchange, BodyEnd(), now=now)
