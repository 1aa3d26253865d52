"""Lines of stdio: LF only, blank lines dropped, one bad line hurts no other."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Idle, LocalProtocolError, NdjsonDecoder, RemoteProtocolError, encode_line

requirement = pytest.mark.requirement


def lines(decoder: NdjsonDecoder) -> list[bytes]:
    found: list[bytes] = []
    while not isinstance(line := decoder.next_event(), Idle):
        found.append(line)
    return found


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_lines_in_any_chunking(size: int) -> None:
    body = b'{"a":1}\n\r\n \n{"b":2}\r\n\t\n\xff noise\n{"c"'
    decoder = NdjsonDecoder(100)
    found: list[bytes] = []
    for start in range(0, len(body), size):
        decoder.receive_data(body[start : start + size])
        found += lines(decoder)
    assert found == [b'{"a":1}', b'{"b":2}', b"\xff noise"]
    decoder.receive_eof()
    assert lines(decoder) == [b'{"c"']
    with pytest.raises(LocalProtocolError):
        decoder.receive_data(b"more")


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_line_beyond_the_limit_is_reported_once_and_skipped(size: int) -> None:
    body = b"a\n" + b"x" * 50 + b"\nb\n" + b"y" * 50
    decoder = NdjsonDecoder(10)
    found: list[bytes] = []
    errors = 0
    for start in range(0, len(body), size):
        decoder.receive_data(body[start : start + size])
        while True:
            try:
                line = decoder.next_event()
            except RemoteProtocolError as error:
                assert error.reason == "message_too_large"
                errors += 1
                continue
            if isinstance(line, Idle):
                break
            found.append(line)
    assert found == [b"a", b"b"]
    assert errors == 2
    decoder.receive_eof()
    assert lines(decoder) == []


def test_a_message_is_one_line() -> None:
    assert encode_line(b"{}") == b"{}\n"
    with pytest.raises(LocalProtocolError):
        encode_line(b"{\n}")


@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview])
def test_input_may_be_anything_with_a_buffer(convert: Any) -> None:
    decoder = NdjsonDecoder(1000)
    decoder.receive_data(convert(b"a\r\nb\n"))
    assert [decoder.next_event(), decoder.next_event()] == [b"a", b"b"]
