"""Event ids: unique, opaque, ASCII, and read back only if we made them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import EventId

requirement = pytest.mark.requirement
TOKENS = st.text("abcXYZ019-_", min_size=1, max_size=128)


@requirement("RESUME-S-003")
@given(stream=TOKENS, seq=st.integers(0, 10**18 - 1))
def test_an_id_names_its_stream_and_its_place(stream: str, seq: int) -> None:
    text = EventId(stream, seq).encode()
    assert text.isascii()
    assert text
    assert EventId.decode(text) == EventId(stream, seq)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "a",
        "a-",
        "-1",
        "a-01",
        "a--1x",
        "a-1 ",
        "a b-1",
        "ä-1",
        "a-٣",
        "a-" + "9" * 19,
        "x" * 129 + "-1",
    ],
)
def test_what_we_never_made_is_no_id(text: str) -> None:
    assert EventId.decode(text) is None


@given(st.text())
def test_any_text_is_an_id_that_we_made_or_none(text: str) -> None:
    cursor = EventId.decode(text)
    assert cursor is None or cursor.encode() == text


def test_the_token_does_not_show() -> None:
    assert "secret-token" not in repr(EventId("secret-token", 3))
