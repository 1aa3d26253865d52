"""Errors about the words of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable


def unknown_options(words: Iterable[str], usage: str) -> str:
    """Return the error for words that a parser does not know, with the closest option of each.

    ``usage`` is a text with all options, such as the help of the parser.
    """
    from difflib import get_close_matches  # rarely needed, and slow to import

    known = re.findall(r"(?<!\S)\[?(--[a-z][a-z0-9-]*)", usage)
    hints = [
        f"{word}; did you mean {near[0]}?" if near else word
        for word in words
        for near in [get_close_matches(word.partition("=")[0], known, 1)]
    ]
    return f"unrecognized arguments: {' '.join(hints)}"
