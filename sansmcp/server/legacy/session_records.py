"""Sessions that instances share through the store.

The record of a session is a log. The instance that opens the session stores what was negotiated
before the client gets the id, and an instance that receives a request of a session reads the record
first. So any instance can handle the request, and a session that ended at one instance has ended at
all. The record of a session in use is written again from time to time, because the store evicts old
entries: a session that is unused for ``Limits.max_stored_age`` seconds ends with its record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ...codecs import json
from ...effects import StoreAppend, StoreEffect, StoreRead
from ...errors import RemoteProtocolError
from ...revisions import REVISIONS
from ...store import Entry, Page, StreamKey
from ...types import Secret
from .. import refusals
from ..core import ServerCore
from .sessions import LegacySession, SessionTable
from .stream_table import store_failed

_LOG = ".session"
"""No stream has this name: there is no point in tokens."""

Done: TypeAlias = Callable[["RemoteProtocolError | None"], None]
"""Is called at the end, with the refusal if there is one."""


def _ignore_outcome(error: RemoteProtocolError | None) -> None:
    """The end of a use of the store that nobody waits for."""


@attrs.define(eq=False, repr=False)
class SessionRecord:
    """A use of the store for one session: to write it down, or to look it up."""

    _core: ServerCore
    _table: SessionTable
    _key: StreamKey
    _done: Done = _ignore_outcome

    @classmethod
    def for_session(
        cls,
        core: ServerCore,
        table: SessionTable,
        principal: str,
        id: str,
        done: Done = _ignore_outcome,
    ) -> SessionRecord:
        """The session of that id, of that principal."""
        return cls(core, table, StreamKey(principal, id, _LOG), done)

    def save_record(self, session: LegacySession, seq: int = 1) -> None:
        """Write down that the session exists."""
        session.last_saved = self._core.now
        about = {
            "revision": session.revision.name,
            "client_info": session.client_info,
            "client_capabilities": session.client_capabilities,
            "multi_turn": session.multi_turn,
        }
        entries = (Entry(seq, json.encode(about)),)
        self._table.streams.start_operation(StoreAppend(stream=self._key, entries=entries), self)

    def load_record(self) -> None:
        """Let the table know whether the session exists."""
        limits = self._core.limits
        read = StoreRead(
            stream=self._key,
            after=0,
            limit=limits.replay_page_entries,
            max_bytes=limits.max_stored_bytes,
        )
        self._table.streams.start_operation(read, self)

    def on_append_done(self) -> None:
        self._done(None)

    def on_append_conflict(self) -> None:
        """Another instance has just written the same."""
        self._done(None)

    def failed(self, effect: StoreEffect) -> bool:
        """Nobody can tell whether it exists."""
        self._done(store_failed())
        return True

    def on_read_done(self, effect: StoreRead, page: Page | None) -> None:
        """What the store knows of it."""
        session = self._table.find(self._key.principal, self._key.session)
        refusal = None
        if page is None:
            if session is not None:
                self._table.end(session, "ended at another instance", delete_stored=False)
        else:
            try:
                session = session or self._restore_session(page.entries[-1].data)
            except RemoteProtocolError as error:
                refusal = error
            else:
                self._refresh_record(session, page.last.seq)
        self._done(refusal)

    def _restore_session(self, data: bytes) -> LegacySession:
        """Take in a session that another instance has opened.

        Raises RemoteProtocolError if there are too many here, or this instance has stopped.
        """
        if self._core.has_stopped:
            raise refusals.SHUTTING_DOWN()
        self._table.make_room(self._key.principal)
        about = json.decode(data, self._core.limits.max_json_depth)
        revision = REVISIONS[about["revision"]]
        session = self._table.new(Secret(self._key.session), self._key.principal, revision)
        session.client_info = about["client_info"]
        session.client_capabilities = about["client_capabilities"]
        session.multi_turn = about["multi_turn"]
        session.initialized()
        self._table.add(session)
        session.touch()  # the request that has named it may be gone by now
        return session

    def _refresh_record(self, session: LegacySession, last_seq: int) -> None:
        """Write it down once more before the store forgets it."""
        if self._core.now - session.last_saved > self._core.refresh_interval:
            SessionRecord(self._core, self._table, self._key).save_record(session, last_seq + 1)
