"""Streams under any interleaving of writer, readers and store, against a list as the model.

The rules act in any order: messages are appended, the store completes or does not yet, readers come
with any cursor they have seen, leave, stop pulling and go on. Whatever happens, what a reader has
been sent is exactly what follows its cursor.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sansmcp import EventId, Limits, ServerCall, StreamKey

from ..server.harness import RawExchange, ServerHarness


class Reader:
    """An exchange that reads, and the place it began at."""

    def __init__(self, talk: RawExchange, after: int) -> None:
        self.talk = talk
        self.after = after


class StreamsAgainstAList(RuleBasedStateMachine):
    """One call's stream, and every reader it ever had."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = ServerHarness(
            store_works=False, limits=Limits(max_unsent_bytes=300, replay_page_entries=2)
        )
        self.session = self.harness.open_session()
        self.said: list[str] = []
        self.readers: list[Reader] = []
        self.call: ServerCall

    @initialize()
    def begin(self) -> None:
        talk, self.call = self.harness.call(self.session)
        self.readers.append(Reader(talk, 0))
        self.say()

    @property
    def token(self) -> str:
        first = EventId.decode(self.readers[0].talk.events[0].last_event_id)
        assert first is not None
        return first.stream

    @rule()
    @precondition(lambda self: self.call.is_running)
    def say(self) -> None:
        name = f"m{len(self.said)}"
        self.said.append(name)
        self.harness.run_action(self.call.notify, name)

    @rule()
    @precondition(lambda self: self.call.is_running and len(self.said) > 3)
    def answer(self) -> None:
        self.said.append("answer")
        self.harness.run_action(self.call.respond, {})

    @rule(count=st.integers(1, 3))
    def store_works(self, count: int) -> None:
        for _ in range(min(count, len(self.harness.waiting))):
            self.harness.use_store_once()

    @rule(back=st.integers(0, 5))
    def come_back(self, back: int) -> None:
        """A client that has seen some of the stream comes for the rest."""
        seen = max(
            (reader.after + len(received(reader.talk)) for reader in self.readers), default=0
        )
        after = max(0, seen - back)
        talk = self.harness.get(self.session, EventId(self.token, after).encode())
        self.readers.append(Reader(talk, after))

    @rule()
    def leave(self) -> None:
        talk = self.readers[-1].talk
        if not talk.ended:
            talk.reads = True
            talk.lose_connection()

    @rule()
    @precondition(lambda self: self.call.is_running)
    def let_go(self) -> None:
        self.harness.run_action(self.call.disconnect, retry=1)

    @rule(reads=st.booleans())
    def stop_or_go(self, reads: bool) -> None:
        talk = self.readers[-1].talk
        talk.reads = reads
        talk.pull()
        self.harness.run_pending()

    @invariant()
    def every_reader_got_what_follows_its_cursor(self) -> None:
        for reader in self.readers:
            assert reader.talk.status in (None, 200)
            got = received(reader.talk)
            assert got == self.said[reader.after : reader.after + len(got)]

    @invariant()
    def nothing_is_sent_before_it_is_stored(self) -> None:
        for reader in self.readers:
            if received(reader.talk):
                last = EventId.decode(reader.talk.last_id)
                assert last is not None
                page = self.harness.store.read(self.key(), 0, limit=1000, max_bytes=10**9)
                assert page is not None
                assert last.seq <= page.last.seq

    @invariant()
    def what_waits_is_bounded(self) -> None:
        for reader in self.readers:
            assert reader.talk.exchange.unsent < 1000

    def key(self) -> StreamKey:
        return StreamKey("", self.session, self.token)

    def teardown(self) -> None:
        """In the end a reader that comes gets everything, and it ends."""
        if not self.readers:
            return
        if self.call.is_running:
            self.said.append("answer")
            self.harness.run_action(self.call.respond, {})
        while self.harness.waiting:
            self.harness.use_store_once()
        talk = self.harness.get(self.session, EventId(self.token, 0).encode())
        for _ in range(10 + len(self.said)):  # events of a burst leave after a millisecond
            while self.harness.waiting:
                self.harness.use_store_once()
            self.harness.wait(0.001)
        assert received(talk) == self.said
        assert talk.ended


def received(talk: RawExchange) -> list[str]:
    if talk.head is None:
        return []
    return [message.get("method", "answer") for message in talk.messages]


TestStreams = StreamsAgainstAList.TestCase
TestStreams.settings = settings(stateful_step_count=40)
