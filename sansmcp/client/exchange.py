"""One HTTP exchange of a client: what was asked, what it is for, and what reads the response.

The classes are not frozen, since that more than doubles what it costs to make one.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from .http_heads import HttpRequest
from .reader import ResponseReader
from .stream import Stream


@attrs.define(eq=False)
class ForRequest:
    """It carries the request of that number, or resumes its stream."""

    number: int


@attrs.define(eq=False)
class ForPost:
    """It carries the notification or response of that number."""

    number: int


@attrs.define(eq=False)
class ForStandaloneStream:
    """It is the stream of what the server says about no request."""


@attrs.define(eq=False)
class ForEventStream:
    """It is the one stream of HTTP+SSE."""


@attrs.define(eq=False)
class ForDelete:
    """It ends the session."""


@attrs.define(eq=False)
class Discarding:
    """Nothing more is wanted of it, but its connection may be of use again."""


Purpose: TypeAlias = (
    ForRequest | ForPost | ForStandaloneStream | ForEventStream | ForDelete | Discarding
)


@attrs.define(eq=False, repr=False)
class Exchange:
    """An exchange that has not ended."""

    purpose: Purpose
    request: HttpRequest
    reader: ResponseReader
    stream: Stream | None
    """The stream that it carries a part of; None if there is none, or if it was left."""
    redirects: int
    """How many redirects were followed before it."""
