"""Header lists: lookup, Accept, media types, and what may be put into a header."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError
from sansmcp.codecs import headers
from sansmcp.codecs.headers import EVENT_STREAM, JSON

requirement = pytest.mark.requirement


@pytest.mark.parametrize(
    ("values", "json", "stream"),
    [
        ([], True, True),
        ([b"application/json, text/event-stream"], True, True),
        ([b"application/json", b"text/event-stream"], True, True),
        ([b"*/*"], True, True),
        ([b"Text/Event-Stream;charset=utf-8 , APPLICATION/*"], True, True),
        ([b"application/json"], True, False),
        ([b"text/event-stream"], False, True),
        ([b"*/*, text/event-stream;q=0"], True, False),
        ([b"*/*;q=0, text/*"], False, True),
        ([b"application/json;q=0.0, */*"], False, True),
        ([b"application/json;q=bogus"], False, False),
        ([b"application/json; q = 0.5"], True, False),
        ([b"text/html"], False, False),
        ([b""], False, False),
    ],
)
def test_accept(values: list[bytes], json: bool, stream: bool) -> None:
    assert headers.accepts(values, JSON) is json
    assert headers.accepts(values, EVENT_STREAM) is stream


def test_media_type() -> None:
    assert headers.media_type([b"Application/JSON; charset=utf-8"]) == JSON
    assert headers.media_type(()) is None
    assert headers.media_type([JSON, JSON]) is None
    pair = (b"content-type", b"text/html")
    assert headers.response_media_type((pair, (b"x", b"y"), pair)) == b"text/html"
    assert headers.response_media_type((pair, (b"content-type", JSON))) is None


def test_lookup() -> None:
    several = ((b"a", b"1"), (b"b", b"2"), (b"a", b"1"), (b"b", b"3"))
    assert headers.get(several, b"b") == b"2"
    assert headers.get(several, b"c") is None
    assert headers.get_all(several, b"b") == [b"2", b"3"]
    assert headers.by_name(several) == {b"a": [b"1", b"1"], b"b": [b"2", b"3"]}


def test_what_must_not_say_two_things() -> None:
    assert headers.single([b"1"]) == "1"
    assert headers.single([b"1", b"1"]) == "1"
    assert headers.single([b"2", b"3"]) == "2, 3"
    assert headers.single([]) is None


@pytest.mark.parametrize("text", ["a\r\nb", "a\nb", "\0", "a\n", "ä", "\x7f", "\ud800"])
def test_what_could_forge_a_header_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        headers.further_headers({"x": text})


def test_further_headers() -> None:
    given: dict[str, str | bytes] = {"Authorization": " Bearer a b ", "x": "\xe9".encode("latin-1")}
    expected = ((b"authorization", b"Bearer a b"), (b"x", b"\xe9"))
    assert headers.further_headers(given) == expected


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("abc-!~", True),
        ("", False),
        ("a b", False),
        ("a\n", False),
        ("ä", False),
        ("x" * 1025, False),
    ],
)
def test_session_ids_are_visible_ascii(text: str, valid: bool) -> None:
    assert headers.is_session_id(text) is valid
