"""Errors about the words of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable


def unknown_options(words: Iterable[str], usage: str) -> str:
    """Return the error for words that a parser does not know, with the closest option of each.

    ``usage`` is a text with all options, such as the help of the parser.
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
            meant.update(dict.fromkeys(get_close_matches(name, known, 1)))
    hint = f"; did you mean {' and '.join(meant)}?" if meant else ""
    return f"unrecognized arguments: {' '.join(words)}{hint}"
