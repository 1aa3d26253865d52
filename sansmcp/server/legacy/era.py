"""The entry point of the handshake revisions: the parts of a server for their clients.

Source: 2024-11-05 to 2025-11-25.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Hashable

import attrs

from ...codecs import jsonrpc
from ...errors import RemoteProtocolError
from ...messages import Notification, Params
from ...meta_keys import UPDATED
from ...server_call import Session
from ...timers import Timer
from ..admission import Admission
from ..calls import RunningCall
from ..core import ServerCore, Sink
from ..keyed_calls import KeyedCalls
from ..leases import Lease, Peers
from ..logs import Logs
from ..procedures import Steps, run
from ..validation import Endpoint
from .dispatcher import Dispatcher
from .http_sse import HttpSse
from .publications import Publications
from .session_channel import SessionChannelHandler
from .session_records import load_record
from .sessions import PUBLISHED, LegacySession, SessionTable
from .stream_table import StreamTable
from .streamable_http import StreamableHttp
from .streams import ResumableStream
from .writers import Writers


class LegacyServer:
    """The part of a server that has sessions and resumable streams."""

    def __init__(
        self,
        core: ServerCore,
        endpoint: Endpoint,
        admission: Admission | None,
        publish_modern: Callable[[str, Params], None],
        logs: Logs,
        lease: Lease | None,
        peers: Peers,
        keyed_calls: KeyedCalls | None,
    ) -> None:
        self._core = core
        self._publish_modern = publish_modern
        self._dispatcher = Dispatcher(core)
        self.streams = StreamTable(core, logs, lease)
        self.sessions = SessionTable(core, self.streams)
        if core.options.shared_store:
            self.streams.writers = Writers(core, self.streams, self.sessions, peers)
        self.publications = Publications(self.streams, self._notify_clients, self._notify_client)
        if core.options.shared_store:
            self.streams.publications = self.publications
        self.streamable_http = StreamableHttp(
            core, endpoint, self.sessions, self._dispatcher, keyed_calls
        )
        self.http_sse = HttpSse(
            core, endpoint, admission, self.sessions, self._dispatcher, keyed_calls
        )

    def channel_handler(self, sink: Sink) -> SessionChannelHandler:
        """Return the handler of a channel on stdio."""
        return SessionChannelHandler(self._core, self.sessions, self._dispatcher, sink, "", None)

    @property
    def is_busy(self) -> bool:
        """True if calls run in sessions, or their responses are being stored."""
        return any(session.is_responding for session in self.sessions) or self.streams.are_ending

    def shut_down(self) -> None:
        """End all sessions and their streams."""
        self.publications.leave()
        self.sessions.shut_down()

    def timed_out(self, timer: Timer, owner: Hashable) -> None:
        """Handle a timer of this era that is due."""
        match timer, owner:
            case Timer.CLIENT_RESPONSE, (RunningCall() as call, int(id)):
                call.on_request_timeout(id)
            case Timer.GATHERED, ResumableStream():
                owner.send_gathered()
            case Timer.STORED, ResumableStream():
                owner.refresh()
            case Timer.SESSION_IDLE, LegacySession():
                self._unused(owner)
            case _:  # pragma: no cover - no other timers are set
                raise AssertionError(timer)

    def _unused(self, session: LegacySession) -> None:
        """Handle the idle timer of a session: end it, or refresh its record if it is busy.

        One that writes for readers at other instances ends with its record, which these refresh.
        """
        if session.is_shared and (session.is_busy or session.writes_for_others):
            assert session.id is not None
            run(self.streams.logs, self._refresh(session, session.id.reveal()))
        self.sessions.expire(session)

    def _refresh(self, session: LegacySession, id: str) -> Steps[None]:
        # If it fails, the next request of the session is refused, if need be.
        with contextlib.suppress(RemoteProtocolError):
            yield from load_record(
                self._core, self.sessions, session.principal, id, is_used=session.is_busy
            )

    def end_session(self, session: Session, reason: str) -> None:
        """End an open session."""
        assert isinstance(session, LegacySession), "all sessions of a server are of this class"
        self.sessions.end(session, reason)

    def _notify_clients(self, seq: int | None, method: str, params: Params) -> None:
        """Notify the clients that listen to this instance of a publication.

        ``seq``: its number among the publications of all instances; None if it has none.
        """
        self._publish_modern(method, params)
        publication = _Publication.of(method, params)
        behind = self.publications.behind
        for session in self.sessions:
            id = session.id.reveal() if session.id is not None else ""
            if seq is None or not behind or (session.principal, id) not in behind:
                publication.forward(session, seq)

    def _notify_client(self, name: tuple[str, str], seq: int, method: str, params: Params) -> None:
        """Notify one client of a publication that a dead instance has not sent to it."""
        session = self.sessions.find(*name)
        if session is not None:
            _Publication.of(method, params).forward(session, seq)


@attrs.frozen
class _Publication:
    """A publication for the clients of this instance."""

    data: bytes
    """The encoded notification."""
    names: set[str] | None
    """The names of which a client must have subscribed to one; None if it is for all clients."""

    @classmethod
    def of(cls, method: str, params: Params) -> _Publication:
        uri = params.get("uri")
        names = _names(uri) if isinstance(uri, str) else set[str]()
        data = jsonrpc.encode(Notification(method, params or None))
        return cls(data, names if method == UPDATED else None)

    def forward(self, session: LegacySession, seq: int | None) -> None:
        """Send it to a session, if it is for that."""
        is_wanted = self.names is None or not self.names.isdisjoint(session.subscriptions)
        session.forward(self.data if is_wanted else None, PUBLISHED, seq)


def _names(uri: str) -> set[str]:
    """Return a URI and its folders, these with and without the slash at the end."""
    ends = [slash.start() for slash in re.finditer("/", uri)]
    return {uri, *(uri[:end] for end in ends), *(uri[: end + 1] for end in ends)}
