"""Secrets hide themselves, and long values are cut."""

from __future__ import annotations

import pytest

from sansmcp import RequestHead, ResponseHead, Secret
from sansmcp.effects import OpenExchange
from sansmcp.types import elide, escape_controls, hide_credentials, hide_secrets, redact


def test_a_secret_shows_its_length_only() -> None:
    secret = Secret("hunter2")
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"
    assert "7" in repr(secret)
    assert secret.reveal() == "hunter2"


def test_secrets_compare_by_value() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert {Secret("ä"): 1}[Secret("ä")] == 1


def test_redact() -> None:
    assert redact("abc") == "<secret of 3 characters>"
    assert redact(b"abc") == "<secret of 3 characters>"
    assert redact(None) == "None"


@pytest.mark.parametrize("value", ["x" * 1000, b"x" * 1000, ["x" * 1000], bytearray(1000)])
def test_long_values_are_cut(value: object) -> None:
    assert len(elide(value)) < 350


def test_short_values_are_shown() -> None:
    assert elide({"a": 1}) == "{'a': 1}"


@pytest.mark.requirement("SESSION-C-001")
def test_headers_that_hold_secrets_are_not_shown() -> None:
    headers = (
        (b"authorization", b"Bearer xyz"),
        (b"mcp-session-id", b"xyz"),
        (b"last-event-id", b"xyz"),
        (b"cookie", b"xyz"),
        (b"host", b"here"),
    )
    for head in (
        RequestHead(method=b"GET", target=b"/", headers=headers),
        ResponseHead(status=200, headers=headers),
    ):
        assert "xyz" not in repr(head)
        assert "here" in repr(head)


def test_only_harmless_headers_show_their_values() -> None:
    """Row B9 of the review: a credential may be in a header of any name, and in the query."""
    headers = ((b"x-api-key", b"xyz"), (b"content-type", b"text/plain"))
    for head in (
        RequestHead(method=b"GET", target=b"/mcp?key=xyz", headers=headers),
        ResponseHead(status=200, headers=headers),
    ):
        shown = repr(OpenExchange(exchange=1, url="http://h/mcp?key=xyz", head=head, body=b""))  # type: ignore[arg-type]
        assert "xyz" not in shown
        assert "x-api-key" in shown
        assert "text/plain" in shown
    assert "b'/mcp?...'" in repr(RequestHead(method=b"GET", target=b"/mcp?key=xyz", headers=()))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000/mcp", "http://localhost:8000/mcp"),
        ("http://h/mcp?key=//secret#part", "http://h/mcp?..."),
        ("/messages?session_id=secret", "/messages?..."),
        ("/mcp#secret", "/mcp#..."),
        ("http://a-host-with-a-long-name-1.example/mcp", None),
        ("/messages/5f0c9a7e5f0c9a7e5f0c9a7e/x", "/messages/.../x"),
        ("/messages/AbcdefghIjklmnopQrstuv", "/messages/..."),
        ("/internationalization-of-names", None),
    ],
)
def test_urls_for_people(url: str, shown: str | None) -> None:
    """Row B9 of the review."""
    assert hide_secrets(url) == (shown or url)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:pass/w?rd@h/mcp", "http://...@h/mcp"),
        ("user:password@h", "user:...@h"),
        ("ftp://h/x?secret", "ftp://h/x?..."),
    ],
)
def test_what_was_meant_as_a_url(text: str, shown: str) -> None:
    """Row B9 of the review."""
    assert hide_credentials(text) == shown


@pytest.mark.parametrize("code", [0, 8, 10, 13, 27, 0x7F, 0x9B, 0x2028, 0x202E, 0x2066, 0xD800])
def test_what_a_terminal_acts_on_is_escaped(code: int) -> None:
    """Row B10 of the review."""
    assert escape_controls(f"a{chr(code)}b") == f"a\\u{code:04x}b"


@pytest.mark.parametrize("text", ["", "plain ä 漢 🙂", "שלום", "a\\b"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert escape_controls(text) == text
