"""Parse JSON that a person or a program has written, on any stack."""

from __future__ import annotations

import json
from typing import Any

from sansmcp import RemoteProtocolError
from sansmcp.codecs.json import UNBOUNDED, check_bounds

MAX_DEPTH = 500
"""How deep a document may nest. A parser in C uses some hundred bytes of the stack for a level."""


def load_json(text: str | bytes, *, max_depth: int = MAX_DEPTH, max_values: int = UNBOUNDED) -> Any:
    """Return what a text of JSON says, as ``json.loads`` reads it.

    ``json.loads`` itself overflows the stack of a thread, or of a program with a small one, if a
    document nests deep: CPython 3.12 and later then end without an exception.

    Raises:
        ValueError: it is not JSON, nests deeper than ``max_depth``, or has more values than
            ``max_values``.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        check_bounds(data, max_depth, max_values)
    except RemoteProtocolError as error:
        what = "is nested too deeply" if error.reason == "too_deep" else "has too many values"
        raise ValueError(f"it {what}") from None
    return json.loads(text)
