"""Sessions that instances share through the store.

The record of a session is a log. The instance that opens the session stores what was negotiated
before the client gets the id, and an instance that receives a request of a session reads the record
first. So any instance can handle the request, and a session that ended at one instance has ended at
all. The record of a session in use is written again from time to time, because the store evicts old
entries: a session that is unused for ``Limits.max_stored_age`` seconds ends with its record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ...effects import StoreEffect, StoreRead
from ...errors import RemoteProtocolError
from ...revisions import REVISIONS
from ...store import Entry, Page, StreamKey
from ...types import Secret
from .. import refusals
from ..core import ServerCore
from ..logs import StoreOperation
from ..records import NOTHING, RecordTooNewError, read_members, record_in, write_members
from .sessions import RECORD, LegacySession, SessionTable

Done: TypeAlias = Callable[["RemoteProtocolError | None"], None]
"""A function that is called at the end, with a refusal or None."""


def _ignore_outcome(error: RemoteProtocolError | None) -> None:
    """Do nothing: no request waits for the outcome."""


@attrs.define(eq=False, repr=False)
class SessionRecord(StoreOperation):
    """Saves or loads the record of one session in the store."""

    _core: ServerCore
    _table: SessionTable
    _key: StreamKey
    _done: Done = _ignore_outcome
    _is_used: bool = attrs.field(default=True, kw_only=True, alias="is_used")
    """True if the session is in use here, so that its record is kept."""

    @classmethod
    def for_session(
        cls,
        core: ServerCore,
        table: SessionTable,
        principal: str,
        id: str,
        done: Done = _ignore_outcome,
        *,
        is_used: bool = True,
    ) -> SessionRecord:
        """Return the record of a session, by its principal and id."""
        return cls(core, table, StreamKey(principal, id, RECORD), done, is_used=is_used)

    def save_record(
        self, session: LegacySession, seq: int = 1, last: Mapping[str, Any] = NOTHING
    ) -> None:
        """Save the record of a session, as entry ``seq`` of its log.

        ``last``: the members of the record before, of which those are kept that only a later
        version knows.
        """
        session.last_saved = self._core.now
        members = {
            **last,
            "revision": session.revision.name,
            "client_info": session.client_info,
            "client_capabilities": session.client_capabilities,
            "multi_turn": session.multi_turn,
        }
        entries = (Entry(seq, write_members(members)),)
        self._table.streams.logs.append(self._key, entries, self)

    def load_record(self) -> None:
        """Load the record, and add or end the session in the table accordingly."""
        limits = self._core.limits
        limit, max_bytes = limits.replay_page_entries, limits.max_stored_bytes
        self._table.streams.logs.read(self._key, 0, self, limit=limit, max_bytes=max_bytes)

    def on_append_done(self) -> None:
        self._done(None)

    def on_append_conflict(self) -> None:
        """Treat the record as saved: another instance has saved the same."""
        self._done(None)

    def on_append_behind(self) -> None:
        """The store has lost the record, and the session with it: its client opens another one."""
        self._done(None)

    def may_repeat(self, effect: StoreEffect) -> bool:
        """The client can repeat its request, which has done nothing."""
        return False

    def failed(self, effect: StoreEffect) -> bool:
        """Pass on the refusal: it is unknown whether the session exists."""
        self._done(refusals.store_failed())
        return True

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """Add a session of another instance to the table, or end one whose record is gone."""
        session = self._table.find(self._key.principal, self._key.session)
        refusal = None
        if page is None:
            if session is not None:
                self._table.end(session, "ended at another instance", delete_stored=False)
        else:
            try:
                session = session or self._restore_session(record_in(page.entries[-1]))
                self._refresh_record(session, page)
            except RemoteProtocolError as error:
                refusal = error
            except RecordTooNewError:
                refusal = refusals.RECORD_TOO_NEW()
        self._done(refusal)

    def _restore_session(self, data: bytes) -> LegacySession:
        """Add a session that another instance has opened to the table.

        Raises RemoteProtocolError if there are too many here, or this instance has stopped; and
        RecordTooNewError.
        """
        if self._core.has_stopped:
            raise refusals.SHUTTING_DOWN()
        members = read_members(data, self._core.limits.max_json_depth)
        self._table.make_room(self._key.principal)
        revision = REVISIONS[members["revision"]]
        session = self._table.new(Secret(self._key.session), self._key.principal, revision)
        session.client_info = members["client_info"]
        session.client_capabilities = members["client_capabilities"]
        session.multi_turn = members["multi_turn"]
        session.initialized()
        self._table.add(session)
        session.touch()  # the request that named it may have ended by now
        return session

    def _refresh_record(self, session: LegacySession, page: Page) -> None:
        """Save the record again before the store evicts it. Raises RecordTooNewError."""
        is_due = self._core.now - session.last_saved > self._core.refresh_interval
        if self._is_used and is_due:
            most = self._core.limits.max_json_depth
            last = read_members(record_in(page.entries[-1]), most) if page.entries else NOTHING
            record = SessionRecord(self._core, self._table, self._key)
            record.save_record(session, page.last.seq + 1, last)
