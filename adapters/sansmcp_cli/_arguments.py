"""The arguments of a tool or prompt as words of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from sansmcp.codecs.json import as_object
from sansmcp.types import elide
from sansmcp_local import load_json

from ._output import UsageError

_MAX_NAME = 100
"""Characters of a name that are shown if it is one of many."""

_PAIR = re.compile(r"([^={}\[\]\"\s]+)=(.*)", re.DOTALL)


def json_arguments(words: Sequence[str], what: str, usage: str) -> dict[str, Any] | None:
    """Return arguments that are one JSON object; None if they are pairs. Raises UsageError."""
    pairs = [word for word in words if _PAIR.fullmatch(word)]
    if len(pairs) == len(words):
        return None
    if len(words) > 1:
        wrong = next(word for word in reversed(words) if word not in pairs)
        raise UsageError(
            f"Arguments are NAME=VALUE, or one JSON object in quotes; got {elide(wrong)}; {usage}"
        )
    return _arguments(words[0], what)


def _arguments(text: str, what: str) -> dict[str, Any]:
    try:
        arguments = as_object(load_json(text))
    except ValueError as error:
        raise UsageError(
            f"The arguments of the {what} are not JSON: {error}; got {elide(text)}, "
            "write them like a=1 b=2, or like '{\"a\": 1}'"
        ) from None
    if arguments is None:
        raise UsageError(
            f"The arguments of the {what} must be a JSON object like '{{\"a\": 1}}', or pairs like "
            f"a=1, got {elide(text)}"
        )
    return dict(arguments)


def nearest(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, 3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    shown = ", ".join(name[:_MAX_NAME] for name in names[:20])
    return f"; there are {shown}{' and more' if len(names) > 20 else ''}"
