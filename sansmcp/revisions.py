"""What each revision of the protocol allows, as data.

A revision is a version of the specification, and is named by its date. Code asks the row, never the
date: ``revision.polling``, not ``version >= "2025-11-25"``. A version string is known when it is a
key of :data:`REVISIONS`; nothing is ever inferred from its spelling.

Most of what differs is a feature, a field of the row. The era says only whether a handshake opens
the conversation, and what follows from that: without one, each request names its version and its
client, and ends with its exchange. Each era has code of its own for its features. So a new row may
have any of the features of its era without other code; one of the other era needs code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import attrs

from .errors import LocalProtocolError
from .types import Era


@attrs.frozen(kw_only=True)
class Revision:
    """One protocol revision and what it changes on the wire."""

    name: str
    """The version string, e.g. ``"2025-11-25"``."""

    era: Era
    """Whether a handshake opens the conversation."""

    batching: bool = False
    """JSON arrays of messages are legal. Source: 2025-03-26 basic: Batching; removed by 2025-06-18.
    """

    version_header: bool = False
    """``MCP-Protocol-Version`` is sent after the handshake. Source: 2025-06-18 basic/transports:
    Protocol Version Header.
    """

    sessions: bool = False
    """On HTTP the server may name a session, which DELETE ends. Source: 2025-03-26 to 2025-11-25
    basic/transports: Session Management.
    """

    standalone_stream: bool = False
    """On HTTP a GET opens an event stream for messages that belong to no call. Source: 2025-03-26
    to 2025-11-25 basic/transports: Listening for Messages from the Server.
    """

    resumption: bool = False
    """Events have ids, and a GET with ``Last-Event-ID`` goes on with their stream. Source:
    2025-03-26 to 2025-11-25 basic/transports: Resumability and Redelivery.
    """

    polling: bool = False
    """Streams start with an id-only event and may be closed early. Source: SEP-1699, 2025-11-25
    basic/transports.
    """

    multi_turn: bool = False
    """SEP-1858 may be negotiated, an experiment that never became part of a revision."""

    server_requests: bool = False
    """Servers make requests of their own; without, they ask by results alone. Source: 2024-11-05 to
    2025-11-25 basic: Messages.
    """

    mirrored_headers: bool = False
    """Headers of HTTP repeat parts of the message. Source: SEP-2243, 2026-07-28 basic/transports:
    Request Headers.
    """

    result_type: bool = False
    """Results say whether they are complete or ask for input. Source: SEP-2322, 2026-07-28 basic:
    Responses.
    """

    caching: bool = False
    """Results say how long they hold, and for whom. Source: SEP-2549, 2026-07-28
    server/utilities/caching.
    """

    listen: bool = False
    """Clients subscribe to notifications by ``subscriptions/listen``. Source: SEP-2575, 2026-07-28
    basic/utilities/subscriptions.
    """

    error_without_id: bool = False
    """An error whose request id is unknown leaves ``id`` out; before, ``id`` is null. Source:
    2025-11-25 schema.
    """

    retired_codes: Mapping[int, int] = MappingProxyType({})
    """Error codes that must not be sent any more, and what is sent instead, so that handlers may be
    of any age. Source: 2026-07-28 basic: Error Codes.
    """


REVISIONS = MappingProxyType(
    {
        row.name: row
        for row in (
            Revision(
                name="2024-11-05",
                era=Era.LEGACY,
                sessions=True,
                standalone_stream=True,
                resumption=True,
                server_requests=True,
            ),
            Revision(
                name="2025-03-26",
                era=Era.LEGACY,
                batching=True,
                sessions=True,
                standalone_stream=True,
                resumption=True,
                server_requests=True,
            ),
            Revision(
                name="2025-06-18",
                era=Era.LEGACY,
                version_header=True,
                sessions=True,
                standalone_stream=True,
                resumption=True,
                server_requests=True,
            ),
            Revision(
                name="2025-11-25",
                era=Era.LEGACY,
                version_header=True,
                sessions=True,
                standalone_stream=True,
                resumption=True,
                polling=True,
                multi_turn=True,
                server_requests=True,
                error_without_id=True,
            ),
            Revision(
                name="2026-07-28",
                era=Era.MODERN,
                version_header=True,
                mirrored_headers=True,
                result_type=True,
                caching=True,
                listen=True,
                error_without_id=True,
                # No such resource; a URL has to be visited, which only InputRequired can ask for.
                retired_codes=MappingProxyType({-32002: -32602, -32042: -32603}),
            ),
        )
    }
)
"""Every revision this library speaks, oldest first."""

HANDSHAKE_VERSIONS: tuple[str, ...] = tuple(
    name for name, row in REVISIONS.items() if row.era is Era.LEGACY
)
"""The revisions that open with ``initialize``, oldest first."""

MODERN_VERSIONS: tuple[str, ...] = tuple(
    name for name, row in REVISIONS.items() if row.era is Era.MODERN
)
"""The revisions whose requests stand alone, oldest first."""

ASSUMED_VERSION = "2025-03-26"
"""What a request is taken for that names no version and has no session. Source: 2025-06-18
basic/transports.
"""


def checked_versions(versions: tuple[str, ...]) -> tuple[str, ...]:
    """The same versions. Raises LocalProtocolError unless they can be spoken."""
    if not versions:
        raise LocalProtocolError("Without any protocol version nothing can be said")
    for name in versions:
        if name not in REVISIONS:
            known = ", ".join(REVISIONS)
            raise LocalProtocolError(f"{name!r} is no protocol version this library knows: {known}")
    return tuple(versions)  # which may be a list that was read from somewhere


@lru_cache
def of_era(versions: tuple[str, ...], era: Era) -> tuple[str, ...]:
    """Those of the versions that belong to an era, in their order."""
    return tuple(name for name in versions if REVISIONS[name].era is era)
