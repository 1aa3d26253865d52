"""Lines come out of any chunking the same, and in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import RemoteProtocolError
from sansmcp.codecs.buffer import CR_LF_CRLF, LF, LineBuffer


def drain(buffer: LineBuffer) -> list[bytes]:
    lines: list[bytes] = []
    while (line := buffer.next_line()) is not None:
        lines.append(line)
    return lines


@given(body=st.binary().map(lambda b: b.replace(b"\x01", b"\n").replace(b"\x02", b"\r")))
def test_lines_do_not_depend_on_chunks(body: bytes) -> None:
    whole, single = LineBuffer(CR_LF_CRLF, 10**6), LineBuffer(CR_LF_CRLF, 10**6)
    whole.append(body)
    lines: list[bytes] = []
    for index in range(len(body)):
        single.append(body[index : index + 1])
        lines += drain(single)
    assert drain(whole) == lines
    expected = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    assert [*lines, whole.rest()] == expected or body.endswith(b"\r")


def test_a_lf_after_a_consumed_cr_belongs_to_it() -> None:
    buffer = LineBuffer(CR_LF_CRLF, 100)
    buffer.append(b"a\r")
    assert drain(buffer) == [b"a"]
    buffer.append(b"")
    assert drain(buffer) == []
    buffer.append(b"\nb\n")
    assert drain(buffer) == [b"b"]


def test_lines_of_stdio_end_at_lf_alone() -> None:
    buffer = LineBuffer(LF, 100)
    buffer.append("a\rb\u2028c\nd".encode())
    assert drain(buffer) == ["a\rb\u2028c".encode()]
    assert buffer.rest() == b"d"
    assert buffer.rest() == b""


def test_a_line_beyond_the_limit_can_be_skipped() -> None:
    buffer = LineBuffer(LF, 3)
    buffer.append(b"abc\nabcd")
    assert buffer.next_line() == b"abc"
    with pytest.raises(RemoteProtocolError):
        buffer.next_line()
    assert not buffer.skip_line()
    buffer.append(b"efg\nhi\n")
    assert buffer.skip_line()
    assert buffer.next_line() == b"hi"


def test_reserved_bytes_count() -> None:
    buffer = LineBuffer(LF, 10)
    buffer.append(b"12345\n")
    with pytest.raises(RemoteProtocolError):
        buffer.next_line(reserved=6)
    assert buffer.next_line(reserved=5) == b"12345"
