"""Every state machine of the library, as tables: state, then event, then next state.

The tables know neither roles nor bytes. A pair that is not in a table cannot happen:
:func:`advance` refuses it as misuse by our own side. Whatever a *peer* can cause is in the tables,
in every state in which it can come. An empty row is an end. Tests walk through all pairs and print
the tables, so that a change here is seen in review.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from .errors import LocalProtocolError
from .types import FastEnum

_S = TypeVar("_S", bound=enum.Enum)
_E = TypeVar("_E", bound=enum.Enum)


def advance(table: Mapping[_S, Mapping[_E, _S]], state: _S, event: _E) -> _S:
    """The state after an event. Raises LocalProtocolError where the table has no such pair."""
    try:
        return table[state][event]
    except KeyError:
        raise LocalProtocolError(
            f"{type(state).__name__} {state.name.lower()} does not allow {event.name.lower()}"
        ) from None


def _table(rows: dict[_S, dict[_E, _S]]) -> Mapping[_S, Mapping[_E, _S]]:
    return MappingProxyType({state: MappingProxyType(row) for state, row in rows.items()})


class ClientState(FastEnum):
    """A client's conversation with one server."""

    NEW = enum.auto()
    CONNECTING = enum.auto()
    """The server is being reached, or ``initialize`` is under way."""
    CONFIRMING = enum.auto()
    """``notifications/initialized`` is under way."""
    READY = enum.auto()
    CLOSING = enum.auto()
    """The session is being ended, or the server process."""
    CLOSED = enum.auto()


class OpeningState(FastEnum):
    """How far a client is in opening a conversation, and in ending it."""

    NEW = enum.auto()
    AWAITING_ENDPOINT = enum.auto()
    """The event stream of HTTP+SSE was asked for; its first event names where messages go."""
    PROBING = enum.auto()
    """``server/discover`` is under way."""
    PROBING_AGAIN = enum.auto()
    """The same, at a version that the server has named: there is no third time."""
    INITIALIZING = enum.auto()
    """``initialize`` is under way."""
    CONFIRMING = enum.auto()
    """``notifications/initialized`` is under way."""
    BACKING_OFF = enum.auto()
    """The next attempt comes after a delay."""
    READY = enum.auto()
    CLOSING = enum.auto()
    """The session is being ended, or the server process."""
    CLOSED = enum.auto()


class OpeningEvent(FastEnum):
    """What the opening does next."""

    LOCATE = enum.auto()
    """Ask for the event stream of HTTP+SSE."""
    PROBE = enum.auto()
    PROBE_AGAIN = enum.auto()
    INITIALIZE = enum.auto()
    CONFIRM = enum.auto()
    BACK_OFF = enum.auto()
    OPEN = enum.auto()
    """Both sides have agreed."""
    CLOSE = enum.auto()
    DONE = enum.auto()


_BEGIN = {
    # What may follow when a session is lost, the transport is changed, or a delay is over.
    OpeningEvent.LOCATE: OpeningState.AWAITING_ENDPOINT,
    OpeningEvent.PROBE: OpeningState.PROBING,
    OpeningEvent.INITIALIZE: OpeningState.INITIALIZING,
    OpeningEvent.CLOSE: OpeningState.CLOSING,
}
_BEGIN_AGAIN = {**_BEGIN, OpeningEvent.BACK_OFF: OpeningState.BACKING_OFF}
_PROBE_AGAIN = {OpeningEvent.PROBE_AGAIN: OpeningState.PROBING_AGAIN}

