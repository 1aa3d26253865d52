"""Every state machine of the library, as tables: state, then event, then next state.

Each table contains every event that a *peer* can cause, in every state in which it can occur. Any
other pair of state and event is a mistake of our own side, and ``advance()`` raises
LocalProtocolError for it. A state without events is an end. Tests walk through all pairs and print
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
    """Return the state after an event. Raises LocalProtocolError if it is not allowed there."""
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
    """The client looks for the transport and the revision, or has sent ``initialize``."""
    CONFIRMING = enum.auto()
    """``notifications/initialized`` was sent and is not accepted yet."""
    READY = enum.auto()
    CLOSING = enum.auto()
    """The client ends the session, or the server process."""
    CLOSED = enum.auto()


class OpeningState(FastEnum):
    """The present step of a client's opening or closing."""

    NEW = enum.auto()
    AWAITING_ENDPOINT = enum.auto()
    """The client waits for the first event of HTTP+SSE, which names the URI for its messages."""
    PROBING = enum.auto()
    """``server/discover`` was sent."""
    PROBING_AGAIN = enum.auto()
    """``server/discover`` was sent again, at a version the server named. This is the last try."""
    INITIALIZING = enum.auto()
    """``initialize`` was sent."""
    CONFIRMING = enum.auto()
    """``notifications/initialized`` was sent and is not accepted yet."""
    BACKING_OFF = enum.auto()
    """The client waits before its next attempt."""
    READY = enum.auto()
    CLOSING = enum.auto()
    """The client ends the session, or the server process."""
    CLOSED = enum.auto()


class OpeningEvent(FastEnum):
    """The next step of the opening."""

    LOCATE = enum.auto()
    """Open the event stream of HTTP+SSE."""
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
    # The steps that begin an attempt: at first, after the loss of a session, with another
    # transport, or after a backoff.
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
    """The server process that a client started."""

    NEW = enum.auto()
    RUNNING = enum.auto()
    CLOSING = enum.auto()
    """Its stdin was closed, so that it exits."""
    TERMINATING = enum.auto()
    """It got the signal to terminate."""
    KILLING = enum.auto()
    """It was killed."""
    EXITED = enum.auto()
    """It has exited; its last output may still arrive."""
    ENDED = enum.auto()


class ProcessEvent(FastEnum):
    """An event of a server process."""

    START = enum.auto()
    CLOSE = enum.auto()
    TIMEOUT = enum.auto()
    EXITED = enum.auto()
    OUTPUT_READ = enum.auto()
    """Its output was read to the end, or took too long."""


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
            # Some servers of a handshake revision exit when their first message is not initialize,
            # so probing with server/discover can end them. Such a server is started once more and
            # gets initialize straight away. A second exit is final.
            ProcessEvent.START: ProcessState.RUNNING,
        },
        ProcessState.ENDED: {},
    }
)


class StreamState(FastEnum):
    """The client's end of one event stream, over any number of connections."""

    OPENING = enum.auto()
    """An HTTP request was sent whose response may be the stream."""
    READING = enum.auto()
    DELAYED = enum.auto()
    """The connection is lost; the client reconnects after a delay."""
    PARKED = enum.auto()
    """The server closed the connection and waits for the responses of a turn (SEP-1858)."""
    CLOSED = enum.auto()


class StreamEvent(FastEnum):
    """An event of the client's end of an event stream."""

    OPENED = enum.auto()
    BROKEN = enum.auto()
    """The connection ended, cleanly or not, before the end of the stream."""
    PARKED = enum.auto()
    RETRY = enum.auto()
    """The delay is over, or the responses of the turn are there."""
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


class ServerState(FastEnum):
    """A server, from its first request to its end."""

    SERVING = enum.auto()
    LAME_DUCK = enum.auto()
    """Everything is served, but clients are to go elsewhere, because the server is about to stop.
    """
    DRAINING = enum.auto()
    """New calls and sessions are refused; running calls go on."""
    STOPPED = enum.auto()
    """All has ended: a late report of the store opens no session."""


class StopEvent(FastEnum):
    """A step towards the end of a server."""

    LEAVE = enum.auto()
    DRAIN = enum.auto()
    STOP = enum.auto()


_STOP = {StopEvent.DRAIN: ServerState.DRAINING, StopEvent.STOP: ServerState.STOPPED}

