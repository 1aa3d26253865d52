"""Sessions: what a server remembers of a client between its requests.

A session begins with ``initialize`` and ends by DELETE, by being idle for too long, with the
channel that carries it, or when the server shuts down. It holds what was negotiated, the calls that
run, the requests that wait for the client's answer, and the standalone streams (GET) on which the
server says what belongs to no call. It belongs to one principal; for everybody else it does not
exist.

The standalone streams of a session are few, and any of them may have lost its connection without
anybody having noticed. So a message goes to the one whose reader came last; and a GET that brings
no cursor goes on where a stream without a reader was left, before it begins a new one. Streams with
a living reader are never taken over: two honest connections of one client would evict each other
for ever.

Source: 2025-03-26 to 2025-11-25, basic/transports: Session Management, Listening for Messages from
the Server.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from ...codecs import jsonrpc
from ...codecs.event_id import EventId
from ...effects import StoreDrop
from ...errors import LocalProtocolError
from ...events import SessionClosed, SessionOpened
from ...messages import Notification, Params, Request, RequestId
from ...meta_keys import CLIENT_CAPABILITIES
from ...revisions import Revision
from ...server_call import Session
from ...shares import Shares
from ...states import SESSION, SessionEvent, SessionState, advance
from ...store import StreamKey
from ...timers import Timer
from ...types import Secret
from .. import refusals
from ..calls import CallOwner, RunningCall
from ..core import ServerCore, Sink
from ..exchange import ServerExchange
from .mailbox import (
    MailboxPoll,
    MailboxPost,
    cancellation_mailbox,
    decode_response,
    response_mailbox,
)
from .stream_table import StreamTable
from .streams import ResumableStream

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


@attrs.define(eq=False, repr=False)
class _StreamReader:
    """An exchange that reads a stream of a session."""

    _session: LegacySession
    _stream: ResumableStream
    _exchange: ServerExchange

    def catch_up(self) -> None:
        """Everything was sent: read on, if the log goes on."""
        self._stream.catch_up()

    def on_closed(self) -> None:
        """The exchange is over; the log stays."""
        self._stream.detach(self._exchange)
        self._session.reader_left(self._exchange, self._stream)


@attrs.define(eq=False, repr=False, kw_only=True)
class LegacySession(CallOwner, Session):
    """One client's conversation, with its streams and the requests that wait for its answer."""

    _core: ServerCore = attrs.field(alias="core")
    table: StreamTable = attrs.field(alias="streams")
    """Where its streams are, and its way to the store; not for applications."""
    id: Secret | None
    sink: Sink | None = None
    """Where all messages go, on a transport that has one stream for them; not for applications."""
    multi_turn: bool = False
    """Both sides have named SEP-1858."""
    last_saved: float = attrs.field(default=-math.inf, init=False)
    """When it was last written down for other instances."""
    state: SessionState = attrs.field(default=SessionState.OPENING, init=False)
    subscriptions: set[str] = attrs.field(factory=lambda: set(), init=False)
    pending_requests: dict[int, RunningCall] = attrs.field(factory=lambda: {}, init=False)
    """Which call made the request to the client that waits under this id; not for applications."""
    _readers: dict[ServerExchange, ResumableStream] = attrs.field(factory=lambda: {}, init=False)
    """The exchanges that are event streams, and what they read."""
    _standalone: list[ResumableStream] = attrs.field(factory=lambda: [], init=False)
    """The standalone streams, the one whose reader came last at the end."""
    _streams: dict[ResumableStream, None] = attrs.field(factory=lambda: {}, init=False)
    """All streams that are written here and not settled, oldest first."""
    _last_id: int = attrs.field(default=0, init=False)

    def __repr__(self) -> str:
        return f"<session {self.id!r} at {self.revision.name}: {self.state.name.lower()}>"

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        """Send a notification that belongs to no call, on the standalone stream.

        Where instances share sessions, that is a stream which was opened at this one: others have
        others. Returns False if it is lost: nobody listens and there is no store to keep it, or too
        much waits for the store or the client already. Raises LocalProtocolError if the parameters
        are not JSON.
        """
        data = jsonrpc.encode(Notification(method, params))
        self._core.now = now
        if self.state is SessionState.ENDED:
            return False
        if self.sink is not None:
            return not self.sink.is_above_high_water and self.sink.send(data)
        if self.id is None or not self.revision.standalone_stream:
            return False
        listened = [stream for stream in self._standalone if stream.reader is not None]
        stream = (listened or self._standalone or [self._new_standalone()])[-1]
        return not stream.is_above_high_water and stream.append(data)

    # What follows is for the other parts of the server.

    def disconnect(self, retry: int | None) -> int:
        """Close the standalone streams that can be polled; returns how many had a reader."""
        read = [stream for stream in self._standalone if stream.reader is not None]
        return sum(stream.disconnect(retry) for stream in read)

    @property
    def is_shared(self) -> bool:
        """Whether other instances may get requests of this session."""
        return self._core.options.shared_store and self.can_park

    @property
    def can_be_told(self) -> bool:
        """Whether there is a stream, or may be one, for what belongs to no call."""
        return self.id is not None or self.sink is not None

    def succeeded(self, request: Request) -> None:
        """Note what the client has subscribed to, or does not want to be told of any more."""
        if request.method == SUBSCRIBE:
            self.subscriptions.add((request.params or {})["uri"])
        elif request.method == UNSUBSCRIBE:
            self.subscriptions.discard((request.params or {})["uri"])

    @property
    def can_park(self) -> bool:
        """Whether calls of this session may wait in the store."""
        is_stored = self._core.options.resumable and self.revision.resumption
        return is_stored and self.id is not None and self.sink is None

    def begin(self, call: RunningCall) -> None:
        """A call runs here from now on; its cancellation may come to another instance."""
        super().begin(call)
        if not self.can_be_told:
            self._core.stateless[call] = None
        if self.is_shared:
            log = self.log_key(cancellation_mailbox(call.request.id))
            MailboxPoll(
                self.table,
                log,
                after=1,
                announces=True,
                is_active=lambda: call.is_running,
                on_message=lambda reason: call.cancel(reason.decode()),
            ).wait()

    @property
    def is_busy(self) -> bool:
        """Whether calls run or somebody reads a stream."""
        return bool(self.calls or self._readers)

    def register_request(self, call: RunningCall, method: str) -> int:
        """An id for a request to the client; ours are a number space of their own.

        Raises LocalProtocolError if the client must not be asked this. Source: basic/lifecycle:
        Operation.
        """
        if not self.revision.server_requests:
            return super().register_request(call, method)
        if not self.can_be_told:
            raise LocalProtocolError("Without a session the client's answer could not be matched")
        capability = CLIENT_CAPABILITIES.get(method)
        if capability is not None and capability not in self.client_capabilities:
            raise LocalProtocolError(
                f"The client has not declared the capability {capability!r} that {method} needs"
            )
        if self.is_shared and self._last_id == 0:
            self._last_id = _first_number(self._core.token())
        self._last_id += 1
        self.pending_requests[id := self._last_id] = call
        if self.is_shared:
            log = self.log_key(response_mailbox(id))
            MailboxPost(self.table, log, b"").append()
            MailboxPoll(
                self.table,
                log,
                after=1,
                is_active=lambda: id in self.pending_requests,
                on_message=lambda data: call.answered(id, decode_response(self.table, data)),
            ).wait()
        return id

    def unregister_request(self, id: int) -> None:
        """A request to the client has ended."""
        self.pending_requests.pop(id, None)

    def initialized(self) -> None:
        """``notifications/initialized`` has come."""
        self.state = advance(SESSION, self.state, SessionEvent.INITIALIZED)

    def touch(self) -> None:
        """The session was used: start waiting for it to be idle, unless it is busy."""
        if self.id is not None and self.state is not SessionState.ENDED:
            idle = self._core.limits.session_idle_timeout
            after = self._core.refresh_interval if self._core.options.shared_store else idle
            self._core.timers.set(Timer.SESSION_IDLE, self, self._core.now + after)

    def new_stream(self) -> ResumableStream:
        """A new stream of this session."""
        if not self.revision.resumption:
            return self.table.new_unstored()
        return self.table.new(self.principal, self.id, self._streams, polling=self.revision.polling)

    def listen(self, exchange: ServerExchange) -> None:
        """Give a GET without a cursor a standalone stream.

        Raises RemoteProtocolError if there are too many already.
        """
        limit = self._core.limits.max_streams_per_session
        free = [stream for stream in self._standalone if stream.reader is None]
        if not free and len(self._standalone) >= limit:
            raise refusals.TOO_MANY_STREAMS(limit=limit)
        stream = free[-1] if free else self._new_standalone()
        self.read(exchange, stream, None, is_fresh=True)

    def resume(self, exchange: ServerExchange, cursor: EventId) -> None:
        """Give a GET with a cursor the rest of the stream that it names."""
        self.read(exchange, self.find_stream(cursor.stream), cursor.seq)

    def log_key(self, name: str) -> StreamKey:
        """The name of a log of this session."""
        return StreamKey(self.principal, self.id.reveal() if self.id is not None else "", name)

    def find_stream(self, name: str) -> ResumableStream:
        """The stream of that name; whether there is one, reading it will tell."""
        key = self.log_key(name)
        return self.table.find(key, self._streams, polling=self.revision.polling)

    def take_over(self, turn: EventId) -> ResumableStream:
        """Go on with the log of a parked call after the entry of its turn."""
        key, polling = self.log_key(turn.stream), self.revision.polling
        return self.table.take_over(key, turn.seq, self._streams, polling=polling)

    def read(
        self,
        exchange: ServerExchange,
        stream: ResumableStream,
        after: int | None,
        *,
        is_fresh: bool = False,
    ) -> None:
        """Let an exchange read a stream after a place, or where its last reader stopped.

        ``is_fresh``: the client has no id of this stream yet.
        """
        exchange.source = _StreamReader(self, stream, exchange)
        self._readers[exchange] = stream
        if stream in self._standalone:
            self._standalone.remove(stream)
            self._standalone.append(stream)
        stream.attach(exchange, after, is_fresh=is_fresh)

    def reader_left(self, exchange: ServerExchange, stream: ResumableStream) -> None:
        """An exchange of this session is over."""
        self.table.discard_settled(stream)
        self._readers.pop(exchange, None)
        self.touch()

    def end(self, reason: str, *, delete_stored: bool) -> None:
        """End the session: cancel what runs, end what streams.

        ``everywhere``: forget what is stored, so that it has ended for other instances, too.
        """
        self.state = advance(SESSION, self.state, SessionEvent.END)
        for call in tuple(self.calls.values()):
            call.cancel(reason)
        if self.sink is not None:
            self.sink.close()
        for exchange, stream in self._readers.items():
            if stream.is_ending:
                continue
            if not delete_stored:
                stream.disconnect(self._core.retry_ms)
            stream.detach(exchange)
            exchange.stop()
        for stream in tuple(self._streams):
            stream.close(delete_stored=delete_stored)
            self.table.discard_settled(stream)
        self._core.timers.stop(Timer.SESSION_IDLE, self)
        if delete_stored and self._core.options.resumable and self.id is not None:
            self._core.effects.append(StoreDrop(principal=self.principal, session=self.id.reveal()))
        self._core.events.append(SessionClosed(self, reason))

    def _new_standalone(self) -> ResumableStream:
        stream = self.new_stream()
        self._standalone.append(stream)
        return stream