OPENING = _table(
    {
        OpeningState.NEW: {**_BEGIN, OpeningEvent.CLOSE: OpeningState.CLOSED},
        OpeningState.AWAITING_ENDPOINT: _BEGIN_AGAIN,
        OpeningState.PROBING: {
            **_BEGIN_AGAIN,
            **_PROBE_AGAIN,
            OpeningEvent.OPEN: OpeningState.READY,
        },
        OpeningState.PROBING_AGAIN: {**_BEGIN_AGAIN, OpeningEvent.OPEN: OpeningState.READY},
        OpeningState.INITIALIZING: {
            **_BEGIN_AGAIN,
            **_PROBE_AGAIN,
            OpeningEvent.CONFIRM: OpeningState.CONFIRMING,
        },
        OpeningState.CONFIRMING: {**_BEGIN_AGAIN, OpeningEvent.OPEN: OpeningState.READY},
        OpeningState.BACKING_OFF: _BEGIN,
        OpeningState.READY: _BEGIN_AGAIN,
        OpeningState.CLOSING: {OpeningEvent.DONE: OpeningState.CLOSED},
        OpeningState.CLOSED: {},
    }
)


class ProcessState(FastEnum):
    """A server process of a client."""

    NEW = enum.auto()
    RUNNING = enum.auto()
    CLOSING = enum.auto()
    """Its input is closed: it should end."""
    TERMINATING = enum.auto()
    """It was asked to end."""
    KILLING = enum.auto()
    """It was made to end."""
    EXITED = enum.auto()
    """It has ended; what it wrote may still come."""
    ENDED = enum.auto()


class ProcessEvent(FastEnum):
    """What can happen to a server process."""

    START = enum.auto()
    CLOSE = enum.auto()
    TIMEOUT = enum.auto()
    EXITED = enum.auto()
    OUTPUT_READ = enum.auto()
    """All it wrote was read, or took too long to come."""


PROCESS = _table(
    {
        ProcessState.NEW: {ProcessEvent.START: ProcessState.RUNNING},
        ProcessState.RUNNING: {
            ProcessEvent.CLOSE: ProcessState.CLOSING,
            ProcessEvent.EXITED: ProcessState.EXITED,
        },
        ProcessState.CLOSING: {
            ProcessEvent.TIMEOUT: ProcessState.TERMINATING,
            ProcessEvent.EXITED: ProcessState.EXITED,
        },
        ProcessState.TERMINATING: {
            ProcessEvent.TIMEOUT: ProcessState.KILLING,
            ProcessEvent.EXITED: ProcessState.EXITED,
        },
        ProcessState.KILLING: {
            ProcessEvent.TIMEOUT: ProcessState.ENDED,
            ProcessEvent.EXITED: ProcessState.EXITED,
        },
        ProcessState.EXITED: {
            ProcessEvent.OUTPUT_READ: ProcessState.ENDED,
            # It could not bear to be asked for its version, and is not asked again.
            ProcessEvent.START: ProcessState.RUNNING,
        },
        ProcessState.ENDED: {},
    }
)


class StreamState(FastEnum):
    """A client's end of one stream, over any number of connections."""

    OPENING = enum.auto()
    """A request is under way whose answer may be the stream."""
    READING = enum.auto()
    DELAYED = enum.auto()
    """The connection is gone; the next one is tried when the delay is over."""
    PARKED = enum.auto()
    """The server has ended the connection, and waits for the answers of a turn (SEP-1858)."""
    CLOSED = enum.auto()


class StreamEvent(FastEnum):
    """What can happen to a client's end of a stream."""

    OPENED = enum.auto()
    BROKEN = enum.auto()
    """The connection ended, cleanly or not, and the stream did not."""
    PARKED = enum.auto()
    RETRY = enum.auto()
    """The delay is over, or the answers are there."""
    CLOSE = enum.auto()


STREAM = _table(
    {
        StreamState.OPENING: {
            StreamEvent.OPENED: StreamState.READING,
            StreamEvent.BROKEN: StreamState.DELAYED,
            StreamEvent.CLOSE: StreamState.CLOSED,
        },
        StreamState.READING: {
            StreamEvent.BROKEN: StreamState.DELAYED,
            StreamEvent.PARKED: StreamState.PARKED,
            StreamEvent.CLOSE: StreamState.CLOSED,
        },
        StreamState.DELAYED: {
            StreamEvent.RETRY: StreamState.OPENING,
            StreamEvent.CLOSE: StreamState.CLOSED,
        },
        StreamState.PARKED: {
            StreamEvent.RETRY: StreamState.OPENING,
            StreamEvent.CLOSE: StreamState.CLOSED,
        },
        StreamState.CLOSED: {},
    }
)