SERVER = _table(
    {
        ServerState.SERVING: {StopEvent.LEAVE: ServerState.LAME_DUCK, **_STOP},
        ServerState.LAME_DUCK: {StopEvent.LEAVE: ServerState.LAME_DUCK, **_STOP},
        ServerState.DRAINING: {**_STOP, StopEvent.LEAVE: ServerState.DRAINING},
        # Signals may come again, and in any order: nothing changes.
        ServerState.STOPPED: dict.fromkeys(StopEvent, ServerState.STOPPED),
    }
)

REFUSING = (ServerState.DRAINING, ServerState.STOPPED)
"""The states in which a server takes nothing new."""


class SessionState(FastEnum):
    """A session on the server."""

    OPENING = enum.auto()
    """``notifications/initialized`` has not arrived yet."""
    READY = enum.auto()
    ENDED = enum.auto()


class SessionEvent(FastEnum):
    """An event of a session."""

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
    """The log of a stream, as one instance of the server sees it."""

    WRITING = enum.auto()
    """This instance writes the log, one append at a time."""
    FINISHED = enum.auto()
    """This instance wrote the last message; its append may still be in flight."""
    REMOTE = enum.auto()
    """Another instance writes the log or has finished it, so readers read it from the store."""
    UNSTORED = enum.auto()
    """There is no store, or it has failed: messages go straight to the reader, without ids."""
    CLOSED = enum.auto()
    """The stream has ended, and its end is not stored."""


class LogEvent(FastEnum):
    """An event of the log of a stream."""

    END = enum.auto()
    """The last message is written, or the session has ended."""
    HAND_OVER = enum.auto()
    """Another instance writes on: the call was parked, or an append conflicted."""
    TAKE_OVER = enum.auto()
    """This instance has stored the last response that a parked call needed."""
    FAIL = enum.auto()
    """An append failed, or was given up because the store forgets the session."""


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
            # The append that parks a call is in flight after HAND_OVER, and can still fail.
            LogEvent.FAIL: LogState.CLOSED,
        },
        LogState.UNSTORED: {
            LogEvent.END: LogState.CLOSED,
            LogEvent.TAKE_OVER: LogState.UNSTORED,
        },
        LogState.CLOSED: {LogEvent.END: LogState.CLOSED},
    }
)


class TaskLogState(FastEnum):
    """The log of a task, as the instance that runs its handler writes it."""

    WAITING = enum.auto()
    """The store has the state, or a change of it that can wait."""
    DUE = enum.auto()
    """The state is to be stored at once; the append before it has ended, or failed."""
    APPENDING = enum.auto()
    OUTDATED = enum.auto()
    """A state is being appended, and another one is to be stored at once."""
    SETTLED = enum.auto()
    """Nothing more is appended here."""


class TaskLogEvent(FastEnum):
    """An event of the log of a task."""

    CHANGE = enum.auto()
    """The state has changed, and is to be stored at once."""
    APPEND = enum.auto()
    STORED = enum.auto()
    FAIL = enum.auto()
    """The append failed, or the store has lost the end of the log."""
    SETTLE = enum.auto()
    """The last state is stored, or another instance goes on, or the call is no task."""


TASK_LOG = _table(
    {
        TaskLogState.WAITING: {
            TaskLogEvent.CHANGE: TaskLogState.DUE,
            TaskLogEvent.APPEND: TaskLogState.APPENDING,
            TaskLogEvent.SETTLE: TaskLogState.SETTLED,
        },
        TaskLogState.DUE: {
            TaskLogEvent.CHANGE: TaskLogState.DUE,
            TaskLogEvent.APPEND: TaskLogState.APPENDING,
            TaskLogEvent.SETTLE: TaskLogState.SETTLED,
        },
        TaskLogState.APPENDING: {
            TaskLogEvent.CHANGE: TaskLogState.OUTDATED,
            TaskLogEvent.STORED: TaskLogState.WAITING,
            TaskLogEvent.FAIL: TaskLogState.DUE,
            TaskLogEvent.SETTLE: TaskLogState.SETTLED,
        },
        TaskLogState.OUTDATED: {
            TaskLogEvent.CHANGE: TaskLogState.OUTDATED,
            TaskLogEvent.STORED: TaskLogState.DUE,
            TaskLogEvent.FAIL: TaskLogState.DUE,
            TaskLogEvent.SETTLE: TaskLogState.SETTLED,
        },
        TaskLogState.SETTLED: {},
    }
)


class CallState(FastEnum):
    """A call on the server."""

    RUNNING = enum.auto()
    ANSWERED = enum.auto()
    CANCELLED = enum.auto()


