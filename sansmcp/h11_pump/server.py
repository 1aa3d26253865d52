"""A server's end of a connection, by h11.

Only its reading is used, with a new parser for each request: that costs next to nothing, while
writing a response by h11 takes as long as reading a request. Nor does a body of known length need a
parser.
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

    _left: int | None
    """What has not been given of a body of known length; None where h11 has to read."""
    _ahead: bytes
    """What has come of such a body, and after it."""
    _is_complete: bool

    def __init__(self, limits: Limits) -> None:
        # Heads that are too large are refused before they come here; h11's own limit only has to be
        # out of the way.
        self._limit = 2 * limits.max_head_bytes + _PIECE
        self._begin(b"")

    @property
    def is_http_1_1(self) -> bool:
        """Whether the request says so; until it has come, too."""
        return self._h11.their_http_version != b"1.0"

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        if self._left is None:
            self._h11.receive_data(data)
        else:
            self._ahead += data

    def next_part(self) -> RequestHead | BodyData | BodyEnd | None:
        """The next part of the request."""
        if self._left is None:
            return self._next_by_h11()
        if self._left and self._ahead:
            data, self._ahead = self._ahead[: self._left], self._ahead[self._left :]
            self._left -= len(data)
            return BodyData(data)
        if self._left or self._is_complete:
            return None
        self._is_complete = True
        return BodyEnd()

    def next_request(self) -> bytes:
        """Begin the next request."""
        ahead = self._h11.trailing_data[0] if self._left is None else self._ahead
        self._begin(ahead)
        return ahead

    def _begin(self, ahead: bytes) -> None:
        self._h11 = h11.Connection(h11.SERVER, self._limit)
        if ahead:
            self._h11.receive_data(ahead)
        self._left = None
        self._ahead = b""
        self._is_complete = False

    def _next_by_h11(self) -> RequestHead | BodyData | BodyEnd | None:
        try:
            event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            raise malformed(error, error.error_status_hint) from None
        match event:
            case h11.Request(http_version=b"1.0" | b"1.1"):
                return self._head(event)
            case h11.Request(http_version=version):
                raise malformed(f"version {version.decode()}", 505)
            case h11.Data(data=data):
                return BodyData(bytes(data))
            case h11.EndOfMessage():
                return BodyEnd()
            case _:
                return None

    def _head(self, event: h11.Request) -> RequestHead:
        headers = tuple(event.headers)
        head = RequestHead(method=event.method, target=event.target, headers=headers)
        if not head.values(b"transfer-encoding"):
            self._left = int((head.values(b"content-length") or (b"0",))[0])  # h11 has checked it
            self._ahead = self._h11.trailing_data[0]
        return head