class SessionState(FastEnum):
    """A session as the server sees it."""

    OPENING = enum.auto()
    """``initialize`` was answered, ``notifications/initialized`` has not come."""
    READY = enum.auto()
    ENDED = enum.auto()


class SessionEvent(FastEnum):
    """What can happen to a session."""

    INITIALIZED = enum.auto()
    END = enum.auto()


SESSION = _table(
    {
        SessionState.OPENING: {
            SessionEvent.INITIALIZED: SessionState.READY,
            SessionEvent.END: SessionState.ENDED,
        },
        SessionState.READY: {
            # Some clients repeat the notification after a reconnect; it changes nothing.
            SessionEvent.INITIALIZED: SessionState.READY,
            SessionEvent.END: SessionState.ENDED,
        },
        SessionState.ENDED: {},
    }
)


class LogState(FastEnum):
    """The log of a stream, at an instance of a server that writes or reads it."""

    WRITING = enum.auto()
    """Messages are stored here, one append at a time."""
    FINISHED = enum.auto()
    """The last message was written here. The store may still have to get it."""
    REMOTE = enum.auto()
    """Only the store knows what follows: another instance writes the log, or has finished it."""
    UNSTORED = enum.auto()
    """There is no store, or it has failed: messages go to the reader, and have no ids."""
    CLOSED = enum.auto()
    """Nothing follows, and what was there is not stored."""


class LogEvent(FastEnum):
    """What can happen to the log of a stream."""

    END = enum.auto()
    """The last message is written, or the session has ended."""
    HAND_OVER = enum.auto()
    """Another instance goes on: the call was parked, or an append came too late."""
    TAKE_OVER = enum.auto()
    """This instance has stored the last answer that a parked call needed."""
    FAIL = enum.auto()
    """An append was not done, or is not to be done: the store forgets the session."""


LOG = _table(
    {
        LogState.WRITING: {
            LogEvent.END: LogState.FINISHED,
            LogEvent.HAND_OVER: LogState.REMOTE,
            LogEvent.TAKE_OVER: LogState.WRITING,
            LogEvent.FAIL: LogState.UNSTORED,
        },
        LogState.FINISHED: {
            LogEvent.END: LogState.FINISHED,
            LogEvent.HAND_OVER: LogState.REMOTE,
            LogEvent.TAKE_OVER: LogState.WRITING,
            LogEvent.FAIL: LogState.CLOSED,
        },
        LogState.REMOTE: {
            LogEvent.END: LogState.REMOTE,
            LogEvent.HAND_OVER: LogState.REMOTE,
            LogEvent.TAKE_OVER: LogState.WRITING,
            # The append that should have parked a call.
            LogEvent.FAIL: LogState.CLOSED,
        },
        LogState.UNSTORED: {
            LogEvent.END: LogState.CLOSED,
            LogEvent.TAKE_OVER: LogState.UNSTORED,
        },
        LogState.CLOSED: {LogEvent.END: LogState.CLOSED},
    }
)


class CallState(FastEnum):
    """A request that a server works on."""

    RUNNING = enum.auto()
    ANSWERED = enum.auto()
    CANCELLED = enum.auto()


class CallEvent(FastEnum):
    """What can happen to a call."""

    ANSWER = enum.auto()
    CANCEL = enum.auto()


CALL = _table(
    {
        CallState.RUNNING: {
            CallEvent.ANSWER: CallState.ANSWERED,
            CallEvent.CANCEL: CallState.CANCELLED,
        },
        # An application may answer twice, or after a cancellation that crossed: nothing changes.
        CallState.ANSWERED: {CallEvent.ANSWER: CallState.ANSWERED},
        CallState.CANCELLED: {CallEvent.ANSWER: CallState.CANCELLED},
    }
)