class CallEvent(FastEnum):
    """An event of a call."""

    ANSWER = enum.auto()
    CANCEL = enum.auto()


CALL = _table(
    {
        CallState.RUNNING: {
            CallEvent.ANSWER: CallState.ANSWERED,
            CallEvent.CANCEL: CallState.CANCELLED,
        },
        # An application may respond twice, or before it has seen a cancellation: nothing changes.
        CallState.ANSWERED: {CallEvent.ANSWER: CallState.ANSWERED},
        CallState.CANCELLED: {CallEvent.ANSWER: CallState.CANCELLED},
    }
)


class ExchangeState(FastEnum):
    """One HTTP request and its HTTP response, on the server."""

    HEAD = enum.auto()
    """Waiting for the request head."""
    BODY = enum.auto()
    """Waiting for the rest of the request body."""
    DECIDING = enum.auto()
    """The request is complete; the response has not begun."""
    STREAMING = enum.auto()
    """The response is an event stream."""
    DONE = enum.auto()
    """The response is complete, or the peer has disconnected."""


class ExchangeEvent(FastEnum):
    """An event of an exchange."""

    HEAD = enum.auto()
    COMPLETE = enum.auto()
    STREAM = enum.auto()
    ANSWER = enum.auto()
    """The server gave a complete response, or ended the stream."""
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


class PipeState(FastEnum):
    """The server's end of stdio."""

    OPEN = enum.auto()
    FINISHING = enum.auto()
    """The input has ended, and running calls get some time."""
    CLOSING = enum.auto()
    """What waits is sent, and nothing more is added."""
    CLOSED = enum.auto()


class PipeEvent(FastEnum):
    """An event of the server's end of stdio."""

    INPUT_ENDED = enum.auto()
    CLOSE = enum.auto()
    """The output is closed, the server stops, or the calls have ended or taken too long."""
    CLOSED = enum.auto()
    """The driver was told to close the connection."""


PIPE = _table(
    {
        PipeState.OPEN: {
            PipeEvent.INPUT_ENDED: PipeState.FINISHING,
            PipeEvent.CLOSE: PipeState.CLOSING,
        },
        PipeState.FINISHING: {PipeEvent.CLOSE: PipeState.CLOSING},
        PipeState.CLOSING: {
            PipeEvent.CLOSE: PipeState.CLOSING,
            PipeEvent.CLOSED: PipeState.CLOSED,
        },
        # The output may be reported as closed afterwards.
        PipeState.CLOSED: {PipeEvent.CLOSE: PipeState.CLOSED},
    }
)


class ConnectionState(FastEnum):
    """An HTTP/1.1 connection on the server, which handles one request after the other."""

    IDLE = enum.auto()
    """No byte of the next request has arrived."""
    HEAD = enum.auto()
    BODY = enum.auto()
    ANSWERING = enum.auto()
    """The request is complete; the response is not."""
    LINGERING = enum.auto()
    """The last response is sent, and what the peer still sends is discarded.

    Closing at once would reset the connection, and the peer could lose the response (RFC 9112,
    section 9.6).
    """
    CLOSED = enum.auto()


class ConnectionEvent(FastEnum):
    """An event of a connection."""

    BYTES = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    """The request body is complete."""
    ANSWERED = enum.auto()
    """Request and response are complete, and another request may follow."""
    REFUSED = enum.auto()
    """The response is complete, and no other request may follow, because this one was refused or
    not read in full.
    """
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


class AuthorizationState(FastEnum):
    """The present step of a client that obtains authorization."""

    NEW = enum.auto()
    LOADING = enum.auto()
    """The stored credentials are read. Requests wait, as in all states but IDLE and READY."""
    IDLE = enum.auto()
    """There is no token; requests are sent without one."""
    RESOURCE = enum.auto()
    """The metadata of the MCP server are looked for."""
    SERVER = enum.auto()
    """The metadata of its authorization server are looked for."""
    CLIENT = enum.auto()
    """The client is chosen or registered."""
    LOGIN = enum.auto()
    """A person logs in."""
    TOKEN = enum.auto()
    """A token is requested with a code, an assertion or the client's own credentials."""
    REFRESHING = enum.auto()
    """A token is requested with a refresh token, under the lock of the storage."""
    REVOKING = enum.auto()
    """The tokens are revoked and deleted, under the lock of the storage."""
    READY = enum.auto()
    """Requests are sent with the token."""
    CLOSED = enum.auto()


