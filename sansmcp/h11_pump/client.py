"""A client's end of a connection, by h11.

Only its reading is used: writing a request by h11 takes as long as reading the response.
"""

from __future__ import annotations

from functools import lru_cache

import h11

from ..codecs.framing import encode_head
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..limits import Limits
from ..wire import malformed

_PIECE = 64 * 1024
"""How much is fed at once, at least, without being refused by h11."""


class ClientWire:
    """Implements :class:`sansmcp.wire.ClientWire`."""

    def __init__(self, limits: Limits) -> None:
        self._h11 = h11.Connection(h11.CLIENT, 2 * limits.max_head_bytes + _PIECE)

    @property
    def is_ready(self) -> bool:
        """Whether a request may be sent."""
        return self._h11.our_state is h11.IDLE

    def send(self, head: RequestHead, body: bytes) -> bytes:
        """A request."""
        self._h11.send(_request(head.method))
        self._h11.send(h11.EndOfMessage())
        return encode_head(b"%b %b HTTP/1.1" % (head.method, head.target), head.headers) + body

    def receive(self, data: bytes) -> None:
        """Bytes have come, or will come no more."""
        self._h11.receive_data(data)

    def next_part(self) -> ResponseHead | BodyData | BodyEnd | None:
        """The next part of the response."""
        try:
            event = self._h11.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            if self._h11.trailing_data[1]:
                return None  # the connection was closed too early, which is known already
            raise malformed(error) from None
        match event:
            case h11.Response(status_code=status, headers=headers):
                return ResponseHead(status=status, headers=tuple(headers))
            case h11.Data(data=data):
                return BodyData(bytes(data))
            case h11.EndOfMessage():
                both_done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
                if both_done and self._h11.trailing_data == (b"", False):
                    self._h11.start_next_cycle()
                return BodyEnd()
            case _:
                return None


@lru_cache(maxsize=8)
def _request(method: bytes) -> h11.Request:
    """What h11 has to know of a request, to know where the body of the response ends."""
    return h11.Request(method=method, target=b"/", headers=[(b"host", b"")])
