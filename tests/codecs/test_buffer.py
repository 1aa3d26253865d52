"""Pieces come out of any chunking the same, and none that is too large does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import RemoteProtocolError
from sansmcp.codecs.delimited_buffer import DelimitedBuffer


@given(
    body=st.text("a;", max_size=50).map(str.encode),
    mark=st.sampled_from([b";", b";;"]),
    size=st.integers(1, 50),
)
def test_pieces_do_not_depend_on_chunks(body: bytes, mark: bytes, size: int) -> None:
    buffer = DelimitedBuffer(100)
    taken = b""
    pieces: list[bytes] = []
    for start in range(0, len(body), size):
        buffer.waiting += body[start : start + size]
        while piece := buffer.next_delimited(mark):
            taken += piece
            pieces.append(bytes(piece).removesuffix(mark))
    assert [*pieces, buffer.waiting] == body.split(mark)
    assert taken + buffer.waiting == body


def test_a_run_is_all_that_is_complete_and_within_the_window() -> None:
    buffer = DelimitedBuffer(10)
    buffer.waiting += b"ab;c;d"
    assert buffer.next_complete(b";") == b"ab;c;"
    assert buffer.next_complete(b";") == b""
    buffer.waiting += b"e;fgh;ijkl;"
    assert [buffer.next_complete(b";") for _ in range(3)] == [b"de;fgh;", b"ijkl;", b""]


@pytest.mark.parametrize("mark", [b";", b";;"])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_piece_beyond_the_limit_is_refused_in_any_chunking(mark: bytes, size: int) -> None:
    body = b"abc" + mark + b"defg" + mark
    buffer = DelimitedBuffer(3)
    pieces: list[bytes] = []
    with pytest.raises(RemoteProtocolError, match="larger than the limit of 3 bytes"):
        for start in range(0, len(body), size):
            buffer.waiting += body[start : start + size]
            while piece := buffer.next_delimited(mark):
                pieces.append(bytes(piece))
    assert pieces == [b"abc" + mark]


def test_the_rest_of_a_piece_can_be_skipped() -> None:
    buffer = DelimitedBuffer(3)
    buffer.waiting += b"abcd"
    assert not buffer.skip_delimited(b";")
    assert buffer.waiting == b""
    buffer.waiting += b"efg;hi;"
    assert buffer.skip_delimited(b";")
    assert buffer.next_delimited(b";") == b"hi;"
