"""Event ids: positions in the log of one stream.

An SSE event id contains the stream and the position in it: ``<stream token>-<sequence number>``.
The token comes from the server's injected source of randomness, so that ids are unique across all
sessions and cannot be guessed; the number is counted. Clients treat the id as opaque. An id alone
grants no access: the server looks up the stream under the session and the principal of the request
that contains the id.

Source: 2025-11-25 basic/transports: Resumability and Redelivery.
"""

from __future__ import annotations

import re

import attrs

from ..types import redact

_FORM = re.compile(r"([A-Za-z0-9_-]{1,128})-(0|[1-9][0-9]{0,17})", re.ASCII)


@attrs.define
class EventId:
    """A position in a stream: after the entry numbered ``seq``; 0 is the beginning."""

    stream: str = attrs.field(repr=redact)
    seq: int

    def encode(self) -> str:
        """Return the id as it is sent: visible ASCII, never empty."""
        return f"{self.stream}-{self.seq}"

    @classmethod
    def decode(cls, text: str) -> EventId | None:
        """Parse a ``Last-Event-ID``. Return None if :meth:`encode` cannot have returned it."""
        match = _FORM.fullmatch(text)
        return None if match is None else cls(match[1], int(match[2]))
