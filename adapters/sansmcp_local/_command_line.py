"""Errors about the words of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ALIKE = 0.7
"""How alike an option must be to be suggested: --trace is no misspelt --name."""


def unknown_options(words: Iterable[str], usage: str, otherwise: str = "") -> str:
    """Return the error for words that a parser does not know, with the closest option of each.

    ``usage`` is a text with all options, such as the help of the parser. ``otherwise`` ends the
    error if no option is alike.
    """
    from difflib import get_close_matches  # rarely needed, and slow to import

    words = list(words)
    known = re.findall(r"(?<!\S)\[?(--[a-z][a-z0-9-]*)", usage)
    meant: dict[str, None] = {}
    for word in words:
        name = word.partition("=")[0]
        if name in ("--host", "--port") and "--http" in known:
            meant["--http HOST:PORT"] = None
        else:
            meant.update(dict.fromkeys(get_close_matches(name, known, 1, _ALIKE)))
    hint = f"; did you mean {' and '.join(meant)}?" if meant else otherwise
    return f"unrecognized arguments: {' '.join(words)}{hint}"
