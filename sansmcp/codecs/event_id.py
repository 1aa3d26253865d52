"""Event ids: cursors into the log of one stream.

An SSE event id names the stream and the place in it: ``<stream token>-<sequence number>``. The
token is minted from the server's injected source of randomness, so that ids are unique over all
sessions and cannot be guessed; the number is counted. To a client all of it is opaque. Having an id
entitles to nothing: a server looks the stream up under the session and the principal of the request
that brought it.

Source: 2025-11-25 basic/transports: Resumability and Redelivery.
"""

from __future__ import annotations

import re

import attrs

from ..types import redact

_FORM = re.compile(r"([A-Za-z0-9_-]{1,128})-(0|[1-9][0-9]{0,17})", re.ASCII)


@attrs.define
class EventId:
    """A place in a stream: right after message ``seq``; 0 is the very beginning."""

    stream: str = attrs.field(repr=redact)
    seq: int

    def encode(self) -> str:
        """The id as it goes over the wire: visible ASCII, never empty."""
        return f"{self.stream}-{self.seq}"

    @classmethod
    def decode(cls, text: str) -> EventId | None:
        """The cursor of a ``Last-Event-ID``, or None if :meth:`encode` never made that."""
        match = _FORM.fullmatch(text)
        return None if match is None else cls(match[1], int(match[2]))
