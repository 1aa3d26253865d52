"""Which transport a server speaks: the decision tables, as data and pure functions.

A client that is given a URL does not know how old the server is. It begins with the newest way, and
what the server answers decides whether to go on to an older one. A refusal that has nothing to do
with the transport (authorization, overload, a failing server) decides nothing: it is reported.

Source: 2025-03-26 basic/transports: Backwards Compatibility; 2025-11-25 likewise (400, 404, 405).
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Any

import attrs

from ..codecs import json
from ..codecs.jsonrpc import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..errors import CallError, LocalProtocolError, NegotiationFailed
from ..messages import ErrorResponse
from ..revisions import of_era
from ..types import HTTP_SSE, STREAMABLE_HTTP, Era

URL_TRANSPORTS = (STREAMABLE_HTTP, HTTP_SSE)
"""How a client can talk to a URL, the newest way first."""


def usable_transports(names: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the transports on which one of the versions exists.

    Raises LocalProtocolError if there is none, or for what is no way to talk to a URL.
    """
    if not names or not set(names) <= set(URL_TRANSPORTS):
        known = ", ".join(URL_TRANSPORTS)
        raise LocalProtocolError(f"Transports are a tuple of some of {known}, and not {names!r}")
    if not of_era(versions, Era.LEGACY):
        names = tuple(name for name in names if name != HTTP_SSE)
    if not names:
        raise LocalProtocolError(f"On {HTTP_SSE} versions without a handshake do not exist")
    return names


class Verdict(enum.Enum):
    """What the answer to an attempt says about the server."""

    NOT_SPOKEN = enum.auto()
    """It does not speak this transport: try another one."""
    NONE = enum.auto()
    """It may or may not: report it, and remember nothing."""


class Probe(enum.Enum):
    """What the answer to ``server/discover`` says about the server."""

    MODERN = enum.auto()
    """It does without a handshake, at a version that we share."""
    RETRY = enum.auto()
    """It does, but asks for another version: ask once more, at that one."""
    HANDSHAKE = enum.auto()
    """It needs a handshake; the version, if there is one, is what to offer."""
    FAIL = enum.auto()
    """It does without, and cannot be talked to."""


@attrs.frozen
class Finding:
    """What an answer has told, and the version to go on with."""

    probe: Probe
    version: str | None = None
    is_disjoint: bool = False
    """None of the versions that it names, if it names any, is ours."""


UNDECIDED = frozenset((401, 403, 407, 408, 413, 425, 429, 431))
"""Refusals that any server could give, whatever it speaks."""

OUT_OF_REACH = frozenset((502, 503, 504))
"""Refusals that say that the server is not there yet, or not there for a moment."""

MODERN_ERRORS = frozenset((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION))
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


def after_discover(answer: Any, ours: tuple[str, ...]) -> Finding:
    """What an answer to ``server/discover`` says: a result, or an ErrorResponse.

    Only the three errors of the era are its errors; anything else comes from servers that do not
    know the method, and these answer as they like.
    """
    if isinstance(answer, ErrorResponse):
        if answer.code not in MODERN_ERRORS:
            return Finding(Probe.HANDSHAKE)
        if answer.code != UNSUPPORTED_VERSION:
            return Finding(Probe.FAIL)
        data = json.as_object(answer.data) or {}
        return _choose(data.get("supported"), ours, Probe.RETRY, otherwise=Probe.FAIL)
    result = json.as_object(answer) or {}
    served = result.get("supportedVersions")
    return _choose(served, ours, Probe.MODERN, otherwise=Probe.HANDSHAKE)


def nothing_in_common(error: ErrorResponse, ours: tuple[str, ...], method: str) -> CallError:
    """The exception for a server that has named its versions, when none of them is ours."""
    theirs = listed((json.as_object(error.data) or {}).get("supported"))
    text = f"The server speaks {theirs or 'other versions'}, and not {', '.join(ours)}"
    if not theirs:
        text += f": {error.message} (code {error.code})"
    return NegotiationFailed(text, method=method)


def listed(versions: Any) -> str:
    """The versions that a server names, for people; empty where it names none."""
    named = versions if json.is_array(versions) else []
    return ", ".join(str(name)[:40] for name in named[:20])


def _choose(served: Any, ours: tuple[str, ...], modern: Probe, *, otherwise: Probe) -> Finding:
    """The newest version that both speak: without a handshake if there is such a one."""
    names = served if json.is_array(served) else []
    for era, probe in ((Era.MODERN, modern), (Era.LEGACY, Probe.HANDSHAKE)):
        mutual = [name for name in of_era(ours, era) if name in names]
        if mutual:
            return Finding(probe, mutual[-1])
    return Finding(otherwise, is_disjoint=True)


@attrs.define(eq=False)
class Verdicts:
    """Remembers what servers have turned out to speak, for as many as ``limit``.

    Share one among the clients of a program: the next client of the same URL asks no detours. What
    is remembered is only where to begin; when that fails, the rest is tried. Threads may share it:
    nothing is looked up twice.
    """

    limit: int = 1000
    _found: OrderedDict[str, tuple[str, Era]] = attrs.field(
        factory=OrderedDict[str, "tuple[str, Era]"], init=False
    )

    def plan(self, target: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
        """In which order to try what is allowed."""
        first, _ = self._found.get(target, (None, None))
        return tuple(sorted(allowed, key=lambda name: name != first))

    def era(self, target: str) -> Era | None:
        """The era of a server; None if it is not known."""
        _, era = self._found.get(target, (None, None))
        return era

    def remember(self, target: str, name: str, era: Era) -> None:
        """It has worked."""
        self._found.pop(target, None)  # so that it comes last
        self._found[target] = name, era
        if len(self._found) > self.limit:
            self._found.popitem(last=False)

    def forget(self, target: str) -> None:
        """It does not work any more."""
        self._found.pop(target, None)