class AuthorizationEvent(FastEnum):
    """An event of the authorization."""

    STARTED = enum.auto()
    LOGOUT = enum.auto()
    """The application logs out, instead of connecting."""
    CHALLENGED = enum.auto()
    """The MCP server refused a request, or a token is wanted before the first one."""
    EXPIRED = enum.auto()
    """There is an expired or refused token, and a refresh token."""
    FOUND = enum.auto()
    """The step has found what it was looking for."""
    UNATTENDED = enum.auto()
    """The client is chosen, and no person has to log in."""
    OBTAINED = enum.auto()
    REFUSED = enum.auto()
    """The authorization server refuses the code, client or refresh token, or a further scope."""
    KEPT = enum.auto()
    """The flow has failed, and the token from before it is kept."""
    FAILED = enum.auto()
    """The flow has failed, or nothing was stored, or it was deleted."""
    CLOSE = enum.auto()


_ENDS_FLOW = {
    AuthorizationEvent.KEPT: AuthorizationState.READY,
    AuthorizationEvent.FAILED: AuthorizationState.IDLE,
    AuthorizationEvent.CLOSE: AuthorizationState.CLOSED,
}

AUTHORIZATION = _table(
    {
        AuthorizationState.NEW: {
            AuthorizationEvent.STARTED: AuthorizationState.LOADING,
            AuthorizationEvent.LOGOUT: AuthorizationState.REVOKING,
            AuthorizationEvent.CLOSE: AuthorizationState.CLOSED,
        },
        AuthorizationState.LOADING: {
            AuthorizationEvent.CHALLENGED: AuthorizationState.RESOURCE,
            AuthorizationEvent.EXPIRED: AuthorizationState.REFRESHING,
            AuthorizationEvent.OBTAINED: AuthorizationState.READY,
            AuthorizationEvent.FAILED: AuthorizationState.IDLE,
            AuthorizationEvent.CLOSE: AuthorizationState.CLOSED,
        },
        AuthorizationState.IDLE: {
            AuthorizationEvent.CHALLENGED: AuthorizationState.RESOURCE,
            AuthorizationEvent.CLOSE: AuthorizationState.CLOSED,
        },
        AuthorizationState.RESOURCE: {
            AuthorizationEvent.FOUND: AuthorizationState.SERVER,
            **_ENDS_FLOW,
        },
        AuthorizationState.SERVER: {
            AuthorizationEvent.FOUND: AuthorizationState.CLIENT,
            AuthorizationEvent.EXPIRED: AuthorizationState.REFRESHING,
            **_ENDS_FLOW,
        },
        AuthorizationState.CLIENT: {
            AuthorizationEvent.FOUND: AuthorizationState.LOGIN,
            AuthorizationEvent.UNATTENDED: AuthorizationState.TOKEN,
            **_ENDS_FLOW,
        },
        AuthorizationState.LOGIN: {
            AuthorizationEvent.FOUND: AuthorizationState.TOKEN,
            AuthorizationEvent.REFUSED: AuthorizationState.CLIENT,
            **_ENDS_FLOW,
        },
        AuthorizationState.TOKEN: {
            AuthorizationEvent.OBTAINED: AuthorizationState.READY,
            AuthorizationEvent.REFUSED: AuthorizationState.CLIENT,
            **_ENDS_FLOW,
        },
        AuthorizationState.REFRESHING: {
            AuthorizationEvent.OBTAINED: AuthorizationState.READY,
            AuthorizationEvent.REFUSED: AuthorizationState.SERVER,
            **_ENDS_FLOW,
        },
        AuthorizationState.REVOKING: {
            AuthorizationEvent.FAILED: AuthorizationState.IDLE,
            AuthorizationEvent.CLOSE: AuthorizationState.CLOSED,
        },
        AuthorizationState.READY: {
            AuthorizationEvent.CHALLENGED: AuthorizationState.RESOURCE,
            AuthorizationEvent.EXPIRED: AuthorizationState.REFRESHING,
            AuthorizationEvent.CLOSE: AuthorizationState.CLOSED,
        },
        AuthorizationState.CLOSED: {},
    }
)

TABLES = MappingProxyType(
    {
        "opening": OPENING,
        "process": PROCESS,
        "stream": STREAM,
        "server": SERVER,
        "session": SESSION,
        "log": LOG,
        "task log": TASK_LOG,
        "call": CALL,
        "exchange": EXCHANGE,
        "pipe": PIPE,
        "connection": CONNECTION,
        "authorization": AUTHORIZATION,
    }
)
"""All tables by name, for the tests that enumerate and print them."""
