"""Records in the store that instances of other versions have written."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from sansmcp import (
    AppendResult,
    Entry,
    EntryKind,
    EventId,
    InputRequired,
    MemoryStore,
    Page,
    StreamKey,
)
from sansmcp.messages import Request
from sansmcp.server.leases import lease_key
from sansmcp.server.legacy.parked_calls import ParkedCall
from sansmcp.server.legacy.sessions import RECORD, LegacySession
from sansmcp.server.legacy.shared_logs import SharedEntry
from sansmcp.server.legacy.streams import WriterDeclaration, place_of
from sansmcp.server.modern.task_operation import task_key
from sansmcp.server.modern.task_record import Reentry, TaskRecord
from sansmcp.server.records import RecordTooNewError, write_head
from sansmcp.server.shared_keys import Claim
from sansmcp.tasks import CANCEL, GET, UPDATE

from .harness import PING, RawExchange, ServerHarness, expect, methods, report_progress_all
from .instances import Instances
from .modern.task_harness import ADA, NAME, TaskInstances
from .pipe_harness import result
from .test_leases import LEASE, differences, followed, reason_of, wait, with_clocks
from .test_parked_calls import answer_to, ask
from .test_rounds import ACCEPTED

STORED = Path(__file__).parent / "stored"
"""Records that versions have stored, ``NAME-NUMBER.json``. The number counts the forms that the
record has had; it is not that of a reader. A later version adds its own file, and changes none.
"""

REQUEST = Request(1, "tools/call", {"name": "t"})
TASK = TaskRecord(created=1.0, updated=2.0, ttl=None, poll_interval=1.0)
STARTED = TaskRecord(
    created=1.0, updated=2.0, ttl=5.0, poll_interval=1.0, writer="i", reentry=Reentry(REQUEST)
)
PARKED = ParkedCall(REQUEST, {"a": "b"}, {"step": 1}, 1, None)
CLAIM = Claim.of("i", REQUEST, ("read",))
WRITER = WriterDeclaration("i", [1], {".notify": 3})


def declaration_in(data: bytes) -> WriterDeclaration | None:
    return WriterDeclaration.of(Entry(1, data, kind=EntryKind.OPENED))


def with_new_members(record: dict[str, Any]) -> dict[str, Any]:
    """Add a member to a record, and to those inside it."""
    inside = {name: record[name] for name in ("reentry", "request") if record.get(name)}
    changed = {name: with_new_members(each) for name, each in inside.items()}
    return {**record, **changed, "com.example/new": {"deep": [[[[]]]]}}


RECORDS: dict[str, Any] = {
    "task": TASK,
    "started-task": STARTED,
    "parked-call": PARKED,
    "writer": WRITER,
    "claim": CLAIM,
}
DECODERS: dict[str, Callable[[bytes], Any]] = {
    "task": TaskRecord.decode,
    "started-task": TaskRecord.decode,
    "parked-call": ParkedCall.decode,
    "writer": declaration_in,
    "claim": Claim.decode,
}


def stored(name: str) -> bytes:
    """What a version has stored."""
    return (STORED / name).read_bytes().removesuffix(b"\n")


def later(data: bytes, **members: Any) -> bytes:
    """Return a record, if data are one, as a later version may write it."""
    number, brace, record = data.partition(b"{")
    if not brace or b'"jsonrpc"' in data:
        return data
    return number + json.dumps({**with_new_members(json.loads(brace + record)), **members}).encode()


def is_of_later_version(entry: Entry) -> Entry:
    return attrs.evolve(entry, data=later(entry.data))


def needs_later_reader(entry: Entry) -> Entry:
    return attrs.evolve(entry, data=later(entry.data, reader=2))


def is_of_later_kind(entry: Entry) -> Entry:
    return attrs.evolve(entry, data=b"?", kind=EntryKind("added later"))


CHANGES = [needs_later_reader, is_of_later_kind]
"""What a later version does to a record that an earlier one must not read."""
each_change = pytest.mark.parametrize("change", CHANGES)


@contextmanager
def records_of_a_later_version(
    store: MemoryStore, change: Callable[[Entry], Entry] = needs_later_reader
) -> Generator[None, None, None]:
    """Let all records of a store need a later reader, for a while."""
    read = MemoryStore.read

    def read_later(
        self: MemoryStore, key: StreamKey, after: int, *, limit: int, max_bytes: int
    ) -> Page | None:
        page = read(self, key, after, limit=limit, max_bytes=max_bytes)
        if page is None or self is not store:
            return page
        return attrs.evolve(page, entries=tuple(map(change, page.entries)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "read", read_later)
        yield


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_each_version_are_read_and_the_newest_form_is_written(name: str) -> None:
    forms = sorted(STORED.glob(f"{name}-*.json"))
    for form in forms:
        assert DECODERS[name](stored(form.name)) == RECORDS[name]
    assert RECORDS[name].encode() == stored(forms[-1].name)


@pytest.mark.parametrize("name", RECORDS)
def test_members_of_a_later_version_are_kept(name: str) -> None:
    new = with_new_members(json.loads(RECORDS[name].encode()))
    record = DECODERS[name](json.dumps({**new, "reader": 1, "unknown": 2}).encode())
    assert attrs.evolve(record, unknown=RECORDS[name].unknown) == RECORDS[name]
    assert json.loads(record.encode()) == {**new, "reader": 1, "unknown": 2}


def test_members_of_a_record_go_with_it() -> None:
    new = with_new_members(json.loads(STARTED.encode()))
    ended = TaskRecord.decode(json.dumps(new).encode()).ended("completed", 3.0)
    members = json.loads(ended.encode())
    assert (members["reentry"], members["status"]) == (None, "completed")
    assert members["com.example/new"] == new["com.example/new"]


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_this_version_must_not_read_is_not_read(name: str) -> None:
    with pytest.raises(RecordTooNewError):
        DECODERS[name](later(RECORDS[name].encode(), reader=2))


SHARED = SharedEntry("i", 7, b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')


def test_heads_of_version_1_are_read_and_written_as_they_were() -> None:
    data = stored("shared-1.txt")
    assert SharedEntry.decode(data) == SHARED
    assert SHARED.encode() == data
    assert write_head(".notify", 3, SHARED.data) == stored("forwarded-1.txt")
    entry = Entry(1, stored("forwarded-1.txt"), kind=EntryKind.FORWARDED)
    assert place_of(entry) == (".notify", 3)


def test_heads_of_entries_may_have_further_words() -> None:
    def with_a_word(name: str) -> bytes:
        head, _, rest = stored(name).partition(b"\n")
        return head + b" new\n" + rest

    assert SharedEntry.decode(with_a_word("shared-1.txt")) == SHARED
    entry = Entry(1, with_a_word("forwarded-1.txt"), kind=EntryKind.FORWARDED)
    assert place_of(entry) == (".notify", 3)


def test_an_entry_of_version_1_that_refreshes_a_log_is_read() -> None:
    data = stored("kept-1.txt")
    assert data == b"2 " + WRITER.encode()
    for each in (data, later(data)):
        declared = WriterDeclaration.of(Entry(3, each, kind=EntryKind.KEPT))
        assert declared is not None
        assert attrs.evolve(declared, unknown=WRITER.unknown) == WRITER
    with pytest.raises(RecordTooNewError):
        WriterDeclaration.of(Entry(3, later(data, reader=2), kind=EntryKind.KEPT))


# At a server, which goes on

SESSION = StreamKey("", "session-of-version-1", RECORD)


def ping_of_stored_session(record: bytes) -> tuple[ServerHarness, RawExchange]:
    """A request of a session whose record is in the store, at an instance that never saw it."""
    harness = ServerHarness(store=MemoryStore(), shared_store=True)
    harness.store.append(SESSION, (Entry(1, record),), token="t", now=0.0)
    return harness, harness.post(PING, SESSION.session)


def test_a_session_of_version_1_is_written_as_it_was() -> None:
    instances = Instances(assume_multi_turn=True)
    session = instances.open_session(capabilities={"elicitation": {}})
    page = instances.store.read(StreamKey("", session, RECORD), 0, limit=9, max_bytes=999)
    assert page is not None
    assert page.last.data == stored("session-1.json")


@pytest.mark.parametrize("change", [bytes, later])
def test_a_session_of_version_1_is_read(change: Callable[[bytes], bytes]) -> None:
    harness, talk = ping_of_stored_session(change(stored("session-1.json")))
    assert talk.status == 200
    (session,) = harness.server.sessions
    assert isinstance(session, LegacySession)
    assert (session.revision.name, session.client_info) == (
        "2025-11-25",
        {"name": "bench", "version": "1"},
    )
    assert (session.client_capabilities, session.multi_turn) == ({"elicitation": {}}, True)


@pytest.mark.parametrize("record", [later(stored("session-1.json"), reader=2), b"[]"])
def test_a_session_that_needs_a_later_reader_is_refused(record: bytes) -> None:
    harness, talk = ping_of_stored_session(record)
    expect(talk, 503, "record_too_new", code=-32603)
    assert harness.server.sessions == ()


INSTANCE = "instance-0-000000000001"
"""The first one of ``Instances`` and ``with_clocks``."""


def test_a_lease_of_version_1_is_written_as_it_was() -> None:
    first, _ = instances = Instances(wall_clock=lambda: 1700000000.5)
    report_progress_all(first, first.call(first.open_session())[1], "a")
    page = instances.store.read(lease_key(INSTANCE), 0, limit=9, max_bytes=999)
    assert page is not None
    assert page.last.data == stored("lease-1.json")


@pytest.mark.parametrize("is_later", [False, True])
def test_the_time_of_a_lease_of_version_1_is_read(is_later: bool) -> None:
    lease = stored("lease-1.json")
    assert lives_with(later(lease) if is_later else lease)


@each_change
def test_the_time_of_a_lease_that_is_too_new_is_not_read(change: Callable[[Entry], Entry]) -> None:
    assert not lives_with(stored("lease-1.json"), change)


def lives_with(lease: bytes, change: Callable[[Entry], Entry] = attrs.evolve) -> bool:
    """Let an instance follow another one, whose entries all say the same time.

    Returns whether it has noticed that the other one's clock is wrong. In any case the entries show
    that the other one is alive.
    """
    first, second = with_clocks(0.0, 0.0)
    _, _, (resumed,) = followed(first, second)
    for number in range(9):
        entry = change(Entry(2 + number, lease))
        first.store.append(lease_key(INSTANCE), (entry,), token=f"{number}", now=first.now)
        wait(LEASE / 3, second)
    assert not resumed.ended
    return differences(second) != []


@each_change
def test_a_session_whose_record_is_too_new_is_refused(change: Callable[[Entry], Entry]) -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    with records_of_a_later_version(instances.store, change):
        expect(second.post(PING, session), 503, "record_too_new", code=-32603)
    assert second.server.sessions == ()
    assert second.post(PING, session).status == first.post(PING, session).status == 200


def test_a_session_that_is_saved_again_keeps_the_members_of_a_later_version() -> None:
    _, second = instances = Instances()
    session = instances.open_session()
    key = StreamKey("", session, RECORD)
    page = instances.store.read(key, 0, limit=9, max_bytes=999)
    assert page is not None
    record = json.loads(page.last.data) | {"com.example/new": 1}
    new = Entry(2, json.dumps(record).encode())
    instances.store.append(key, (new,), token="t", now=0.0)
    second.post(PING, session)
    second.wait(second.server.limits.max_stored_age / 2)
    with records_of_a_later_version(instances.store):
        expect(second.post(PING, session), 503, "record_too_new", code=-32603)
    assert second.post(PING, session).status == 200
    page = instances.store.read(key, 2, limit=9, max_bytes=999)
    assert page is not None
    assert page.last.seq > new.seq
    assert all(json.loads(each.data) == record for each in page.entries)


@pytest.mark.parametrize("is_multi_turn", [False, True])
def test_a_call_that_is_parked_again_keeps_the_members_of_a_later_version(
    is_multi_turn: bool,
) -> None:
    first, second = instances = Instances(assume_multi_turn=is_multi_turn)
    session, _, questions = ask(instances)
    id = next(each["id"] for each in questions if "method" in each)
    turn = EventId.decode(id.rpartition(".")[0])
    assert turn is not None
    answer = result(id, ACCEPTED)
    headers = {"last-event-id": turn.encode()} if is_multi_turn else None
    with records_of_a_later_version(instances.store, is_of_later_version):
        second.post([answer] if is_multi_turn else answer, session, headers=headers)
    second.run_action(second.last_call().respond, InputRequired({"again": NAME}))
    key = StreamKey("", session, turn.stream)
    page = instances.store.read(key, turn.seq, limit=99, max_bytes=9999)
    assert page is not None
    kind = EntryKind.INPUT_REQUIRED if is_multi_turn else EntryKind.TURN
    (record,) = (json.loads(entry.data) for entry in page.entries if entry.kind is kind)
    assert record["rounds"] == 2
    assert record["com.example/new"] == record["request"]["com.example/new"] == {"deep": [[[[]]]]}
    assert not first.server.is_busy


@each_change
def test_responses_to_a_parked_call_that_is_too_new_are_refused(
    change: Callable[[Entry], Entry],
) -> None:
    _, second = instances = Instances()
    session, _, (question,) = ask(instances)
    second.post(PING, session)
    with records_of_a_later_version(instances.store, change):
        expect(second.post(answer_to(question), session), 503, "record_too_new", code=-32603)
    assert second.post(answer_to(question), session).status == 202
    assert second.last_call().handler_input.state == {"saved": [1]}


@each_change
def test_the_reader_of_a_log_that_is_too_new_is_refused(change: Callable[[Entry], Entry]) -> None:
    first, second = instances = Instances()
    session = instances.open_session()
    talk, call = first.call(session)
    report_progress_all(first, call, "a", "b")
    begin = talk.events[0].id
    assert begin is not None
    turn = EventId.decode(begin)
    assert turn is not None
    writer = Entry(4, later(WRITER.encode()), kind=EntryKind.WRITER)
    key = StreamKey("", session, turn.stream)
    instances.store.append(key, (writer,), token="t", now=0.0)
    second.post(PING, session)
    second.get(session, begin)  # it knows the session
    with records_of_a_later_version(instances.store, change):
        expect(second.get(session, begin), 503, "record_too_new", code=-32603)
    assert second.get(session, begin).status == 200


def test_a_log_whose_writer_is_too_new_is_not_ended() -> None:
    first, second = instances = Instances()
    _, _, (resumed,) = followed(first, second)
    with records_of_a_later_version(instances.store):
        wait(3 * LEASE, second)
        assert not resumed.ended
    wait(3 * LEASE, second)
    assert reason_of(resumed) == "instance_lost"


def test_publications_of_a_later_kind_are_passed_over() -> None:
    first, second = instances = Instances()
    listener = second.get(second.open_session())
    first.run_action(first.server.publish, "notifications/tools/list_changed")
    log = StreamKey("", ".publish", "log")
    page = instances.store.read(log, 0, limit=9, max_bytes=999)
    assert page is not None
    later = is_of_later_kind(Entry(page.last.seq + 1, b""))
    assert instances.store.append(log, (later,), token="t", now=0.0) is AppendResult.STORED
    first.run_action(first.server.publish, "notifications/prompts/list_changed")
    instances.wait(0.5)
    kinds = ("tools", "prompts")
    assert methods(listener) == [f"notifications/{kind}/list_changed" for kind in kinds]


@each_change
@pytest.mark.parametrize("method", [GET, UPDATE, CANCEL])
def test_a_request_about_a_task_that_is_too_new_is_refused(
    method: str, change: Callable[[Entry], Entry]
) -> None:
    first, second = instances = TaskInstances()
    id, call = first.new_task()
    first.ask_input(call, name=NAME)
    with records_of_a_later_version(instances.store, change):
        talk = second.about(method, id, inputResponses={"1.name": ADA})
        assert talk.error["data"]["reason"] == "record_too_new"
        talk = second.listen(id)
        assert (talk.status, talk.error["data"]["reason"]) == (503, "record_too_new")
    assert second.status(id) == "input_required"


def test_a_task_that_is_changed_keeps_the_members_of_a_later_version() -> None:
    first, second = instances = TaskInstances()
    id, _ = first.new_task()
    key = task_key("", id)
    page = instances.store.read(key, 0, limit=9, max_bytes=9999)
    assert page is not None
    new = Entry(page.last.seq + 1, later(page.last.data))
    instances.store.append(key, (new,), token="t", now=0.0)
    second.cancel(id)
    page = instances.store.read(key, new.seq, limit=9, max_bytes=9999)
    assert page is not None
    assert json.loads(page.last.data)["com.example/new"] == {"deep": [[[[]]]]}
    assert first.status(id) == "cancelled"
