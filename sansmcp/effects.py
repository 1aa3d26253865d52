"""What a machine wants done.

An adapter performs effects in the order in which it pulls them, and decides nothing. Names are
imperatives. The effects of one exchange are pulled by whoever drives that exchange, so that a slow
peer holds up nobody else; the others are pulled from the machine itself.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from .http import RequestHead, ResponseHead
from .store import Entry, StreamKey
from .types import Drivable, elide, hide_secrets, redact

# Of one server exchange: what to send.


@attrs.frozen
class SendHead:
    """Begin the response."""

    head: ResponseHead


@attrs.frozen
class SendBody:
    """Send a piece of the response body."""

    data: bytes = attrs.field(repr=elide)


@attrs.frozen
class SendEnd:
    """End the response properly: a final chunk, not a broken connection."""


@attrs.frozen
class Abort:
    """Break the connection off: the response cannot be completed."""


ExchangeEffect: TypeAlias = SendHead | SendBody | SendEnd | Abort


# Of the server as a whole.


@attrs.frozen
class Wake:
    """An exchange (or the pipe of stdio) has something to send: let its driver pull."""

    exchange: Drivable


@attrs.frozen(eq=False)
class Authenticate:
    """Find out who makes a request, then tell ``server.authenticated(effect, outcome, now=...)``.

    If that cannot be found out, tell ``server.authentication_failed(effect, now=...)``. There is
    no such effect unless the server was made with ``authentication=True``.
    """

    exchange: Drivable
    head: RequestHead


@attrs.frozen(kw_only=True, eq=False)
class StoreAppend:
    """Append to a log, creating it if need be, then tell ``server.stored(effect, now=...)``.

    Stored means: a reader that comes later, from another process after a crash if the store
    promises that much, finds the entries. Where the first of them is not the next of a log that
    there is, nothing is to be appended: tell ``server.overtaken(effect, now=...)``. On failure tell
    ``server.store_failed(effect, why, now=...)``, also where it is not known whether the append was
    done. Do not repeat it then: the second attempt could be overtaken by the first.
    """

    stream: StreamKey
    entries: tuple[Entry, ...]


@attrs.frozen(kw_only=True, eq=False)
class StoreRead:
    """Read what follows ``after``, then tell ``server.replayed(effect, page, now=...)``.

    At most ``limit`` entries, and no more than ``max_bytes`` of data unless the first entry alone
    has more. The page is None where the store knows no such log. On failure tell
    ``server.store_failed(effect, why, now=...)``.
    """

    stream: StreamKey
    after: int
    limit: int
    max_bytes: int


@attrs.frozen(kw_only=True)
class StoreDrop:
    """Forget all logs of a session. Nothing is to be reported."""

    principal: str
    session: str = attrs.field(repr=redact)


StoreEffect: TypeAlias = StoreAppend | StoreRead | StoreDrop
ServerEffect: TypeAlias = Wake | Authenticate | StoreEffect


# Of a connection: bytes instead of message parts.


@attrs.frozen
class SendBytes:
    """Send these bytes.

    If that fails, or the peer takes nothing for ``limits.send_timeout`` seconds, tell
    ``connection_lost``. A peer that takes a little at a time is not too slow.
    """

    data: bytes = attrs.field(repr=elide)


@attrs.frozen
class CloseConnection:
    """Close the connection; there is nothing more to do with it."""


ConnectionEffect: TypeAlias = SendBytes | CloseConnection


# Of a client.


@attrs.frozen(kw_only=True)
class OpenExchange:
    """Make an HTTP request.

    Feed the parts of its response to ``client.receive(exchange, part, now=...)``. A request that
    cannot be made, for whatever reason, is answered by ``ConnectionLost(reason)``. The body is
    complete in ``body``. ``url`` tells where to connect to; ``head.target`` is its path and query.
    """

    exchange: int
    url: str = attrs.field(repr=lambda url: repr(hide_secrets(url)))
    head: RequestHead
    body: bytes = attrs.field(repr=elide)


@attrs.frozen(kw_only=True)
class AbortExchange:
    """Break an exchange off: nobody waits for it.

    Nothing is to be reported, and what still arrives may be fed or not.
    """

    exchange: int


# Of a client whose server is a process.


@attrs.frozen
class StartProcess:
    """Start the server, at the head of a process group of its own.

    Feed what it says to ``client.receive_process_part(part, now=...)``: its output and standard
    error as they come, the end of each, and its exit; or that it could not be started.
    """

    command: tuple[str, ...]


@attrs.frozen
class WriteStdin:
    """Write to the standard input of the process. A failure needs no report: its exit does."""

    data: bytes = attrs.field(repr=elide)


@attrs.frozen
class CloseStdin:
    """Close the standard input of the process, after all that was to be written."""


@attrs.frozen
class TerminateProcess:
    """Ask the process group to end: SIGTERM."""


@attrs.frozen
class KillProcess:
    """Make the process group end: SIGKILL, also when the process itself has ended already."""


ProcessEffect: TypeAlias = StartProcess | WriteStdin | CloseStdin | TerminateProcess | KillProcess
ClientEffect: TypeAlias = OpenExchange | AbortExchange | ProcessEffect
