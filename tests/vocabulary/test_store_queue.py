"""The queue of an asynchronous store: order in each log, overlap of different ones, and a bound."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sansmcp import Entry, RateLimit, StreamKey
from sansmcp.drivers.store_queue import StoreQueue
from sansmcp.effects import StoreAppend, StoreDrop, StoreEffect, StoreRead, StoreTake

LOGS = st.builds(
    StreamKey, st.just(""), st.sampled_from(["session", "session", "other"]), st.sampled_from("xyz")
)


def append(key: StreamKey, seq: int) -> StoreAppend:
    return StoreAppend(stream=key, entries=(Entry(seq, b""),), token=str(seq))


def read(key: StreamKey, seq: int) -> StoreRead:
    return StoreRead(stream=key, after=seq, limit=1, max_bytes=1)


def drop(key: StreamKey, _: int) -> StoreDrop:
    return StoreDrop(principal=key.principal, session=key.session)


def take(key: StreamKey, _: int) -> StoreTake:
    return StoreTake(bucket=key.principal, count=1, limit=RateLimit(1, 1))


def session_of(effect: StoreEffect) -> tuple[str, str]:
    if isinstance(effect, StoreDrop):
        return effect.principal, effect.session
    assert not isinstance(effect, StoreTake)
    return effect.stream.principal, effect.stream.session


def must_wait_for(effect: StoreEffect, earlier: StoreEffect) -> bool:
    """The model: what is of one log, or of a session that is dropped, is done in order."""
    if isinstance(effect, StoreTake) or isinstance(earlier, StoreTake):
        return False
    if isinstance(effect, StoreDrop) or isinstance(earlier, StoreDrop):
        return session_of(effect) == session_of(earlier)
    return effect.stream == earlier.stream


class Queue(RuleBasedStateMachine):
    """A queue beside a plain list of what is not finished, in the order in which it came."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = StoreQueue(4)
        self.unfinished: list[StoreEffect] = []
        self.started: list[StoreEffect] = []
        self.count = 0

    @rule(key=LOGS, make=st.sampled_from([append, read, append, read, drop, take]))
    def add(self, key: StreamKey, make: Callable[[StreamKey, int], StoreEffect]) -> None:
        self.count += 1
        effect = make(key, self.count)
        self.unfinished.append(effect)
        self.queue.add(effect)

    @rule()
    def start(self) -> None:
        effect = self.queue.start_next()
        if effect is None:
            assert len(self.started) == 4 or not self._startable(), "nothing waits without cause"
            return
        assert len(self.started) < 4
        assert any(each is effect for each in self._startable())
        self.started.append(effect)

    @precondition(lambda self: self.started)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        effect = self.started.pop(data.draw(st.integers(0, len(self.started) - 1)))
        self.unfinished = [each for each in self.unfinished if each is not effect]
        self.queue.finish(effect)

    def _startable(self) -> list[StoreEffect]:
        """What waits, and has to wait for nothing that came before."""
        return [
            effect
            for index, effect in enumerate(self.unfinished)
            if not any(each is effect for each in self.started)
            and not any(must_wait_for(effect, each) for each in self.unfinished[:index])
        ]

    @invariant()
    def counts_all(self) -> None:
        assert len(self.queue) == len(self.unfinished)

    def teardown(self) -> None:
        """Nothing is lost: all that was added is started at last, and nothing is kept."""
        while self.unfinished:
            while (effect := self.queue.start_next()) is not None:
                self.started.append(effect)
            assert self.started, "what waits is started at last"
            done = self.started.pop(0)
            self.unfinished = [each for each in self.unfinished if each is not done]
            self.queue.finish(done)
        assert len(self.queue) == 0
        assert self.queue._sessions == {}  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=6 * settings().max_examples, stateful_step_count=30)


@given(st.integers(1, 50))
def test_different_logs_overlap_up_to_the_bound(count: int) -> None:
    queue = StoreQueue(8)
    for number in range(count):
        queue.add(append(StreamKey("", "s", f"log {number}"), number))
    started = 0
    while queue.start_next() is not None:
        started += 1
    assert started == min(count, 8)


def test_what_comes_after_a_drop_that_waits_is_done_after_it() -> None:
    queue = StoreQueue(8)
    before = append(StreamKey("", "session", "x"), 1)
    dropped = drop(before.stream, 2)
    after = append(StreamKey("", "session", "y"), 1)
    for effect in (before, dropped, after):
        queue.add(effect)
    for effect in (before, dropped, after):
        assert queue.start_next() is effect
        assert queue.start_next() is None
        queue.finish(effect)
    assert len(queue) == 0
