"""The client's end of an HTTP/1.1 connection."""

from __future__ import annotations

from typing import Any

import attrs

from ..client.client import Client
from ..codecs.http11_framing import encode_head
from ..effects import OpenExchange
from ..errors import LocalProtocolError, RemoteProtocolError
from ..http import BodyEnd, ConnectionLost, ResponseHead, Unsent, Url
from .message_parser import ResponseParser, parser_of
from .proxy import PROXY_AUTHENTICATION_REQUIRED, Proxy

_REFUSALS = (401, 403, PROXY_AUTHENTICATION_REQUIRED)
"""The statuses that may start an authorization, whose requests depend on the peer's address; and
that of a proxy which wants a password."""

_TLS_ALERT = 0x15
"""The first byte of a TLS server that was sent something else. Source: RFC 8446, 5.1."""


class ClientConnection:
    """The client's end of an HTTP/1.1 connection, which carries one exchange at a time.

    Send the bytes that ``begin()`` returns, then feed everything that arrives until ``is_done``.
    The connection passes the parts of the response to the client. If ``is_reusable`` is True then,
    another exchange to the same origin may begin.

    Not thread-safe.
    """

    def __init__(self, client: Client, proxy: Proxy | None = None) -> None:
        self.proxy = proxy
        """The proxy to connect to instead of the server; None for a direct connection.

        If the URL is https, perform a :class:`~sansmcp.http11.proxy.Tunnel` first.
        """
        self.driver: Any = None
        """The stream that sends the bytes, set by the driver; ConnectionPool needs a ByteStream."""
        self.peer = ""
        """The IP address at the other end, set by the driver when the connection is open."""
        self._client = client
        read_head = parser_of(client.http11).read_response_head
        self._reader = ResponseParser(read_head, client.limits.max_head_bytes)
        self._exchange: int | None = None
        self._is_lost = False
        self._is_tunnelled = False
        self._may_be_tls = True
        """True until bytes have come, if the URL is of http and no proxy is used."""

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
        url, target = Url.parse(effect.url), head.target
        headers = ((b"host", url.authority.encode()), *head.headers)
        self._is_tunnelled = url.scheme == "https"
        self._may_be_tls &= self.proxy is None and not self._is_tunnelled
        if self.proxy is not None and not self._is_tunnelled:
            target = b"http://%b%b" % (url.authority.encode(), target)
            headers = (*headers, *self.proxy.headers)
        if effect.body or head.method == b"POST":
            headers = (*headers, (b"content-length", b"%d" % len(effect.body)))
        return encode_head(b"%b %b HTTP/1.1" % (head.method, target), headers) + effect.body

    def receive_data(self, data: bytes, *, now: float) -> None:
        """Feed bytes from the server. Pull the client's effects afterwards.

        Bytes that are not HTTP/1.1 end the exchange as ``connection_lost()`` does. Bytes that
        arrive without an exchange are ignored.
        """
        if self._exchange is not None and data:
            if self._may_be_tls and data[0] == _TLS_ALERT:
                text = "the server speaks TLS; write https:// instead of http://"
                self.connection_lost(text, unsent=Unsent.PERMANENT, now=now)
                return
            self._may_be_tls = False
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

    def connection_lost(self, reason: str, *, now: float, unsent: Unsent | None = None) -> None:
        """Report that the connection broke or could not be opened. Repeated calls are safe.

        Pull the client's effects afterwards.

        Args:
            reason: text for logs and errors.
            now: the current time in seconds, on the machine's clock.
            unsent: why no byte of the request was sent; None if some may have left.
        """
        self._is_lost = True
        if self._exchange is not None:
            exchange, self._exchange = self._exchange, None
            if self._may_be_tls and unsent is None:  # servers of TLS close or reset the connection
                reason += "; if the server speaks TLS, write https:// instead of http://"
            self._client.receive_part(exchange, ConnectionLost(reason, unsent), now=now)

    def _read(self, now: float) -> None:
        try:
            while self._exchange is not None and (part := self._reader.next_part()) is not None:
                exchange = self._exchange
                if isinstance(part, BodyEnd):
                    self._exchange = None
                elif isinstance(part, ResponseHead) and part.status in _REFUSALS:
                    if part.status == PROXY_AUTHENTICATION_REQUIRED:
                        if self.proxy is not None and not self._is_tunnelled:
                            refused = str(self.proxy.refusal(part, "the server"))
                            self.connection_lost(refused, unsent=Unsent.PERMANENT, now=now)
                            return
                    elif self.proxy is None:
                        part = attrs.evolve(part, peer=self.peer)
                self._client.receive_part(exchange, part, now=now)
        except RemoteProtocolError as error:
            self.connection_lost(f"the response is not HTTP/1.1: {error.message}", now=now)