class ExchangeState(FastEnum):
    """One HTTP request and its response, as the server sees it."""

    HEAD = enum.auto()
    """Waiting for the request head."""
    BODY = enum.auto()
    """Waiting for the rest of the request body."""
    DECIDING = enum.auto()
    """The request is complete, the response has not begun."""
    STREAMING = enum.auto()
    """The response is an event stream."""
    DONE = enum.auto()
    """The response is complete, or nobody is there to read it."""


class ExchangeEvent(FastEnum):
    """What can happen to an exchange."""

    HEAD = enum.auto()
    COMPLETE = enum.auto()
    STREAM = enum.auto()
    ANSWER = enum.auto()
    """A whole response is given, or the stream is ended."""
    LOST = enum.auto()


EXCHANGE = _table(
    {
        ExchangeState.HEAD: {
            ExchangeEvent.HEAD: ExchangeState.BODY,
            ExchangeEvent.LOST: ExchangeState.DONE,
        },
        ExchangeState.BODY: {
            ExchangeEvent.COMPLETE: ExchangeState.DECIDING,
            ExchangeEvent.ANSWER: ExchangeState.DONE,
            ExchangeEvent.LOST: ExchangeState.DONE,
        },
        ExchangeState.DECIDING: {
            ExchangeEvent.STREAM: ExchangeState.STREAMING,
            ExchangeEvent.ANSWER: ExchangeState.DONE,
            ExchangeEvent.LOST: ExchangeState.DONE,
        },
        ExchangeState.STREAMING: {
            ExchangeEvent.ANSWER: ExchangeState.DONE,
            ExchangeEvent.LOST: ExchangeState.DONE,
        },
        ExchangeState.DONE: {},
    }
)


class ConnectionState(FastEnum):
    """An HTTP/1.1 connection, as the server sees it: one request after the other."""

    IDLE = enum.auto()
    """No byte of the next request has come."""
    HEAD = enum.auto()
    BODY = enum.auto()
    ANSWERING = enum.auto()
    """The request is complete, the response is not."""
    LINGERING = enum.auto()
    """The last response is out; what the peer still sends is thrown away, so that it gets to read
    the response.
    """
    CLOSED = enum.auto()


class ConnectionEvent(FastEnum):
    """What can happen to a connection."""

    BYTES = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    """The request body is complete."""
    ANSWERED = enum.auto()
    """Request and response are complete, and another request may follow."""
    REFUSED = enum.auto()
    """The response is complete; the request is not, or is such that no other is wanted."""
    CLOSE = enum.auto()


CONNECTION = _table(
    {
        ConnectionState.IDLE: {
            ConnectionEvent.BYTES: ConnectionState.HEAD,
            ConnectionEvent.CLOSE: ConnectionState.CLOSED,
        },
        ConnectionState.HEAD: {
            ConnectionEvent.HEAD: ConnectionState.BODY,
            ConnectionEvent.REFUSED: ConnectionState.LINGERING,
            ConnectionEvent.CLOSE: ConnectionState.CLOSED,
        },
        ConnectionState.BODY: {
            ConnectionEvent.BODY: ConnectionState.ANSWERING,
            ConnectionEvent.REFUSED: ConnectionState.LINGERING,
            ConnectionEvent.CLOSE: ConnectionState.CLOSED,
        },
        ConnectionState.ANSWERING: {
            ConnectionEvent.ANSWERED: ConnectionState.IDLE,
            ConnectionEvent.REFUSED: ConnectionState.LINGERING,
            ConnectionEvent.CLOSE: ConnectionState.CLOSED,
        },
        ConnectionState.LINGERING: {ConnectionEvent.CLOSE: ConnectionState.CLOSED},
        ConnectionState.CLOSED: {},
    }
)

TABLES = MappingProxyType(
    {
        "opening": OPENING,
        "process": PROCESS,
        "stream": STREAM,
        "session": SESSION,
        "log": LOG,
        "call": CALL,
        "exchange": EXCHANGE,
        "connection": CONNECTION,
    }
)
"""All tables by name, for the tests that enumerate and print them."""
