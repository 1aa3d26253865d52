"""Secrets hide themselves, and long values are cut."""

from __future__ import annotations

import pytest

from sansmcp import RequestHead, ResponseHead, Secret
from sansmcp.types import elide, redact


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
