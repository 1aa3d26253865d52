"""The features of each revision of the protocol, as data.

A revision is a version of the specification, named by its date. Code reads a feature and never
compares dates: ``revision.polling``, not ``version >= "2025-11-25"``. A version string is known if
it is a key of :data:`REVISIONS`; nothing is inferred from its spelling.

Most differences are features, fields of a Revision. The era says only whether a handshake opens a
session, and what follows from that: without one, each request contains its version and its client,
and ends with its exchange. Each era has its own code for its features. So a new revision can have
any of the features of its era without new code; a feature of the other era needs new code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import cast

import attrs

from .errors import LocalProtocolError
from .types import Era


@attrs.frozen(kw_only=True)
class Revision:
    """One protocol revision and what it changes on the wire."""

    name: str
    """The version string, e.g. ``"2025-11-25"``."""

    era: Era
    """Whether a handshake opens a session (``LEGACY``) or not (``MODERN``)."""

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
    """Events have ids, and a GET with ``Last-Event-ID`` resumes their stream. Source:
    2025-03-26 to 2025-11-25 basic/transports: Resumability and Redelivery.
    """

    polling: bool = False
    """Streams start with an id-only event and may be closed early. Source: SEP-1699, 2025-11-25
    basic/transports.
    """

    multi_turn: bool = False
    """SEP-1858 may be negotiated, an experiment that never became part of a revision."""

    server_requests: bool = False
    """Servers send requests to clients. If False, they put input requests into results. Source:
    2024-11-05 to 2025-11-25 basic: Messages.
    """

    mirrored_headers: bool = False
    """HTTP headers repeat parts of the message. Source: SEP-2243, 2026-07-28 basic/transports:
    Request Headers.
    """

    result_type: bool = False
    """Results contain whether they are complete or input is required. Source: SEP-2322, 2026-07-28
    basic: Responses.
    """

    caching: bool = False
    """Results contain how long they can be cached, and for whom. Source: SEP-2549, 2026-07-28
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
    """Error codes that this revision has removed, each with the code that is sent instead, so that
    handlers written for older revisions can be used. Source: 2026-07-28 basic: Error Codes.
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
                # Resource not found. URL elicitation required: InputRequired does that now.
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
"""The revisions without a handshake, oldest first."""

ASSUMED_VERSION = "2025-03-26"
"""The version of a request that names none and has no session. Source: 2025-06-18
basic/transports.
"""


def checked_versions(versions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the versions as a tuple. Raise LocalProtocolError for none, or an unknown one."""
    known = ", ".join(REVISIONS)
    if isinstance(cast(object, versions), str):
        raise LocalProtocolError(f"versions must be a tuple of str, got the str {versions!r}")
    if not versions:
        raise LocalProtocolError(f"versions must name at least one protocol version of {known}")
    for name in versions:
        if name not in REVISIONS:
            raise LocalProtocolError(f"Unknown protocol version {name!r}; known are {known}")
    return tuple(versions)  # callers may pass a list


@lru_cache
def of_era(versions: tuple[str, ...], era: Era) -> tuple[str, ...]:
    """Return those of the versions that belong to an era, in their order."""
    return tuple(name for name in versions if REVISIONS[name].era is era)
