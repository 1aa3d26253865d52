"""What the picture and the page show of the command is what it shows now."""

from __future__ import annotations

import re

from .screenshots import PAGE, PICTURE, picture, recorded, text_of


def test_the_picture_is_up_to_date() -> None:
    """If this fails: make screenshots."""
    assert text_of(PICTURE.read_text(encoding="utf-8")) == text_of(picture())


def test_the_picture_loads_nothing() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|href|<script|@import", svg)


def test_the_sessions_are_up_to_date() -> None:
    """If this fails: make screenshots."""
    text = PAGE.read_text(encoding="utf-8")
    assert recorded(text) == text
