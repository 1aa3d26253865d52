"""A server's end of a connection, by h11."""

from __future__ import annotations

import h11

from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..limits import Limits
from ..types import never
from ..wire import malformed

_PIECE = 16 * 1024
"""How much is fed at once, at most."""

_CONTINUE = h11.InformationalResponse(status_code=100, headers=[])


class ServerWire:
    """Implements :class:`sansmcp.wire.ServerWire`."""

    def __init__(self, limits: Limits) -> None:
        # Heads that are too large are refused before they come here; h11's own limit only has to be
        # out of the way.
        self._h11 = h11.Connection(h11.SERVER, 2 * limits.max_head_bytes + _PIECE)

    @property
    def waits_for_continue(self) -> bool:
        """Whether the client waits for leave to send its body."""
        return self._h11.they_are_waiting_for_100_continue

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow."""
        return self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE

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

    def continue_(self) -> bytes:
        """Give leave to send the body."""
        return self._send(_CONTINUE)

    def send(self, part: ResponseHead | BodyData | BodyEnd) -> bytes:
        """A part of the response."""
        match part:
            case ResponseHead(status=status, headers=headers):
                return self._send(h11.Response(status_code=status, headers=list(headers)))
            case BodyData(data):
                return self._send(h11.Data(data=data))
            case BodyEnd():
                return self._send(h11.EndOfMessage())
            case _ as impossible:
                never(impossible)

    def next_request(self) -> bytes:
        """Begin the next request."""
        self._h11.start_next_cycle()
        return self._h11.trailing_data[0]

    def _send(
        self, event: h11.Response | h11.InformationalResponse | h11.Data | h11.EndOfMessage
    ) -> bytes:
        return self._h11.send(event) or b""