def _first_number(token: str) -> int:
    """Where an instance begins to number its questions: far away from all others."""
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "big") << 20


@attrs.define(eq=False, repr=False)
class SessionTable:
    """The sessions that are alive: by principal and id, or without one where a channel has them."""

    _core: ServerCore
    streams: StreamTable
    _sessions: dict[tuple[str, Secret | Session], LegacySession] = attrs.field(
        factory=dict[tuple[str, Secret | Session], LegacySession], init=False
    )
    _held: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of sessions, by principal."""
    _unused: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of those that have made no request since they were opened."""
    _never_used: dict[str, OrderedDict[LegacySession, None]] = attrs.field(
        factory=dict[str, "OrderedDict[LegacySession, None]"], init=False
    )
    """These, by principal, oldest first."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def is_shared(self) -> bool:
        """True if sessions that other instances have opened are known here."""
        return self._core.options.shared_store

    @property
    def has_stopped(self) -> bool:
        """True if the server has ended its sessions to stop."""
        return self._core.has_stopped

    def __iter__(self) -> Iterator[LegacySession]:
        return iter(tuple(self._sessions.values()))

    def __contains__(self, session: Session) -> bool:
        return (session.principal, session.id or session) in self._sessions

    def check_room(self, principal: str, request_id: RequestId | None = None) -> None:
        """Raise RemoteProtocolError (503) if there is no room for one more session.

        There is if a session could be ended that was never used.
        """
        if self._lacks_own_room(principal) and not self._unused.of(principal):
            limit = self._core.limits.max_sessions_per_principal
            raise refusals.TOO_MANY_SESSIONS(request_id, limit=limit)
        if len(self) >= self._core.limits.max_sessions and not self._unused.total:
            raise refusals.TOO_MANY_SESSIONS(request_id, limit=self._core.limits.max_sessions)

    def make_room(self, principal: str, request_id: RequestId | None = None) -> None:
        """See to it that there is room for one more session.

        To open a session costs a client one request. So if there are too many, the oldest one goes
        that was not used since, of the principal that has most of these. Sessions that were used
        stay. Raises RemoteProtocolError (503) if all were.
        """
        self.check_room(principal, request_id)
        if self._lacks_own_room(principal):
            self._end_unused(principal)
        elif len(self) >= self._core.limits.max_sessions:
            self._end_unused(self._unused.largest())

    def use(self, session: LegacySession) -> None:
        """Record that a session has made a request after ``initialize``, or answered one.

        Where instances share a store, all its requests may have gone to others. If this instance
        ended the session while it still stores an answer, the call would go on nowhere.
        """
        unused = self._never_used.get(session.principal)
        if unused is not None and session in unused:
            del unused[session]
            self._unused.change(session.principal, -1)
            if not unused:
                del self._never_used[session.principal]

    def _lacks_own_room(self, principal: str) -> bool:
        most = self._core.limits.max_sessions_per_principal
        return principal != "" and self._held.of(principal) >= most

    def _end_unused(self, principal: str) -> None:
        session = next(iter(self._never_used[principal]))
        everywhere = not self._core.options.shared_store  # it may be in use at another instance
        self.end(session, "it was not used, and others need its place", delete_stored=everywhere)

    def new(
        self, id: Secret | None, principal: str, revision: Revision, sink: Sink | None = None
    ) -> LegacySession:
        """A session that is not known by its id yet, or never will be."""
        return LegacySession(
            core=self._core,
            streams=self.streams,
            id=id,
            principal=principal,
            revision=revision,
            sink=sink,
        )

    def open(
        self,
        principal: str,
        revision: Revision,
        client_info: Mapping[str, Any],
        client_capabilities: Mapping[str, Any],
    ) -> LegacySession:
        """A new session, with a new id."""
        session = self.new(Secret(self._core.token()), principal, revision)
        session.client_info, session.client_capabilities = client_info, client_capabilities
        self.add(session)
        self._never_used.setdefault(principal, OrderedDict())[session] = None
        self._unused.change(principal, 1)
        session.touch()
        return session

    def add(self, session: LegacySession) -> None:
        """A session has been opened."""
        self._sessions[session.principal, session.id or session] = session
        self._held.change(session.principal, 1)
        self._core.events.append(SessionOpened(session))

    def find(self, principal: str, id: str | None) -> LegacySession | None:
        """The session of that id, if it is this principal's."""
        return None if id is None else self._sessions.get((principal, Secret(id)))

    def expire(self, session: LegacySession) -> None:
        """The idle timer of a session went off. Others may use what is shared."""
        if session.is_busy:
            session.touch()
        else:
            self.end(
                session, "idle for too long", delete_stored=not self._core.options.shared_store
            )

    def end(self, session: LegacySession, reason: str, *, delete_stored: bool = True) -> None:
        """End a session and forget it: everywhere, or only here."""
        self.use(session)
        del self._sessions[session.principal, session.id or session]
        self._held.change(session.principal, -1)
        session.end(reason, delete_stored=delete_stored)

    def shut_down(self) -> None:
        """Answer all calls with an error, and end all sessions and all that is read here."""
        for session in self:
            for call in tuple(session.calls.values()):
                call.abandon(refusals.SHUTTING_DOWN(call.request.id))
            reason = "the server shuts down"
            self.end(session, reason, delete_stored=not self._core.options.shared_store)
        self.streams.release_followers()
