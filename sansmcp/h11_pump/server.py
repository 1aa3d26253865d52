"""A server's end of a connection, by h11.

Only its reading is used, with a new parser for each request: that costs next to nothing, while
writing a response by h11 takes as long as reading a request.
"""

from __future__ import annotations

import h11

from ..http import BodyData, BodyEnd, RequestHead
from ..limits import Limits
from ..wire import malformed

_PIECE = 16 * 1024
"""How much is fed at once, at most."""


class ServerWire:
    """Implements :class:`sansmcp.wire.ServerWire`."""

    def __init__(self, limits: Limits) -> None:
        # Heads that are too large are refused before they come here; h11's own limit only has to be
        # out of the way.
        self._limit = 2 * limits.max_head_bytes + _PIECE
        self._h11 = h11.Connection(h11.SERVER, self._limit)

    @property
    def is_http_1_1(self) -> bool:
        """Whether the request says so; until it has come, too."""
        return self._h11.their_http_version != b"1.0"

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        self._h11.receive_data(data)

    def next_part(self) -> RequestHead | BodyData | BodyEnd | None:
        """The next part of the request."""
        try:
            event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise malformed(error, error.error_status_hint) from None
        match event:
            case h11.Request(http_version=b"1.0" | b"1.1"):
                headers = tuple(event.headers)
                return RequestHead(method=event.method, target=event.target, headers=headers)
            case h11.Request(http_version=version):
                raise malformed(f"version {version.decode()}", 505)
            case h11.Data(data=data):
                return BodyData(bytes(data))
            case h11.EndOfMessage():
                return BodyEnd()
            case _:
                return None

    def next_request(self) -> bytes:
        """Begin the next request."""
        ahead, _ = self._h11.trailing_data
        self._h11 = h11.Connection(h11.SERVER, self._limit)
        if ahead:
            self._h11.receive_data(ahead)
        return ahead
