"""What one document costs: memory by its values and bytes, time in step with its length.

The documents are the worst that were found. 32 MiB of nested arrays took
10.5 s and 1.6 GiB.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from sansmcp import Limits, RemoteProtocolError
from sansmcp.codecs import json

from .work import is_linear_in_time

LIMITS = Limits()
SIZE = 400_000
"""Bytes: some of the documents have nearly as many values as they may have."""


def of(unit: bytes, first: bytes = b"") -> Callable[[int], bytes]:
    """An array of the same again and again."""
    return lambda size: b"[" + first + unit * ((size - 5) // len(unit)) + b"1]"


def text(unit: bytes) -> Callable[[int], bytes]:
    """One long string."""
    return lambda size: b'["' + unit * (size // len(unit)) + b'"]'


def names(form: bytes, last: bytes = b'"":1}') -> Callable[[int], bytes]:
    """An object of many names."""
    return lambda size: (
        b"{" + b"".join(form % number for number in range(size // len(form % 0))) + last
    )


DOCUMENTS: dict[str, Callable[[int], bytes]] = {
    "text": text(b"x"),
    "text beyond ASCII": text("\u00e9".encode()),
    "line feeds": text(b"\\n"),
    "escapes": text(b"\\u0041"),
    "escaped colons": text(b"\\u003a"),
    "escaped quotes": text(b'\\"'),
    "escaped backslashes": text(b"\\\\"),
    "pairs of surrogates": text(b"\\ud83d\\ude00"),
    "lone surrogates": text(b"\\ud83d"),
    "commas in text": text(b","),
    "brackets in text": text(b"[{"),
    "short names": names(b'"%05x":1,'),
    "long names": names(b'"%0500x":1,'),
    "names with escapes": names(b'"\\u003a%05x":1,'),
    "a name that stands twice": names(b'"%05x":1,', b'"00001":1}'),
    "empty arrays": of(b"[],"),
    "empty objects": of(b"{},"),
    "arrays of one": of(b"[1],"),
    "objects of one": of(b'{"":1},'),
    "objects of one, and an escape": of(b'{"":1},', b'"\\n",'),
    "nested arrays": of(b"[" * 60 + b"]" * 60 + b","),
    "nested arrays, and an escape": of(b"[" * 60 + b"]" * 60 + b",", b'"\\n",'),
    "nested objects": of(b'{"":' * 60 + b"1" + b"}" * 60 + b","),
    "small integers": of(b"1234567,"),
    "integers of 20 digits": of(b"9" * 20 + b","),
    "integers of 4,300 digits": of(b"9" * 4300 + b","),
    "one integer": lambda size: b"[" + b"9" * size + b"]",
    "floats": of(b"1.5e10,"),
    "floats of 4,000 digits": of(b"0." + b"1" * 4000 + b","),
    "one float": lambda size: b"[0." + b"1" * size + b"]",
    "strings": of(b'"abcdefgh",'),
    "strings with escapes": of(b'"\\u003a",'),
    "strings of brackets": of(b'",[",'),
    "spaces": lambda size: b"[" + b" " * size + b"]",
    "brackets that open": lambda size: b"[" * size,
    "brackets that close": lambda size: b"]" * size,
    "brackets by turns": lambda size: b"[]" * (size // 2),
    "quotes": lambda size: b'"' * size,
    "commas": lambda size: b"," * size,
    "backslashes": lambda size: b"\\" * size,
}


Reader: TypeAlias = Callable[[bytes, int, int], Any]
READERS: list[Reader] = [json.decode, json.decode_stdlib]


def peak(read: Reader, data: bytes) -> int:
    """Bytes that reading a document takes at most, its value among them."""
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with suppress(RemoteProtocolError):
            _value = read(data, LIMITS.max_json_depth, LIMITS.max_values)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("make", DOCUMENTS.values(), ids=DOCUMENTS)
def test_memory_is_bounded_by_values_and_bytes(make: Callable[[int], bytes], read: Reader) -> None:
    data = make(SIZE)
    values = 1 + sum(map(data.count, (b"[", b"{", b",")))
    assert peak(read, data) < 300 * min(values, LIMITS.max_values) + 3 * len(data) + 16 * 1024


@pytest.mark.parametrize("max_values", [1, json.UNBOUNDED])
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("make", DOCUMENTS.values(), ids=DOCUMENTS)
def test_time_is_linear(make: Callable[[int], bytes], read: Reader, max_values: int) -> None:
    def prepare(size: int) -> Iterator[None]:
        data = make(size)

        def run() -> Iterator[None]:
            with suppress(RemoteProtocolError):
                read(data, LIMITS.max_json_depth, max_values)
            yield

        return run()

    assert is_linear_in_time(prepare, 16 * 1024)
