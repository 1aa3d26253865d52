"""The heads of responses, by httptools."""

from __future__ import annotations

import httptools

from ..http import ResponseHead
from ..wire import malformed


class _Collector:
    """Is told by the parser what it reads."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self.is_complete = True


def read_response_head(data: bytes) -> tuple[ResponseHead, bool]:
    """Implements :class:`sansmcp.wire.ResponseHeadReader`."""
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # nobody has asked for one
    except httptools.HttpParserError as error:
        raise malformed(error) from None
    if not collector.is_complete:
        raise malformed("no response")
    head = ResponseHead(status=parser.get_status_code(), headers=tuple(collector.headers))
    return head, parser.get_http_version() == "1.1"
