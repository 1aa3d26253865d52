"""Parse the heads of requests and responses with h11; each head gets a new parser."""

from __future__ import annotations

import h11

from ..http import RequestHead, ResponseHead
from ..http11_parser import malformed


def read_request_head(data: bytes) -> tuple[RequestHead, bool]:
    event = _first_event(h11.Connection(h11.SERVER), data)
    assert isinstance(event, h11.Request), "h11 returns a Request for a whole head"
    if event.http_version not in (b"1.0", b"1.1"):
        raise malformed(f"version {event.http_version.decode()}", 505)
    headers = tuple(event.headers)
    head = RequestHead(method=event.method, target=event.target, headers=headers)
    return head, event.http_version == b"1.1"


def read_response_head(data: bytes) -> tuple[ResponseHead, bool]:
    event = _first_event(h11.Connection(h11.CLIENT), data)
    assert isinstance(event, h11.Response), "h11 returns a Response for a whole head"
    head = ResponseHead(status=event.status_code, headers=tuple(event.headers))
    return head, event.http_version == b"1.1"


def _first_event(connection: h11.Connection, data: bytes) -> object:
    connection.receive_data(data)
    try:
        return connection.next_event()
    except h11.RemoteProtocolError as error:
        raise malformed(error, error.error_status_hint) from None
