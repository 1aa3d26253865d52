"""Parse the heads of requests and responses with httptools; each head gets a new parser."""

from __future__ import annotations

import httptools

from ..errors import RemoteProtocolError
from ..http import RequestHead, ResponseHead
from ..http11_parser import malformed


class _Collector:
    """Collects the parts of a head from the callbacks of a parser."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_url(self, url: bytes) -> None:
        self.target = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def read_request_head(data: bytes) -> tuple[RequestHead, bool]:
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    _feed(parser, data)
    if not collector.is_complete:
        raise malformed("not a request head")
    version, headers = parser.get_http_version(), tuple(collector.headers)
    if version not in ("1.0", "1.1"):
        raise malformed(f"version {version}", 505)
    head = RequestHead(method=parser.get_method(), target=collector.target, headers=headers)
    hosts = head.values(b"host")
    if len(hosts) > 1 or (version == "1.1" and not hosts):
        raise malformed("a request must have one Host header")
    return head, version == "1.1"


def read_response_head(data: bytes) -> tuple[ResponseHead, bool]:
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    try:
        _feed(parser, data)
    except RemoteProtocolError:
        once = _with_one_length(data)
        if once == data:
            raise
        return read_response_head(once)
    if not collector.is_complete:
        raise malformed("not a response head")
    head = ResponseHead(status=parser.get_status_code(), headers=tuple(collector.headers))
    return head, parser.get_http_version() == "1.1"


def _with_one_length(data: bytes) -> bytes:
    """Return a head whose ``Content-Length`` comes once, if it is repeated in equal lines.

    Source: RFC 9112, 6.3: a recipient may treat them as one. Others stay, and are errors.
    """
    lines: list[bytes] = []
    for line in data.split(b"\r\n"):
        if not (line.lower().startswith(b"content-length:") and line in lines):
            lines.append(line)
    return b"\r\n".join(lines)


def _feed(parser: httptools.HttpRequestParser | httptools.HttpResponseParser, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # we never request an upgrade, and ignore requests for one
    except httptools.HttpParserError as error:
        raise malformed(error) from None
