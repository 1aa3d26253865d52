"""The client's end of an HTTP/1.1 connection."""

from __future__ import annotations

from typing import Any

import attrs

from ..client.client import Client
from ..codecs.http11_framing import encode_head
from ..effects import OpenExchange
from ..errors import LocalProtocolError, RemoteProtocolError
from ..h11_parser import HTTP11
from ..http import BodyEnd, ConnectionLost, ResponseHead, Url
from .message_parser import ResponseParser

_REFUSALS = (401, 403)
"""The statuses that may start an authorization, whose requests depend on the peer's address."""


class ClientConnection:
    """The client's end of an HTTP/1.1 connection, which carries one exchange at a time.

    Send the bytes that ``begin()`` returns, then feed everything that arrives until ``is_done``.
    The connection passes the parts of the response to the client. If ``is_reusable`` is True then,
    another exchange to the same origin may begin.

    Not thread-safe.
    """

    def __init__(self, client: Client) -> None:
        self.driver: Any = None
        """The stream that sends the bytes, set by the driver; ConnectionPool needs a ByteStream."""
        self.peer = ""
        """The IP address at the other end, set by the driver when the connection is open."""
        self._client = client
        http11 = client.http11 or HTTP11
        self._reader = ResponseParser(http11.read_response_head, client.limits.max_head_bytes)
        self._exchange: int | None = None
        self._is_lost = False

    @property
    def is_done(self) -> bool:
        """True if no exchange is in flight."""
        return self._exchange is None

    @property
    def is_reusable(self) -> bool:
        """True if another exchange may begin on this connection."""
        return self.is_done and not self._is_lost and self._reader.is_ready

    def begin(self, effect: OpenExchange) -> bytes:
        """Begin an exchange.

        Args:
            effect: the effect of the client.

        Returns:
            The bytes of the HTTP request, to be sent at once.

        Raises:
            LocalProtocolError: the connection has an exchange in flight, or cannot be reused.
        """
        if not self.is_reusable:
            raise LocalProtocolError(
                "The connection has an exchange in flight or cannot be reused; take one from "
                "ConnectionPool.begin()"
            )
        self._exchange = effect.exchange
        head = effect.head
        headers = ((b"host", Url.parse(effect.url).authority.encode()), *head.headers)
        if effect.body or head.method == b"POST":
            headers = (*headers, (b"content-length", b"%d" % len(effect.body)))
        return encode_head(b"%b %b HTTP/1.1" % (head.method, head.target), headers) + effect.body

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed bytes from the server. Pull the client's effects afterwards.

        Bytes that are not HTTP/1.1 end the exchange as ``connection_lost()`` does. Bytes that
        arrive without an exchange are ignored.
        """
        if self._exchange is not None:
            self._reader.receive(data)
            self._read(now)

    def receive_eof(self, *, now: float) -> None:
        """Report that the server closed its side. Pull the client's effects afterwards.

        This ends a response whose length was not known, and breaks off any other. The connection
        cannot be reused.
        """
        if self._exchange is not None:
            self._reader.receive(b"")
            self._read(now)
        self.connection_lost("closed before the response was complete", now=now)

    def connection_lost(self, reason: str, *, now: float) -> None:
        """Report that the connection broke or could not be opened. Repeated calls are safe.

        Pull the client's effects afterwards.

        Args:
            reason: text for logs and errors.
            now: the current time in seconds, on the machine's clock.
        """
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
                elif isinstance(part, ResponseHead) and part.status in _REFUSALS:
                    part = attrs.evolve(part, peer=self.peer)
                self._client.receive_part(exchange, part, now=now)
        except RemoteProtocolError as error:
            self.connection_lost(f"the response is not HTTP/1.1: {error.message}", now=now)
