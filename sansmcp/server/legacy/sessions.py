"""Sessions: the state of a client between its requests.

A session begins with ``initialize`` and ends by DELETE, by being idle for too long, with the
channel that carries it, or when the server shuts down. It holds what was negotiated, the calls that
run, the server requests that wait for a response, and the standalone streams (GET) for messages
that belong to no call. It belongs to one principal; requests of others get the refusal for an
unknown session.

The connection of a standalone stream may be lost without a sign to the server. So a message goes to
the stream whose reader came last, and a GET without a cursor continues a stream without a reader
before it opens a new one. A stream with a reader is never taken over by such a GET: two connections
of one client would evict each other for ever.

Source: 2025-03-26 to 2025-11-25, basic/transports: Session Management, Listening for Messages from
the Server.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from ...codecs import jsonrpc
from ...codecs.event_id import EventId
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
from ..procedures import Procedure, Steps, Told
from .inbox import INBOX, Inbox
from .mailbox import (
    await_message,
    cancellation_mailbox,
    decode_response,
    open_mailbox,
    response_mailbox,
)
from .stream_table import StreamTable
from .streams import ResumableStream

PUBLISHED = ".publish"
"""The name of the log of publications, for the places of streams."""

RECORD = ".session"
"""The name of the log that tells of a session. No stream has this name: tokens contain no point."""

_LOOK_UP_DELAY = 0.01
"""Seconds until a session is looked up, so that all its calls that ask for it share one look."""

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"


@attrs.define(eq=False, repr=False)
class _StreamReader:
    """Connects an exchange to the stream of a session that it reads."""

    _session: LegacySession
    _stream: ResumableStream
    _exchange: ServerExchange

    def catch_up(self) -> None:
        """Read on, if the log goes on: the exchange has sent everything so far."""
        self._stream.catch_up()

    def on_closed(self) -> None:
        """Detach the exchange, which has ended; the log stays."""
        self._stream.detach(self._exchange)
        self._session.reader_left(self._exchange, self._stream)

    def end_expired(self) -> bool:
        """End the response of the reader, if its client can resume or open the stream again."""
        return self._session.end_reader(self._exchange, self._stream)


@attrs.define(eq=False, repr=False, kw_only=True)
class LegacySession(CallOwner, Session):
    """The session of one client: its calls, streams and open server requests."""

    _core: ServerCore = attrs.field(alias="core")
    table: StreamTable = attrs.field(alias="streams")
    """The streams of this instance and their store operations; not for applications."""
    id: Secret | None
    sink: Sink | None = None
    """The sink of the channel on stdio and HTTP+SSE, else None; not for applications."""
    multi_turn: bool = False
    """True if SEP-1858 is used."""
    last_saved: float = attrs.field(default=-math.inf, init=False)
    """Time of the last save to the store, in seconds on the machine's clock; ``-math.inf`` before
    the first.
    """
    state: SessionState = attrs.field(default=SessionState.OPENING, init=False)
    subscriptions: set[str] = attrs.field(factory=lambda: set(), init=False)
    pending_requests: dict[int, RunningCall] = attrs.field(factory=lambda: {}, init=False)
    """The calls of the open server requests, by the ids of these; not for applications."""
    _readers: dict[ServerExchange, ResumableStream] = attrs.field(factory=lambda: {}, init=False)
    """The exchanges that read streams, each with its stream."""
    _standalone: list[ResumableStream] = attrs.field(factory=lambda: [], init=False)
    """The standalone streams, the one whose reader came last at the end."""
    _last_id: int = attrs.field(default=0, init=False)
    _inbox: Inbox | None = attrs.field(default=None, init=False)
    _record_watch: Procedure | None = attrs.field(default=None, init=False)
    """Set while a standalone stream is written here, whose reader waits for the session's end."""

    def __repr__(self) -> str:
        return f"<session {self.id!r} at {self.revision.name}: {self.state.name.lower()}>"

    def notify(self, method: str, params: Params | None = None, *, now: float) -> bool:
        data = jsonrpc.encode(Notification(method, params))
        self._core.now = now
        if self.state is SessionState.ENDED:
            return False
        if self.sink is not None:
            return not self.sink.is_above_high_water and self.sink.send(data)
        if self.id is None or not self.revision.standalone_stream:
            return False
        stream = self._heard_stream
        # Without a reader here, the client may listen to another instance.
        is_heard = stream is not None and stream.reader is not None
        if self.is_shared and not (is_heard and self.inbox.is_forwarded):
            return self.inbox.add_message(data)
        stream = stream or self._new_standalone()
        return not stream.is_above_high_water and stream.append(data)

    # What follows is for the other parts of the server.

    @property
    def inbox(self) -> Inbox:
        """What instances leave for the one that writes the standalone stream."""
        if self._inbox is None:
            self._inbox = Inbox(self.table, self.log_key(INBOX), self)
        return self._inbox

    @property
    def writes_standalone(self) -> bool:
        """True if a standalone stream is written here."""
        return self._heard_stream is not None

    @property
    def has_stored_all(self) -> bool:
        """True if the store has all messages of the standalone streams."""
        return all(stream.has_stored_all for stream in self._standalone)

    @property
    def drops_messages(self) -> bool:
        """True if too many messages of the standalone stream wait for the store."""
        stream = self._heard_stream
        return stream is not None and stream.is_above_high_water

    @property
    def _heard_stream(self) -> ResumableStream | None:
        """The standalone stream for messages: the last one that is read, or else the last one.

        None if this instance writes none.
        """
        written = [stream for stream in self._standalone if stream.is_written]
        listened = [stream for stream in written if stream.reader is not None]
        streams = listened or written
        return streams[-1] if streams else None

    def forward(self, data: bytes | None, log: str, seq: int | None) -> None:
        """Send a message of a shared log to the client, if it listens to this instance.

        ``data``: the message; None if this one is not for the client. ``seq``: its number in the
        log; None if it has none.

        If instances share the session and none of its standalone streams is written here, another
        instance sends it.
        """
        if self.sink is not None:
            if data is not None and not self.sink.is_above_high_water:
                self.sink.send(data)
        elif self.id is not None and self.revision.standalone_stream:
            stream = self._heard_stream
            if stream is None and data is not None and not self.is_shared:
                stream = self._new_standalone()
            if stream is not None:
                self._forward_to(stream, data, log, seq)

    def _forward_to(
        self, stream: ResumableStream, data: bytes | None, log: str, seq: int | None
    ) -> None:
        is_sent = data is not None and not stream.is_above_high_water
        if seq is None:
            if data is not None and is_sent:
                stream.append(data)
            return
        for each in self._standalone:
            if is_sent and each is not stream and each.is_written:
                # Another instance that continues it does not send this message.
                each.declare_writer(None, {log: seq})
            else:
                each.note_place(log, seq)
        if data is not None and is_sent:
            stream.forward(data, log, seq)

    def disconnect(self, retry: int | None) -> int:
        """Close the standalone streams that can be polled; returns how many had a reader."""
        read = [stream for stream in self._standalone if stream.reader is not None]
        return sum(stream.disconnect(retry) for stream in read)

    @property
    def is_shared(self) -> bool:
        """True if other instances may get requests of this session."""
        return self._core.options.shared_store and self.can_park

    @property
    def is_responding(self) -> bool:
        """True if calls run, or if the response to a subscription waits for the store."""
        return bool(self.calls) or (self._inbox is not None and self._inbox.is_awaited)

    @property
    def is_reachable(self) -> bool:
        """True if messages that belong to no call can reach the client."""
        return self.id is not None or self.sink is not None

    def succeeded(self, request: Request, on_stored: Callable[[bool], object]) -> bool:
        """Record a subscription to a resource, or its end.

        If instances share the session, the client is told when all of them can know it.
        """
        if request.method == SUBSCRIBE:
            self.subscriptions.add((request.params or {})["uri"])
        elif request.method == UNSUBSCRIBE:
            self.subscriptions.discard((request.params or {})["uri"])
        else:
            return False
        ends = request.method == UNSUBSCRIBE
        uri = (request.params or {})["uri"]
        return self.is_shared and self.inbox.subscribe(uri, on_stored, ends=ends)

    @property
    def can_park(self) -> bool:
        """True if calls of this session can be parked in the store."""
        is_stored = self._core.options.resumable and self.revision.resumption
        return is_stored and self.id is not None and self.sink is None

    def check_store(self, request_id: RequestId | None = None) -> None:
        """Raise RemoteProtocolError if something new needs the store, and it does not work."""
        if self.can_park and self._core.store_health.is_down(self._core.now):
            raise refusals.store_failed(request_id)

    def begin(self, call: RunningCall) -> None:
        """Record that a call runs, and poll for a cancellation that reaches another instance."""
        super().begin(call)
        if not self.is_reachable:
            self._core.stateless[call] = None
        if self.is_shared:
            log = self.log_key(cancellation_mailbox(call.request.id))
            await_message(
                self.table,
                log,
                is_open=False,
                is_active=lambda: call.is_running,
                on_message=lambda reason: call.cancel(reason.decode()),
                on_gone=self._look_up,
            )

    def _look_up(self) -> None:
        """Look soon if the session has ended at another instance: it then ends here, too."""
        if self.state is not SessionState.ENDED and self.is_busy:
            self._core.timers.set(Timer.SESSION_IDLE, self, self._core.now + _LOOK_UP_DELAY)

    @property
    def _streams(self) -> tuple[ResumableStream, ...]:
        """The streams that are not settled, oldest first; none of a session for one request."""
        return () if self.id is None else self.table.of_session(self.principal, self.id.reveal())

    @property
    def is_busy(self) -> bool:
        """True if calls run, or exchanges read a stream."""
        return bool(self.calls or self._readers)

    @property
    def writes_for_others(self) -> bool:
        """True if a standalone stream is written here that clients may read at another instance."""
        return self.is_shared and any(stream.is_written for stream in self._standalone)

    def register_request(self, call: RunningCall, method: str) -> int:
        """Return the id for a new server request, and remember its call.

        If instances share the session, each begins to number at a random place. So do the sessions
        of HTTP+SSE, because calls with keys go on in another session with their server requests.

        Raises LocalProtocolError if the client does not take such a request. Source:
        basic/lifecycle: Operation.
        """
        if not self.revision.server_requests:
            return super().register_request(call, method)
        if not self.is_reachable:
            raise LocalProtocolError(
                f"Cannot send {method!r}: without a session the response could not be matched to it"
            )
        capability = CLIENT_CAPABILITIES.get(method)
        if capability is not None and capability not in self.client_capabilities:
            raise LocalProtocolError(
                f"The client has not declared the capability {capability!r} that {method} needs"
            )
        if self._last_id == 0 and (self.is_shared or self._is_http_sse):
            self._last_id = _first_number(self._core.token())
        self._last_id += 1
        self.pending_requests[id := self._last_id] = call
        if self.is_shared:
            log = self.log_key(response_mailbox(id))
            open_mailbox(self.table, log)
            await_message(
                self.table,
                log,
                is_open=True,
                is_active=lambda: id in self.pending_requests,
                on_message=lambda data: call.on_request_ended(
                    id, decode_response(self.table, data)
                ),
                on_gone=self._look_up,
            )
        return id

    @property
    def _is_http_sse(self) -> bool:
        return self.sink is not None and self.sink.head is not None

    def unregister_request(self, id: int) -> None:
        """Forget a server request that has ended."""
        self.pending_requests.pop(id, None)

    def adopt(self, call: RunningCall) -> None:
        """Go on with a call of another session of the client, with its open server requests."""
        call.join_session(self)
        self.pending_requests.update(dict.fromkeys(call.open_requests, call))

    def initialized(self) -> None:
        """Record that ``notifications/initialized`` arrived."""
        self.state = advance(SESSION, self.state, SessionEvent.INITIALIZED)

    def touch(self) -> None:
        """Restart the idle timer, because the session was used."""
        if self.id is not None and self.state is not SessionState.ENDED:
            idle = self._core.limits.session_idle_timeout
            after = self._core.refresh_interval if self._core.options.shared_store else idle
            self._core.timers.set(Timer.SESSION_IDLE, self, self._core.now + after)

    def new_stream(self) -> ResumableStream:
        """Return a new stream of this session."""
        if not self.revision.resumption:
            return self.table.new_unstored()
        return self.table.new(self.principal, self.id, polling=self.revision.polling)

    def listen(self, exchange: ServerExchange) -> None:
        """Give a GET without a cursor a standalone stream.

        Raises RemoteProtocolError if there are too many already.
        """
        limit = self._core.limits.max_streams_per_session
        free = [stream for stream in self._standalone if stream.is_free]
        if not free and len(self._standalone) >= limit:
            raise refusals.TOO_MANY_STREAMS(limit=limit)
        stream = free[-1] if free else self._new_standalone()
        self.read(exchange, stream, None)

    def resume(self, exchange: ServerExchange, cursor: EventId) -> None:
        """Give a GET with a cursor the rest of the stream that it names."""
        self.read(exchange, self.find_stream(cursor.stream), cursor.seq)

    def log_key(self, name: str) -> StreamKey:
        """Return the key of a log of this session."""
        return StreamKey(self.principal, self.id.reveal() if self.id is not None else "", name)

    def find_stream(self, name: str) -> ResumableStream:
        """Return the stream of a name. If there is none, its reader gets a refusal."""
        key = self.log_key(name)
        return self.table.find(key, polling=self.revision.polling)

    def take_over(self, turn: EventId) -> ResumableStream:
        """Continue the log of a parked call after the entry of its turn."""
        key, polling = self.log_key(turn.stream), self.revision.polling
        return self.table.take_over(key, turn.seq, polling=polling)

    def read(
        self,
        exchange: ServerExchange,
        stream: ResumableStream,
        after: int | None,
        *,
        skipped: int = 0,
    ) -> None:
        """Let an exchange read a stream after a place, or where its last reader stopped.

        ``skipped``: the number of messages after that place that the client has received.
        """
        exchange.source = _StreamReader(self, stream, exchange)
        self._readers[exchange] = stream
        if stream in self._standalone:
            self._standalone.remove(stream)
            self._standalone.append(stream)
        stream.attach(exchange, after, skipped=skipped)

    def reader_left(self, exchange: ServerExchange, stream: ResumableStream) -> None:
        """Forget an exchange that has ended."""
        self.table.discard_settled(stream)
        self._readers.pop(exchange, None)
        self.touch()

    def end_reader(self, exchange: ServerExchange, stream: ResumableStream) -> bool:
        """End the response that reads a stream, so that the client opens or resumes it again.

        Returns False, with nothing changed, if the client might take that for the end of a call:
        before 2025-11-25, responses to calls end with the response of the call.
        """
        if stream.disconnect(self._core.retry_ms):
            return True
        assert exchange.head is not None
        if stream in self._standalone:
            stream.detach(exchange)
            exchange.stop()
        elif exchange.head.method == b"GET":
            # It belongs to a call, or to an instance that alone knows if it does. The response is
            # aborted, since a client that has resumed a broken stream resumes it once more. The
            # response to a POST is none of these: its client may have no event id yet with which
            # to resume.
            stream.detach(exchange)
            exchange.abort()
        else:
            return False
        return True

    def end(self, reason: str, *, delete_stored: bool) -> None:
        """End the session: cancel its calls and end its streams.

        ``delete_stored``: delete its logs, so that it ends for other instances, too.
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
        for stream in self._streams:
            stream.close(delete_stored=delete_stored)
            self.table.discard_settled(stream)
        self._core.timers.stop(Timer.SESSION_IDLE, self)
        if self._inbox is not None:
            self._inbox.end(is_deleted=delete_stored)
        if self._record_watch is not None:
            self._record_watch.close()
        if delete_stored and self._core.options.resumable and self.id is not None:
            self.table.logs.drop(self.principal, self.id.reveal())
        self._core.events.append(SessionClosed(self, reason))

    def _new_standalone(self) -> ResumableStream:
        stream = self.new_stream()
        publications, places = self.table.publications, dict[str, int]()
        if publications is not None and publications.cursor is not None:
            places[PUBLISHED] = publications.cursor
        stream.declare_writer(None, places)
        self._standalone.append(stream)
        if self.is_shared:
            self._follow(0)
        return stream

    def continue_standalone(
        self, stream: ResumableStream, seq: int, places: Mapping[str, int]
    ) -> None:
        """Write on in a standalone stream, whose instance has died, after that entry.

        ``places``: by log, the number of the last entry that was forwarded to it. What follows
        there is forwarded now.
        """
        assert stream.key is not None, "what another instance wrote is stored"
        is_first = self._heard_stream is None
        self.table.take_over(stream.key, seq, polling=self.revision.polling)
        stream.declare_writer(None, places)
        if stream not in self._standalone:  # it may have been written here before
            self._standalone.append(stream)
        publications = self.table.publications
        if is_first and publications is not None and PUBLISHED in places:
            publications.catch_up(stream.key, places[PUBLISHED])
        self._follow(places.get(INBOX, 0))

    def _follow(self, taken: int) -> None:
        """Follow what other instances tell of the session: a standalone stream is written here.

        ``taken``: the number of the last message of the inbox that is in the stream.
        """
        self.inbox.follow(taken)
        if self._record_watch is None:
            self._record_watch = Procedure(self.table.logs, self._watch_record())
            self._record_watch.start()

    def _watch_record(self) -> Steps[None]:
        """Look the session up when the store tells of a change of its record."""
        while True:
            yield Told(self.log_key(RECORD))
            self._look_up()


def _first_number(token: str) -> int:
    """Return the first id of server requests of an instance, far away from those of others."""
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "big") << 20


@attrs.define(eq=False, repr=False)
class SessionTable:
    """The open sessions by principal and id, or by themselves if they have no id."""

    _core: ServerCore
    streams: StreamTable
    _sessions: dict[tuple[str, Secret | Session], LegacySession] = attrs.field(
        factory=dict[tuple[str, Secret | Session], LegacySession], init=False
    )
    _held: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of sessions, by principal."""
    _unused: Shares[str] = attrs.field(factory=Shares[str], init=False)
    """The number of sessions without a request since ``initialize``, by principal."""
    _never_used: dict[str, OrderedDict[LegacySession, None]] = attrs.field(
        factory=dict[str, "OrderedDict[LegacySession, None]"], init=False
    )
    """The sessions without a request since ``initialize``, by principal, oldest first."""

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

        A session that was never used leaves room, because it can be ended.
        """
        if self._lacks_own_room(principal) and not self._unused.of(principal):
            limit = self._core.limits.max_sessions_per_principal
            raise refusals.TOO_MANY_SESSIONS(request_id, limit=limit)
        if len(self) >= self._core.limits.max_sessions and not self._unused.total:
            raise refusals.TOO_MANY_SESSIONS(request_id, limit=self._core.limits.max_sessions)

    def make_room(self, principal: str, request_id: RequestId | None = None) -> None:
        """Make room for one more session, by ending one that was never used if necessary.

        Opening a session costs a client only one request. So if there are too many, the oldest
        unused session of the principal with the most unused ones is ended. Sessions that were used
        stay. Raises RemoteProtocolError (503) if all were used.
        """
        self.check_room(principal, request_id)
        if self._lacks_own_room(principal):
            self._end_unused(principal)
        elif len(self) >= self._core.limits.max_sessions:
            self._end_unused(self._unused.largest())

    def use(self, session: LegacySession) -> None:
        """Record that a session has made a request after ``initialize``, or responded to one.

        If instances share a store, all requests of the session may have gone to others. If this
        instance ended the session while it stores a response, no instance would continue the call.
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
        """Return a new session that is not in the table."""
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
        """Return a new session with a new id, and add it to the table."""
        session = self.new(Secret(self._core.token()), principal, revision)
        session.client_info, session.client_capabilities = client_info, client_capabilities
        self.add(session)
        self._never_used.setdefault(principal, OrderedDict())[session] = None
        self._unused.change(principal, 1)
        session.touch()
        return session

    def add(self, session: LegacySession) -> None:
        """Add a session that was opened to the table."""
        self._sessions[session.principal, session.id or session] = session
        self._held.change(session.principal, 1)
        self._core.events.append(SessionOpened(session))

    def find(self, principal: str, id: str | None) -> LegacySession | None:
        """Return the session of a principal and id, or None."""
        return None if id is None else self._sessions.get((principal, Secret(id)))

    def expire(self, session: LegacySession) -> None:
        """End a session whose idle timer went off, unless it is busy.

        A shared session stays in the store, because other instances may use it.
        """
        if session.is_busy or session.writes_for_others:
            session.touch()
        else:
            self.end(
                session, "idle for too long", delete_stored=not self._core.options.shared_store
            )

    def end(self, session: LegacySession, reason: str, *, delete_stored: bool = True) -> None:
        """End a session and forget it: at all instances, or only at this one."""
        self.use(session)
        del self._sessions[session.principal, session.id or session]
        self._held.change(session.principal, -1)
        session.end(reason, delete_stored=delete_stored)

    def shut_down(self) -> None:
        """Respond to all calls with an error, and end all sessions and their streams."""
        for session in self:
            for call in tuple(session.calls.values()):
                call.shut_down()
            reason = "the server shuts down"
            self.end(session, reason, delete_stored=not self._core.options.shared_store)
        self.streams.release_followers()
