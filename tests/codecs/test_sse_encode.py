"""What the SSE encoder writes is read back as it was, or it refuses to write it."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import LocalProtocolError, SseDecoder, encode_event
from sansmcp.codecs.sse import KEEP_ALIVE

requirement = pytest.mark.requirement


@requirement("SSE-S-001", "SSE-S-005")
def test_a_block_is_fields_and_a_blank_line() -> None:
    block = encode_event(b'{"a":1}', event="message", id="s-1", retry=3000)
    assert block == b'event: message\nid: s-1\nretry: 3000\ndata: {"a":1}\n\n'
    assert encode_event(b"", id="s-0") == b"id: s-0\ndata: \n\n"
    assert encode_event(None, event="buffer_input", id="s-1") == b"event: buffer_input\nid: s-1\n\n"


def test_a_comment_is_the_first_line_and_no_event() -> None:
    assert encode_event(b"a", comment="why") == b": why\ndata: a\n\n"
    assert encode_event(None, comment="") == b": \n\n"
    assert SseDecoder(100).feed(encode_event(None, comment="data: x")) == []


def test_an_empty_id_erases_the_cursor() -> None:
    decoder = SseDecoder(100)
    decoder.feed(encode_event(b"a", id="7"))
    assert decoder.last_event_id == "7"
    decoder.feed(encode_event(None, id=""))
    assert decoder.last_event_id == ""


@requirement("SSE-S-001")
@given(st.text("a: \n\r\0ä\u2028\ufeff"))
def test_nothing_but_fields_and_a_blank_line_is_written(data: str) -> None:
    block = encode_event(data.encode(), event="e", id="1", retry=2).decode()
    *fields, blank, rest = re.split("\r\n|\r|\n", block)
    assert (fields[:3], blank, rest) == (["event: e", "id: 1", "retry: 2"], "", "")
    assert all(field.startswith("data: ") for field in fields[3:])
    read = [field.removeprefix("data: ") for field in fields[3:]]
    assert read == re.split("\r\n|\r|\n", data)


@requirement("SSE-S-003")
@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n"])
def test_line_breaks_in_data_become_lines(line_break: bytes) -> None:
    block = encode_event(b"a" + line_break + b"id: forged" + line_break)
    assert block == b"data: a\ndata: id: forged\ndata: \n\n"


@requirement("SSE-S-004")
@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\0", "a\x1fb", "\x7f", "\ud800"])
@pytest.mark.parametrize("field", ["id", "event", "comment"])
def test_what_could_forge_a_line_is_refused(field: str, text: str) -> None:
    arguments: dict[str, Any] = {field: text}
    with pytest.raises(LocalProtocolError):
        encode_event(b"", **arguments)


def test_an_empty_event_type_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="leave it out"):
        encode_event(b"", event="")


@pytest.mark.parametrize(
    "retry",
    [
        *(-1, 1.0, 1.9, math.nan, math.inf, True, "1", 10**16),
        # Named, since Python may be set to write fewer than 4,000 digits.
        pytest.param(10**4000, id="long"),
        pytest.param(-(10**4000), id="long and negative"),
    ],
)
def test_what_is_no_reconnection_time_is_refused(retry: Any) -> None:
    """1.9 was written as 1, NaN and infinity raised something else."""
    with pytest.raises(LocalProtocolError):
        encode_event(b"", retry=retry)


@pytest.mark.parametrize("data", [b"\xff", b"\xed\xa0\x80", b"a\xc3", "text", memoryview(b"a"), 1])
def test_data_that_is_no_utf_8_is_refused(data: Any) -> None:
    """Ill-formed UTF-8 went out."""
    with pytest.raises(LocalProtocolError):
        encode_event(data)


@pytest.mark.parametrize("text", [b"a", 1, True])
def test_what_is_no_text_is_no_type_and_no_id(text: Any) -> None:
    for arguments in ({"event": text}, {"id": text}, {"comment": text}):
        with pytest.raises(LocalProtocolError):
            encode_event(b"", **arguments)


def test_the_longest_reconnection_time_is_read_back() -> None:
    (event,) = SseDecoder(1000).feed(encode_event(b"", retry=10**16 - 1))
    assert event.retry == 10**16 - 1


@requirement("SSE-S-006")
def test_a_keep_alive_is_no_event() -> None:
    assert SseDecoder(100).feed(KEEP_ALIVE) == []


TEXTS = st.one_of(st.none(), st.text())


@given(
    data=TEXTS,
    event=TEXTS,
    id=TEXTS,
    retry=st.one_of(st.none(), st.integers(0, 10**9)),
    comment=TEXTS,
)
def test_a_block_is_read_back_as_it_was_or_refused(
    data: str | None, event: str | None, id: str | None, retry: int | None, comment: str | None
) -> None:
    text = None if data is None else data.encode()
    try:
        block = encode_event(text, event=event, id=id, retry=retry, comment=comment)
    except LocalProtocolError:
        return
    events = SseDecoder(1_000_000).feed(block + b"data: next\n\n")
    assert events[-1].data == "next"
    if (data, event, id, retry) == (None, None, None, None):
        assert len(events) == 1
        return
    (read,) = events[:-1]
    normal = None if data is None else data.replace("\r\n", "\n").replace("\r", "\n")
    assert (read.data, read.event, read.id, read.retry) == (normal, event or "message", id, retry)
