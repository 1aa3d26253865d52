"""The effects of the machines: what a driver must do.

A driver performs effects in the order in which it pulls them, and decides nothing. Names are
imperatives. The effects of one exchange are pulled from that exchange, so that a slow peer delays
only itself; all others are pulled from the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from .addresses import AddressPolicy
from .credentials import CredentialsKey
from .http import RequestHead, ResponseHead
from .rates import RateLimit
from .store import Entry, StreamKey
from .types import Drivable, Shown, Value, elide, hide_arguments, hide_secrets, redact

# Of one server exchange: parts of its HTTP response.


@attrs.frozen(eq=False, repr=False)
class SendHead(Value):
    """Begin the response."""

    head: ResponseHead


@attrs.frozen(eq=False, repr=False)
class SendBody(Value):
    """Send a piece of the response body."""

    data: bytes = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class SendEnd(Value):
    """End the response as complete. With chunked coding this sends the last chunk."""


@attrs.frozen(eq=False, repr=False)
class Abort(Value):
    """Close the connection at once: the response cannot be completed."""


ExchangeEffect: TypeAlias = SendHead | SendBody | SendEnd | Abort


# Of the server as a whole.


@attrs.frozen(eq=False, repr=False)
class Wake(Value):
    """Call ``exchange.driver.wake()``: the exchange, or the pipe of stdio, has effects to pull."""

    exchange: Drivable


@attrs.frozen(eq=False, repr=False)
class Authenticate(Shown):
    """Authenticate the HTTP request ``head``, then report the outcome once.

    * ``server.authenticated(effect, outcome, now=...)``: an :class:`~sansmcp.Access`, or the
      principal alone, a non-empty string; or a :class:`~sansmcp.Refusal`.
    * ``server.authentication_failed(effect, now=...)``: the check itself failed. The client gets
      status 500.

    Only a server made with ``authentication=True`` has this effect.
    """

    exchange: Drivable
    head: RequestHead


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StoreAppend(Shown):
    """Append ``entries`` to the log ``stream``: all of them, or none.

    Create the log if it does not exist. If it exists and ``entries[0].seq`` is not its next number,
    append nothing. Then report one of these, once:

    * ``server.append_completed(effect, result, now=...)`` with an :class:`~sansmcp.AppendResult`.
      ``STORED`` means that every later reader finds the entries, also in another process after a
      crash if the store is durable. Reporting this early loses messages.
    * ``server.store_failed(effect, reason, now=...)``: anything else, also an unknown outcome. The
      server repeats the effect later, with the same token, if it is worth it.

    Attributes:
        stream: the log.
        entries: the entries.
        token: the name of this append, by which a store recognises that it is repeated.
    """

    stream: StreamKey
    entries: tuple[Entry, ...]
    token: str


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StoreRead(Shown):
    """Read the entries of the log ``stream`` that follow number ``after``.

    Read at most ``limit`` entries and ``max_bytes`` bytes of data; the first entry may be larger.
    Then report one of these, once:

    * ``server.read_completed(effect, page, now=...)``: a :class:`~sansmcp.Page`, or None if the
      log does not exist.
    * ``server.store_failed(effect, reason, now=...)``: the read failed.
    """

    stream: StreamKey
    after: int
    limit: int
    max_bytes: int


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StoreDrop(Value):
    """Delete all logs of a session.

    Then report ``server.drop_completed(effect, now=...)``, or ``server.store_failed()``.
    """

    principal: str
    session: str = attrs.field(repr=redact)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StoreTake(Shown):
    """Take tokens from a bucket that all instances share, for requests that wait for the answer.

    Perform this with ``take()`` of a :class:`~sansmcp.RateStore`, and report
    ``server.take_completed(effect, wait, now=...)`` with what it returned, or
    ``server.store_failed()``. If the store has no such method, report 0.0. The bucket of this
    instance has let the requests pass already.

    Attributes:
        bucket: the name of the bucket.
        count: how many tokens.
        limit: the rate and the size of the bucket.
    """

    bucket: str
    count: int
    limit: RateLimit


StoreEffect: TypeAlias = StoreAppend | StoreRead | StoreDrop | StoreTake


@attrs.frozen(eq=False, repr=False)
class StoreWatch(Value):
    """Call ``server.store_changed(stream, now=...)`` when the log ``stream`` may have changed.

    A log changes by an append and by a drop of its session.

    Do so until :class:`StoreUnwatch`. If the store can tell of changes, report
    ``server.store_watched(effect, now=...)`` once; otherwise ignore the effect, and the server
    reads the log from time to time.
    """

    stream: StreamKey


@attrs.frozen(eq=False, repr=False)
class StoreUnwatch(Value):
    """End the watch of a log."""

    stream: StreamKey


ServerEffect: TypeAlias = Wake | Authenticate | StoreEffect | StoreWatch | StoreUnwatch


# Of a connection: bytes instead of message parts.


@attrs.frozen(eq=False, repr=False)
class SendBytes(Value):
    """Send these bytes.

    If that fails, or the peer accepts no byte for ``limits.send_timeout`` seconds, call
    ``connection_lost()``. Every accepted byte starts that time again.
    """

    data: bytes = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class CloseConnection(Value):
    """Close the connection. No effect follows."""


ConnectionEffect: TypeAlias = SendBytes | CloseConnection


# Of a client.


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OpenExchange(Value):
    """Make an HTTP request.

    Feed the parts of its response to ``client.receive_part(exchange, part, now=...)``. If the
    request cannot be made, feed ``ConnectionLost(reason)``.

    Attributes:
        exchange: the number of the exchange.
        url: where to connect to.
        head: the request line and headers; ``head.target`` is the path and query of ``url``.
        body: the complete body; empty if there is none.
        address_policy: the addresses to which the driver may connect, if the request is one of
            authorization; None if it is for the MCP server. Such a request must not be redirected,
            nor carry cookies or headers of others, nor use a connection to the MCP server.
    """

    exchange: int
    url: str = attrs.field(repr=lambda url: repr(hide_secrets(url)))
    head: RequestHead
    body: bytes = attrs.field(repr=elide)
    address_policy: AddressPolicy | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AbortExchange(Value):
    """Abort an exchange: the client needs no more of its response.

    Report nothing. Parts that still arrive may be fed or discarded.
    """

    exchange: int


# Of a client whose server is a process.


@attrs.frozen(eq=False, repr=False)
class StartProcess(Value):
    """Start the server process as the leader of a new process group.

    Feed these to ``client.receive_process_part(part, now=...)``: bytes of its standard output and
    standard error, the end of each, and its exit; or ProcessStartFailed if it does not start.
    """

    command: tuple[str, ...] = attrs.field(repr=lambda command: repr(hide_arguments(command)))


@attrs.frozen(eq=False, repr=False)
class WriteStdin(Value):
    """Write to the standard input of the process. Report its exit, and no failure to write.

    The data may have several messages.
    """

    data: bytes = attrs.field(repr=elide)


@attrs.frozen(eq=False, repr=False)
class CloseStdin(Value):
    """Close the standard input of the process, after everything queued has been written."""


@attrs.frozen(eq=False, repr=False)
class TerminateProcess(Value):
    """Send SIGTERM to the process group."""


@attrs.frozen(eq=False, repr=False)
class KillProcess(Value):
    """Send SIGKILL to the process group, also if its leader has exited already."""


ProcessEffect: TypeAlias = StartProcess | WriteStdin | CloseStdin | TerminateProcess | KillProcess


# Of a client that obtains authorization. Each but UnlockCredentials has one completion:
# ``client.auth_completed(effect, result, now=...)``, or ``client.auth_failed(effect, reason,
# now=...)`` if the driver cannot do it.


@attrs.frozen(eq=False, repr=False)
class LoadCredentials(Shown):
    """Read a document of the storage. The result is the document, or None if there is none."""

    key: CredentialsKey


@attrs.frozen(eq=False, repr=False)
class SaveCredentials(Shown):
    """Replace a document of the storage, as a whole. The result is None.

    The document has secrets; nobody but the user may be able to read it.
    """

    key: CredentialsKey
    document: str = attrs.field(repr=redact)


@attrs.frozen(eq=False, repr=False)
class LockCredentials(Shown):
    """Lock a document against other clients and processes, without waiting.

    The result is True, or False if another one has the lock. If this process ends, that must end
    the lock.
    """

    key: CredentialsKey


@attrs.frozen(eq=False, repr=False)
class UnlockCredentials(Shown):
    """Release the lock of a document. There is no completion."""

    key: CredentialsKey


@attrs.frozen(eq=False, repr=False)
class MakeKey(Shown):
    """Make a private key for ``algorithm``. The result is its JWK, a dict."""

    algorithm: str


@attrs.frozen(eq=False, repr=False)
class SignJwt(Shown):
    """Sign a JWT. The result is the JWT in its compact form.

    Attributes:
        header, claims: JSON objects. ``header["alg"]`` is the algorithm.
        key: the private key: a JWK (a dict), or PEM (a str).
    """

    header: Mapping[str, Any]
    claims: Mapping[str, Any] = attrs.field(repr=elide)
    key: Mapping[str, Any] | str = attrs.field(repr=lambda key: "<secret key>")


AuthEffect: TypeAlias = (
    LoadCredentials | SaveCredentials | LockCredentials | UnlockCredentials | MakeKey | SignJwt
)
TransportEffect: TypeAlias = OpenExchange | AbortExchange | ProcessEffect
"""The effects that each driver performs in its own way; those of authorization are alike in all.

Every driver matches on all of them. Effects that only some drivers can perform need a union of
their own, and a method of ``ClientDriver`` that refuses them by default.
"""

ClientEffect: TypeAlias = TransportEffect | AuthEffect
