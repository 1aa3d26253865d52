"""Sessions that instances share through the store.

The record of a session is a log. The instance that opens the session stores what was negotiated
before the client gets the id, and an instance that receives a request of a session reads the record
first. So any instance can handle the request, and a session that ended at one instance has ended at
all. The record of a session in use is written again from time to time, because the store evicts old
entries: a session that is unused for ``Limits.max_stored_age`` seconds ends with its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...revisions import REVISIONS
from ...store import Entry, StreamKey
from ...types import Secret
from .. import refusals
from ..core import ServerCore
from ..procedures import StepFailedError, Steps, append, read, run
from ..records import NOTHING, RecordTooNewError, read_members, record_in, write_members
from .sessions import RECORD, LegacySession, SessionTable


def save_record(
    core: ServerCore, session: LegacySession, seq: int = 1, last: Mapping[str, Any] = NOTHING
) -> Steps[bool]:
    """Save the record of a session, as entry ``seq`` of its log.

    If another instance has saved the same, or the store has lost the record, and the session with
    it, this counts as saved: in the second case the client opens another session.

    ``last``: the members of the record before, of which those are kept that only a later version
    knows.

    Returns:
        False if the store has failed.
    """
    session.last_saved = core.now
    members = {
        **last,
        "revision": session.revision.name,
        "client_info": session.client_info,
        "client_capabilities": session.client_capabilities,
        "multi_turn": session.multi_turn,
    }
    entry = Entry(seq, write_members(members))
    try:  # once: the client can repeat its request, which has done nothing
        yield from append(session.log_key(RECORD), (entry,), is_repeated=False)
    except StepFailedError:
        return False
    return True


def load_record(
    core: ServerCore, table: SessionTable, principal: str, id: str, *, is_used: bool = True
) -> Steps[None]:
    """Add a session of another instance to the table, or end one whose record is gone.

    ``is_used``: True if the session is in use here, so that its record is kept.

    Raises RemoteProtocolError if it is unknown whether the session exists, or it cannot be added.
    """
    key, limits = StreamKey(principal, id, RECORD), core.limits
    try:
        page = yield from read(key, 0, limits.replay_page_entries)
    except StepFailedError:
        raise refusals.store_failed() from None
    session = table.find(principal, id)
    if page is None:
        if session is not None:
            table.end(session, "ended at another instance", delete_stored=False)
        return
    try:
        if session is None:
            session = _restore(core, table, key, record_in(page.entries[-1]))
        if is_used and core.now - session.last_saved > core.refresh_interval:
            # The store evicts old entries.
            most = limits.max_json_depth
            last = read_members(record_in(page.entries[-1]), most) if page.entries else NOTHING
            saving = _save_again(core, table, session, page.last.seq + 1, last)
            run(table.streams.logs, saving, lambda: True)
    except RecordTooNewError:
        raise refusals.RECORD_TOO_NEW() from None


def _save_again(
    core: ServerCore, table: SessionTable, session: LegacySession, seq: int, last: Mapping[str, Any]
) -> Steps[None]:
    """Save the record of a session once more, as entry ``seq``, unless the session has ended.

    Its record may have been deleted since it was read, at this instance or another one. The save
    then begins the log anew, without the entry before, and the session would be open again at all
    instances. So the entry before is read again, and if it is gone, what was saved is deleted.
    """
    yield from save_record(core, session, seq, last)
    key = session.log_key(RECORD)
    try:
        page = yield from read(key, seq - 2)
    except StepFailedError:
        return
    if page is None or (page.entries and page.entries[0].seq >= seq):
        found = table.find(key.principal, key.session)
        if found is not None:
            table.end(found, "ended at another instance")
        else:
            table.streams.logs.drop(key.principal, key.session)


def _restore(core: ServerCore, table: SessionTable, key: StreamKey, data: bytes) -> LegacySession:
    """Add a session that another instance has opened to the table.

    Raises RemoteProtocolError if there are too many here, or this instance has stopped; and
    RecordTooNewError.
    """
    if core.has_stopped:
        raise refusals.SHUTTING_DOWN()
    members = read_members(data, core.limits.max_json_depth)
    table.make_room(key.principal)
    revision = REVISIONS[members["revision"]]
    session = table.new(Secret(key.session), key.principal, revision)
    session.client_info = members["client_info"]
    session.client_capabilities = members["client_capabilities"]
    session.multi_turn = members["multi_turn"]
    session.initialized()
    table.add(session)
    session.touch()  # the request that named it may have ended by now
    return session
