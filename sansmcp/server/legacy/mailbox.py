"""Deliver responses and cancellations to the instance that waits for them.

A handler runs on one instance. The client's response to its server request, or the cancellation of
its call, is a separate POST, which a load balancer may send to any other instance. That instance
appends the message to a mailbox: a log in the store, named after the JSON-RPC id. The instance that
runs the handler reads the mailbox when the store tells of a change, or from time to time.

A message is only left in a mailbox that the waiting instance has opened, by a first entry. The
mailbox of a server request is opened together with the request; that of a call after its first
``store_poll_interval``, since most calls end sooner, or when the call is parked. A cancellation
or a response that finds no mailbox looks for it for some time, because the store may have failed at
that one append, or be slow. So a peer that makes up ids writes nothing to the store.

Clients repeat a POST that failed, so two instances may get the same message. Both append it under
the same sequence number; the second append conflicts and is ignored.

Source: 2025-03-26 to 2025-11-25, basic/transports: Sending Messages to the Server, basic/utilities:
cancellation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ...codecs import json, jsonrpc
from ...messages import ErrorResponse, Notification, RequestId, Response
from ...store import Entry, Page, StreamKey
from .. import refusals
from ..exchange import ServerExchange
from ..procedures import Changed, Interval, StepFailedError, Steps, append, read, run
from .stream_table import StreamTable

_MAX_REASON_CHARS = 1000
"""Characters that are kept of the reason of a cancellation."""

_LOOKS = 5.0
"""Seconds for which a message looks for a mailbox that may be opened late."""


def cancellation_mailbox(id: RequestId) -> str:
    """Return the name of the log for the cancellation of a request.

    No stream has such a name, because tokens contain no point.
    """
    return f".cancelled.{hashlib.sha256(json.encode(id)).hexdigest()}"


def response_mailbox(id: int) -> str:
    """Return the name of the log for the response to a server request."""
    return f".answer.{id}"


def reason_of(cancellation: Notification) -> str:
    """Return the reason of a cancellation, cut to a fixed length."""
    reason = (cancellation.params or {}).get("reason")
    return reason[:_MAX_REASON_CHARS] if isinstance(reason, str) else "cancelled by the client"


def open_mailbox(table: StreamTable, key: StreamKey) -> None:
    """Append the first entry, without which no message is left in a mailbox."""
    run(table.logs, _append(key, 1, b""))


def post_message(
    table: StreamTable,
    key: StreamKey,
    data: bytes,
    exchange: ServerExchange | None = None,
    *,
    looks_again: bool = False,
    holds_exchange: bool = False,
) -> None:
    """Append a message to a mailbox, if that is open and has none yet.

    Args:
        table: the streams of this instance.
        key: the log that is the mailbox.
        data: the message.
        exchange: the exchange of the POST that brought it; it is responded to at the end.
        looks_again: True to look for some time for a mailbox that may be opened late.
        holds_exchange: True to respond to the POST after that time, not before: the client sends
            the message again if this instance dies meanwhile.
    """
    patience = _LOOKS if looks_again else 0.0
    early = None if holds_exchange else exchange
    run(table.logs, _post(table, key, data, exchange, patience, early), lambda: True)


def _append(key: StreamKey, seq: int, data: bytes) -> Steps[bool]:
    """Append an entry. Returns False if the store has failed.

    It counts as appended, too, if another instance has appended it, and if the store has lost the
    mailbox: the call that has opened it cannot be reached.
    """
    try:
        yield from append(key, (Entry(seq, data),))
    except StepFailedError:
        return False
    return True


def _post(
    table: StreamTable,
    key: StreamKey,
    data: bytes,
    exchange: ServerExchange | None,
    patience: float,
    early: ServerExchange | None,
) -> Steps[None]:
    """Look for the mailbox for some seconds, and append the message.

    ``early``: the exchange that is responded to before it is looked for again.
    """
    is_stored = True
    try:
        page = yield from read(key)
        if page is None and patience:
            page = yield from _look_again(table, key, exchange, patience, early)
    except StepFailedError:
        is_stored = False
    else:
        if page is not None and page.last.seq == 1:
            is_stored = yield from _append(key, 2, data)
    if is_stored:
        _accept(exchange)
    elif exchange is not None and not exchange.is_done:
        exchange.refuse(refusals.store_failed())  # the client may send the message again


def _look_again(
    table: StreamTable,
    key: StreamKey,
    exchange: ServerExchange | None,
    patience: float,
    early: ServerExchange | None,
) -> Steps[Page | None]:
    """Look again, unless as many messages of the session wait as it may have calls."""
    core, late, session = table.core, table.late, (key.principal, key.session)
    if late.of(session) >= core.limits.max_calls_per_session:
        return None
    _accept(early)
    late.change(session, 1)
    until, page = core.now + patience, None
    try:
        while page is None and core.now < until:
            yield Changed(key)
            page = yield from read(key)
    finally:
        late.change(session, -1)
    return page


def _accept(exchange: ServerExchange | None) -> None:
    """Respond to the POST of a message that is stored, or for which nothing waits."""
    if exchange is not None and not exchange.is_done:
        exchange.send_response(202)


def await_message(
    table: StreamTable,
    key: StreamKey,
    *,
    is_open: bool,
    is_active: Callable[[], bool],
    on_message: Callable[[bytes], None],
    on_gone: Callable[[], None],
) -> None:
    """Poll a mailbox for a message.

    Args:
        table: the streams of this instance.
        key: the log that is the mailbox.
        is_open: False to open the mailbox at the first poll.
        is_active: returns True as long as the message is needed.
        on_message: called with the data of the message.
        on_gone: called if the mailbox is no longer in the store: it was evicted, or the session has
            ended at another instance. The mailbox is opened again.
    """
    run(table.logs, _poll(table, key, is_open, is_active, on_message, on_gone))


def _poll(
    table: StreamTable,
    key: StreamKey,
    is_open: bool,
    is_active: Callable[[], bool],
    on_message: Callable[[bytes], None],
    on_gone: Callable[[], None],
) -> Steps[None]:
    yield Changed(key) if is_open else Interval(key)
    while is_active():
        if not is_open:
            open_mailbox(table, key)
            is_open = True
        try:
            page = yield from read(key, 1)
        except StepFailedError:
            pass  # poll again later
        else:
            if page is None:
                is_open = False
                on_gone()
            elif page.entries:
                if is_active():
                    on_message(page.entries[0].data)
                return
        if is_active():
            yield Changed(key)


def decode_response(table: StreamTable, data: bytes) -> Response | ErrorResponse:
    """Return the response in an entry of a mailbox."""
    response = jsonrpc.decode(data, table.limits)
    assert isinstance(response, Response | ErrorResponse)
    return response
