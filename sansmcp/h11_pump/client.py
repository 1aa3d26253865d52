"""The heads of responses, by h11."""

from __future__ import annotations

import h11

from ..http import ResponseHead
from ..wire import malformed


def read_response_head(data: bytes) -> tuple[ResponseHead, bool]:
    """Implements :class:`sansmcp.wire.ResponseHeadReader`."""
    reader = h11.Connection(h11.CLIENT)
    reader.receive_data(data)
    try:
        event = reader.next_event()
    except h11.RemoteProtocolError as error:
        raise malformed(error) from None
    if not isinstance(event, h11.Response):
        raise malformed("no response")
    head = ResponseHead(status=event.status_code, headers=tuple(event.headers))
    return head, event.http_version == b"1.1"
