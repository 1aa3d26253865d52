"""Which transport a server speaks: the decision tables, as data and pure functions.

A client that is given a URL does not know how old the server is. It begins with the newest way, and
what the server answers decides whether to go on to an older one. A refusal that has nothing to do
with the transport (authorization, overload, a failing server) decides nothing: it is reported.

Source: 2025-03-26 basic/transports: Backwards Compatibility; 2025-11-25 likewise (400, 404, 405).
"""

from __future__ import annotations

import enum
from collections import OrderedDict

import attrs

from ..errors import LocalProtocolError
from ..types import HTTP_SSE, STREAMABLE_HTTP

URL_TRANSPORTS = (STREAMABLE_HTTP, HTTP_SSE)
"""How a client can talk to a URL, the newest way first."""


def check_transports(names: tuple[str, ...]) -> None:
    """Raises LocalProtocolError unless these are ways to talk to a URL."""
    if not names or not set(names) <= set(URL_TRANSPORTS):
        raise LocalProtocolError(f"Transports are some of {', '.join(URL_TRANSPORTS)}")


class Verdict(enum.Enum):
    """What the answer to an attempt says about the server."""

    NOT_SPOKEN = enum.auto()
    """It does not speak this transport: try another one."""
    NONE = enum.auto()
    """It may or may not: report it, and remember nothing."""


UNDECIDED = frozenset((401, 403, 407, 408, 413, 425, 429, 431))
"""Refusals that any server could give, whatever it speaks."""

MODERN_ERRORS = frozenset((-32020, -32021, -32022))
"""JSON-RPC errors that only servers of revisions without a handshake give."""


def after_initialize(status: int) -> Verdict:
    """What a refusal of ``POST initialize`` says about Streamable HTTP."""
    if status in UNDECIDED or not 400 <= status < 500:
        return Verdict.NONE
    return Verdict.NOT_SPOKEN


def after_get(status: int) -> Verdict:
    """What a refusal of ``GET`` says about HTTP+SSE."""
    return Verdict.NONE if status in UNDECIDED or status >= 500 else Verdict.NOT_SPOKEN


def is_temporary(status: int) -> bool:
    """Whether a refusal is of the kind that goes away: the server is busy or out of reach."""
    return status in (408, 425, 429) or status >= 500


@attrs.define(eq=False)
class Verdicts:
    """Remembers what servers have turned out to speak, for as many as ``limit``.

    Share one among the clients of a program: the next client of the same URL asks no detours. What
    is remembered is only where to begin; when that fails, the rest is tried.
    """

    limit: int = 1000
    _found: OrderedDict[str, str] = attrs.field(factory=OrderedDict[str, str], init=False)

    def plan(self, url: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """In which order to try what is allowed."""
        first = self._found.get(url)
        return tuple(sorted(allowed, key=lambda name: name != first))

    def remember(self, url: str, name: str) -> None:
        """It has worked."""
        self._found[url] = name
        self._found.move_to_end(url)
        if len(self._found) > self.limit:
            self._found.popitem(last=False)
