"""Mutate bytes at random, by a seed."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence

SEEDS = int(os.environ.get("SANSMCP_FUZZ_SEEDS", "1"))
"""Of each test in this process. One makes 10,000 mutations, ten (``make fuzz``) make 100,000.
"""

_TOKEN = re.compile(
    rb'"(?:[^"\\\r\n]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null|\{\}|\[\]'
)
_HEADER = re.compile(rb"(?<=: )[^\r\n]*(?=\r\n)")
_LENGTH = re.compile(rb"content-length: [0-9]+\r\n", re.IGNORECASE)

VALUES: Sequence[bytes] = (
    *(b"null", b"true", b"{}", b"[]", b'""', b"0", b"-1", b"1.5", b"1e308", b"-1e308", b"1e999"),
    *(b"9" * 19, b"-" + b"9" * 19, b"9" * 310, b"9" * 640, b"9" * 4300, b"9" * 4301, b"NaN"),
    *(b'"\\ud800"', b'"\\u0000"', b'"\xff"', '"\U0001f600"'.encode(), b'"' + b"a" * 2000 + b'"'),
    *(b"[" * 70 + b"]" * 70, b'{"a":1,"a":2}', b'{"jsonrpc":"2.0"}', b"[[[[1]]]]", b'"-"', b"1.0"),
    *(b'"2025-11-25"', b'"2026-07-28"', b'"2024-11-05"', b'"9999-99-99"', b'"tools/call"'),
    *(b'"notifications/cancelled"', b'"initialize"', b'"server/discover"', b'"ping"'),
    *(b'"subscriptions/listen"', b'"notifications/progress"', b'"elicitation/create"'),
)
HEADERS: Sequence[bytes] = (
    *(b"", b"9" * 5000, b"-1", b"0", b"1e3", b"\xff\xfe", b"chunked", b"close", b"identity"),
    *(b"text/event-stream", b"application/json", b"*/*;q=x", b"2026-07-28", b"2025-03-26"),
    *(b"http://]", b"http://[::1", b"//[", b"null", b"=?base64?!!?=", b"=?base64?/w==?=", b"x-0"),
    *(b"100-continue", b"a, b", b"[", b"localhost:99999999999", b"/mcp?a=[", b"https://x:x@y/"),
)
PIECES: Sequence[bytes] = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"\0",
        b"\xff",
        b" ",
        b":",
        b",",
        b'"',
        b"\\",
        b"{",
        b"]",
    ),
    *(b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"5\n", b"x: y\r\n", b"http://]", b"data: ", b"id: "),
    *(b"retry: 99999999999999999999\n", b"event: endpoint\n", b"data\n\n", b"id\n", b"9" * 700),
)


class Mutator(random.Random):
    """A source of mutations."""

    def mutated(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """Return the data with one to four mutations, some with pieces of ``others``."""
        for _ in range(self.choice((1, 1, 1, 1, 2, 3))):
            data = self._fault(data, others)
        if self.random() < 0.7:  # or else nearly every body has a wrong length
            data = with_length(data)
        return data

    def pieces(self, data: bytes) -> list[bytes]:
        """Return the data in random pieces."""
        match self.randrange(4):
            case 0:
                sizes = [self.randint(1, 40) for _ in range(20)]
            case 1:
                sizes = [self.randrange(len(data) + 1)]
            case _:
                sizes = []
        pieces: list[bytes] = []
        for size in sizes:
            pieces.append(data[:size])
            data = data[size:]
        return [piece for piece in (*pieces, data) if piece]

    def _fault(self, data: bytes, others: Sequence[bytes]) -> bytes:
        start = self.randrange(len(data) + 1)
        end = min(len(data), start + self.choice((0, 1, 1, 2, 10, 100)))
        match self.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                return self._replaced(data, _TOKEN, VALUES)
            case 5 | 6:
                return self._replaced(data, _HEADER, HEADERS)
            case 7:
                return data[:start] + self.choice(PIECES) + data[end:]
            case 8:
                return data[:start] + bytes([self.randrange(256)]) + data[start + 1 :]
            case 9:
                return data[:start] + data[end:]
            case 10:
                return data[:end] + data[start:]
            case _:
                other = self.choice(others)
                return data[:start] + other[self.randrange(len(other) + 1) :]

    def _replaced(self, data: bytes, what: re.Pattern[bytes], by: Sequence[bytes]) -> bytes:
        found = list(what.finditer(data))
        if not found:
            return data
        match = self.choice(found)
        return data[: match.start()] + self.choice(by) + data[match.end() :]


def with_length(data: bytes) -> bytes:
    """Return the data with a correct content-length, if its head has one."""
    head, blank, body = data.partition(b"\r\n\r\n")
    return _LENGTH.sub(b"content-length: %d\r\n" % len(body), head + b"\r\n", 1)[:-2] + blank + body
