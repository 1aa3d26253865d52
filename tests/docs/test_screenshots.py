"""What the pictures and the page show of the command is what it shows now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .demonstration import DEMONSTRATION, animated, demonstrated, shape, text_in
from .screenshots import PAGE, PICTURE, picture, recorded, text_of


def test_the_picture_is_up_to_date() -> None:
    """If this fails: make screenshots."""
    assert text_of(PICTURE.read_text(encoding="utf-8")) == text_of(picture())


def test_the_demonstration_is_up_to_date() -> None:
    """If this fails: make screenshots."""
    shown = text_in(DEMONSTRATION.read_text(encoding="utf-8"))
    assert shape(shown) == shape(demonstrated())


def test_lines_of_the_demonstration_appear_in_their_order() -> None:
    svg = DEMONSTRATION.read_text(encoding="utf-8")
    shares = [float(each) for each in re.findall(r"([\d.]+)% \{ opacity: 1 \}", svg)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 100
    assert len(shares) == len(text_in(svg).splitlines())
    assert svg == animated(text_in(svg))


@pytest.mark.parametrize("picture", [PICTURE, DEMONSTRATION], ids=lambda path: path.stem)
def test_pictures_load_nothing(picture: Path) -> None:
    svg = picture.read_text(encoding="utf-8")
    assert not re.search(r"url\((?!#)|href|<script|@import", svg)


def test_the_sessions_are_up_to_date() -> None:
    """If this fails: make screenshots."""
    text = PAGE.read_text(encoding="utf-8")
    assert recorded(text) == text
