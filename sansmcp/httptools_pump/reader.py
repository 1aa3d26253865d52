"""Reading one message at a time with a parser that reads on as long as there are bytes.

So a parser gets a head as a whole, and nothing of what comes after it; a body of known length needs
no parser; one in chunks is fed line by line, for it ends with a line. What follows a message is
still in the buffer then.
"""

from __future__ import annotations

import abc
import re
from collections import deque
from typing import Generic, TypeVar

import httptools

from ..codecs.headers import Headers, get
from ..http import BodyData, BodyEnd, RequestHead, ResponseHead
from ..limits import Limits
from ..wire import malformed

_Head = TypeVar("_Head", RequestHead, ResponseHead)
_Parser = TypeVar("_Parser", httptools.HttpRequestParser, httptools.HttpResponseParser)

_END_OF_HEAD = re.compile(rb"\n\r?\n")


def framing(headers: Headers, default: float) -> float | None:
    """Bytes of a body with these headers, which the parser has checked; None: it is in chunks."""
    if (get(headers, b"transfer-encoding") or b"").lower().endswith(b"chunked"):
        return None
    length = get(headers, b"content-length")
    return default if length is None else int(length)


class Reader(abc.ABC, Generic[_Head, _Parser]):
    """Bytes in, message parts out. The methods with ``on_`` are called by the parser."""

    _parser: _Parser

    def __init__(self, limits: Limits) -> None:
        self._most_between = limits.max_head_bytes
        self._buffer = bytearray()
        self._parts: deque[_Head | BodyData | BodyEnd] = deque()
        self._begin()

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        self._buffer += data

    def next_part(self) -> _Head | BodyData | BodyEnd | None:
        """The next part of the message; None where it needs more bytes, or is complete.

        Raises RemoteProtocolError (``malformed_http``).
        """
        while not self._parts:
            if self._is_complete or not self._buffer or not self._read():
                return None
        return self._parts.popleft()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; or a trailer, which means nothing here."""
        if not self._in_body:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._in_body = True

    def on_body(self, data: bytes) -> None:
        """A piece of a body in chunks."""
        self._between = 0
        self._parts.append(BodyData(data))

    def on_message_complete(self) -> None:
        """The message is complete: a body in chunks, or anything else that the parser may think."""
        if self._is_chunked:
            self._end()

    @abc.abstractmethod
    def _new_parser(self) -> _Parser:
        """The parser of one message."""

    @abc.abstractmethod
    def _head(self, parser: _Parser) -> _Head:
        """The head that was read."""

    @abc.abstractmethod
    def _length(self, head: _Head) -> float | None:
        """Bytes of the body; None if it comes in chunks."""

    def _begin(self) -> None:
        """The next message begins."""
        self._searched = 0  # no head ends before this
        self._headers: list[tuple[bytes, bytes]] = []
        self._in_body = False
        self._is_chunked = False
        self._is_complete = False
        self._left: float = 0  # of a body that does not come in chunks
        self._between = 0  # bytes since the last piece of a body in chunks

    def _end(self) -> None:
        self._is_complete = True
        self._parts.append(BodyEnd())

    def _read(self) -> bool:
        """Read what belongs together for sure; False if that has not come."""
        if not self._in_body:
            end = _END_OF_HEAD.search(self._buffer, self._searched)
            if end is None:
                self._searched = max(len(self._buffer) - 2, 0)
                return False
            self._read_head(self._take(end.end()))
        elif self._is_chunked:
            self._read_chunks(self._take(self._buffer.find(b"\n") + 1 or len(self._buffer)))
        else:
            data = self._take(int(min(self._left, len(self._buffer))))
            self._left -= len(data)
            self._parts.append(BodyData(data))
            if not self._left:
                self._end()
        return True

    def _read_head(self, data: bytes) -> None:
        self._parser = self._new_parser()
        self._feed(data)
        if not self._in_body:
            raise malformed("no message")
        head = self._head(self._parser)
        self._parts.append(head)
        length = self._length(head)
        self._is_chunked = length is None
        self._left = length or 0
        if length == 0:
            self._end()

    def _read_chunks(self, data: bytes) -> None:
        self._between += len(data)
        self._feed(data)
        if self._between > self._most_between:
            raise malformed("chunks that carry nothing")

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nobody takes it up
        except httptools.HttpParserError as error:
            raise malformed(error) from None

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
