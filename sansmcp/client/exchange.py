"""One HTTP exchange of a client: its request, its purpose, and the reader of its response.

The classes are not frozen, because creating a frozen one takes more than twice as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from .http_heads import HttpRequest
from .reader import ResponseReader
from .stream import Stream

if TYPE_CHECKING:  # imported for a client that has the setting authorization
    from ..auth.step_ups import Attempt


@attrs.define(eq=False)
class ForRequest:
    """The exchange carries the request of that number, or resumes its stream."""

    number: int


@attrs.define(eq=False)
class ForPost:
    """The exchange carries the notification or response of that number, or ``tasks/cancel``."""

    number: int
    is_request: bool = False
    """True if a response is expected."""


@attrs.define(eq=False)
class ForStandaloneStream:
    """The exchange is the standalone stream."""


@attrs.define(eq=False)
class ForEventStream:
    """The exchange is the event stream of HTTP+SSE."""


@attrs.define(eq=False)
class ForDelete:
    """The exchange ends the session."""


@attrs.define(eq=False)
class Discarding:
    """The rest of the response is discarded, so that the connection can be reused."""


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
    """The stream of which it carries a part; None if there is none, or no longer."""
    redirects: int
    """The number of redirects that were followed before it."""
    attempt: Attempt | None = None
    """How often its request was sent with a token; None without authorization."""
    is_held: bool = False
    """True while its request waits for authorization, and was not sent."""
