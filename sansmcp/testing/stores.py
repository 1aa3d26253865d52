"""Check that a store of your own fulfils the contract of :class:`sansmcp.Store`.

    def test_my_store(tmp_path):
        numbers = itertools.count()

        def new_store(limits, clock):
            return MyStore(tmp_path / str(next(numbers)), limits, clock)

        check_store(new_store)

    def test_shared_files(tmp_path):
        check_shared_store(MyStore(tmp_path / "a"), MyStore(tmp_path / "a"))

An asynchronous store is checked in the event loop of your choice: pass ``run``, a function that
runs a coroutine, such as ``loop.run_until_complete``.

MemoryStore is the model: below the limits, another store has to return what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

import attrs

from ..drivers.store_checks import has_secret, is_async_store, is_durable
from ..limits import Limits
from ..memory_store import MemoryStore
from ..rates import RateLimit, RateStore
from ..store import (
    AppendResult,
    AsyncStore,
    Entry,
    EntryKind,
    Page,
    Store,
    StreamKey,
    WatchableStore,
)
from .clock import VirtualClock

NewStore: TypeAlias = Callable[[Limits, Callable[[], float]], Store | AsyncStore]
"""Returns a new empty store. The clock is for stores that read the time themselves."""

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine, and returns or raises what it does."""

Wait: TypeAlias = Callable[[Callable[[], bool]], object]
"""Waits until a function returns True, or until it has waited for long enough."""

KEY = StreamKey("principal", "session", "stream")
STRANGERS = (
    StreamKey("Principal", "session", "stream"),
    StreamKey("", "session", "stream"),
    StreamKey("principal", "session ", "stream"),
    StreamKey("principal", "", "stream"),
    StreamKey("principal", "session", "strea"),
    StreamKey("principals", "ession", "stream"),
    StreamKey("prüncipal", "session", "stream.1"),
)
ALL = 10**9

STORED, CONFLICT, BEHIND = AppendResult


def check_store(
    new_store: NewStore, *, single: bool = True, run: Run | None = None, wait: Wait | None = None
) -> None:
    """Raise AssertionError if a store does not fulfil the contract of its kind.

    The kinds are :class:`sansmcp.Store` and :class:`sansmcp.AsyncStore`.

    Args:
        new_store: makes an empty store, many times. Close them afterwards, if they need it.
        single: True for a store in one place. False for one that is distributed over several
            places, none of which knows how much the others hold: its bounds hold for each log and
            session, it may keep entries until their log is old, and it may believe its clock.
        run: runs a coroutine of an asynchronous store.
        wait: waits for a change to be told (:class:`sansmcp.WatchableStore`), which may come from
            another thread: until the function that it gets returns True, or for some seconds. None
            for a store that tells of changes before ``append`` returns.
    """
    subject = StoreUnderTest(new_store, run=run, wait=wait)
    for check in STORE_CHECKS + (SINGLE_STORE_CHECKS if single else ()):
        check(subject)


def check_shared_store(
    first: Store | AsyncStore,
    second: Store | AsyncStore,
    *,
    run: Run | None = None,
    wait: Wait | None = None,
) -> None:
    """Raise AssertionError unless two objects of one empty store show the same, at once.

    Args:
        first: an object of the store.
        second: another one, or the same.
        run: runs a coroutine of an asynchronous store.
        wait: waits for a change to be told; see :func:`check_store`.
    """
    one, two = OpenStore(first, run), OpenStore(second, run)
    told = _Told(wait)
    end = two.watch(KEY, told)
    if end is not None:
        told.expect("when the watch works")
    one.append(KEY, _entries(1, 2), "a")
    if end is not None:
        told.expect("after an append by another object")
    two.has(KEY, _entries(1, 2))
    two.append(KEY, _entries(1, 2), "a")
    two.append(KEY, _entries(3), "b")
    one.append(KEY, _entries(3, 4), "c", CONFLICT)
    one.append(KEY, _entries(3), "b")
    one.append(KEY, _entries(4), "c")
    for store in (one, two):
        store.has(KEY, _entries(1, 2, 3, 4))
    one.drop(KEY)
    if end is not None:
        told.expect("after a drop by another object")
    two.has(KEY, ())
    assert is_durable(first) == is_durable(second), "all ways to one store have one is_durable"
    limit = RateLimit(0.001, 2)
    waits = [store.take("bucket", 1, limit, now=0.0) for store in (one, two, one)]
    assert waits[:2] in ([0.0, 0.0], [None, None])
    assert waits[2] != 0.0, "take(): both objects have the same buckets"
    if end is not None:
        end()


class OpenStore:
    """A store of either kind, whose operations are checked for their results."""

    def __init__(self, store: Store | AsyncStore, run: Run | None) -> None:
        try:
            is_async = is_async_store(store)
        except TypeError as error:
            raise AssertionError(str(error)) from error
        assert run is not None or not is_async, (
            "the store is asynchronous: pass run=, for instance loop.run_until_complete"
        )
        self.store = store
        self._run: Callable[[Any], Any] = run if is_async and run is not None else _as_it_is
        self._appends = 0

    def try_append(
        self, key: StreamKey, entries: tuple[Entry, ...], token: str = "", now: float = 0.0
    ) -> AppendResult:
        """Append, with a token of its own unless one is given."""
        self._appends += 1
        token = token or f"append {self._appends}"
        result: object = self._run(self.store.append(key, entries, token=token, now=now))
        assert isinstance(result, AppendResult), (
            f"append() must return an AppendResult, got {type(result).__name__}"
        )
        return result

    def append(
        self,
        key: StreamKey,
        entries: tuple[Entry, ...],
        token: str = "",
        expected: AppendResult = STORED,
        *,
        now: float = 0.0,
    ) -> None:
        """Append, and expect a result."""
        result = self.try_append(key, entries, token, now)
        seqs = [entry.seq for entry in entries]
        assert result is expected, f"append of {seqs}: got {result.name}, and not {expected.name}"

    def read(
        self, key: StreamKey, after: int = 0, limit: int = ALL, max_bytes: int = ALL
    ) -> Page | None:
        """Read a page."""
        page: object = self._run(self.store.read(key, after, limit=limit, max_bytes=max_bytes))
        assert page is None or isinstance(page, Page), (
            f"read() must return a Page or None, got {type(page).__name__}"
        )
        return page

    def has(self, key: StreamKey, entries: Iterable[Entry]) -> None:
        """Expect that a log has these entries; none: that it does not exist."""
        entries = list(entries)
        expected = (entries, entries[-1].seq) if entries else None
        _same(_seen(self.read(key)), expected)

    def drop(self, key: StreamKey) -> None:
        """Delete the session of a log."""
        self._run(self.store.drop(key.principal, key.session))

    def take(self, bucket: str, count: int, limit: RateLimit, *, now: float) -> float | None:
        """Take tokens from a bucket. Returns None if the store counts nothing."""
        if not isinstance(self.store, RateStore):
            return None
        wait: object = self._run(self.store.take(bucket, count, limit, now=now))
        assert isinstance(wait, int | float), "take() must return a number"
        return wait

    def watch(self, key: StreamKey, changed: Callable[[], None]) -> Callable[[], None] | None:
        """Watch a log. Returns the function that ends that; None if the store cannot tell."""
        if not isinstance(self.store, WatchableStore):
            return None
        end: object = self.store.watch(key, changed)
        assert callable(end), "watch() must return a function"
        return end


@attrs.frozen
class StoreUnderTest:
    """Makes the stores that a check uses."""

    new_store: NewStore
    run: Run | None = None
    wait: Wait | None = None

    def open(
        self, limits: Limits | None = None, clock: Callable[[], float] = lambda: 0.0
    ) -> OpenStore:
        """Make an empty store."""
        return OpenStore(self.new_store(limits or Limits(), clock), self.run)


class _Told:
    """A function for ``watch()``."""

    def __init__(self, wait: Wait | None) -> None:
        self._wait = wait
        self._count = 0
        self._expected = 0

    def __call__(self) -> None:
        self._count += 1

    def expect(self, when: str) -> None:
        """Wait for a call that has not been expected before."""
        if self._wait is not None:
            self._wait(lambda: self._count > self._expected)
        assert self._count > self._expected, f"watch(): changed() must be called {when}"
        self._expected = self._count


def is_of_one_kind(subject: StoreUnderTest) -> None:
    """Its methods are all plain, or all async def; is_durable is a bool, secret are bytes."""
    store = subject.open()
    store.append(KEY, _entries(1))
    assert isinstance(store.read(KEY), Page)
    assert store.read(STRANGERS[0]) is None
    store.drop(KEY)
    plain = store.store
    assert isinstance(getattr(plain, "is_durable", False), bool), "is_durable must be a bool"
    assert has_secret(plain) or not hasattr(plain, "secret"), "secret must be bytes"


def keeps_everything(subject: StoreUnderTest) -> None:
    """It gives back all entries, whatever their data and kind, in pages of any size."""
    store = subject.open()
    entries = [
        Entry(seq, data, kind=kind)
        for seq, (kind, data) in enumerate(
            [(kind, data) for kind in EntryKind for data in (b"", b"\x00\xff\n", b"{}" * 5000)], 1
        )
    ]
    last = Entry(len(entries) + 1, b"last", final=True)
    store.append(KEY, tuple(entries))
    store.append(KEY, (last,))
    for after in range(last.seq + 2):
        page = store.read(KEY, after, limit=3)
        _same(_seen(page), ([*entries, last][after : after + 3], last.seq))
        assert page is not None
        assert (page.last.final, page.last.kind) == (True, EntryKind.MESSAGE)
    page = store.read(KEY, 2, limit=9, max_bytes=1)
    _same(_seen(page), (entries[2:3], last.seq), "one entry at least, however large")
    assert store.read(KEY, 0, limit=9, max_bytes=len(entries[1].data)) is not None


def lets_one_succeed(subject: StoreUnderTest) -> None:
    """Of all who append the same number one succeeds; the others change nothing."""
    store = subject.open()
    store.append(KEY, _entries(5, 6))  # a log may begin anywhere
    for taken in (_entries(6), _entries(5), _entries(1), _entries(6, 7)):
        store.append(KEY, taken, expected=CONFLICT)
    store.has(KEY, _entries(5, 6))
    store.append(KEY, _entries(7))
    store.has(KEY, _entries(5, 6, 7))


def tells_that_it_is_behind(subject: StoreUnderTest) -> None:
    """It appends nothing where the log ends before the number that precedes the first one."""
    store = subject.open()
    store.append(KEY, _entries(1, 2))
    for ahead in (_entries(4), _entries(9, 10)):
        store.append(KEY, ahead, expected=BEHIND)
    store.has(KEY, _entries(1, 2))
    store.append(KEY, _entries(3, 4))
    store.has(KEY, _entries(1, 2, 3, 4))


def recognises_a_repeated_append(subject: StoreUnderTest) -> None:
    """An append that is repeated with its token counts as stored, and changes nothing."""
    store = subject.open()
    store.append(KEY, _entries(1, 2), "a")
    for _ in range(2):
        store.append(KEY, _entries(1, 2), "a")
    store.append(KEY, _entries(1, 2), "b", CONFLICT)
    store.append(KEY, _entries(3), "b")
    store.append(KEY, _entries(3), "b")
    store.append(KEY, _entries(4, 5, 6), "c")
    store.append(KEY, _entries(4, 5, 6), "c")
    store.append(KEY, _entries(6), "d", CONFLICT)
    store.has(KEY, _entries(1, 2, 3, 4, 5, 6))
    store.append(KEY, _entries(7), "d")


def keeps_logs_apart(subject: StoreUnderTest) -> None:
    """A log of another principal, session or name is another log."""
    store = subject.open()
    store.append(KEY, _entries(1))
    for stranger in STRANGERS:
        store.has(stranger, ())
        store.drop(StreamKey(stranger.principal, stranger.session + "x", ""))
        store.append(stranger, _entries(1, 2))
    store.drop(STRANGERS[0])
    store.has(STRANGERS[0], ())
    store.has(STRANGERS[1], _entries(1, 2))
    store.has(KEY, _entries(1))
    store.drop(KEY)
    for gone in (KEY, STRANGERS[4]):
        store.has(gone, ())
    store.append(KEY, _entries(4))  # it begins anew
    store.has(KEY, _entries(4))


def does_what_the_model_does(subject: StoreUnderTest) -> None:
    """It answers as MemoryStore does, as long as there is room and nothing grows old."""
    for seed in range(10):
        _follow_the_model(subject, _SeededRandom(seed), (0,))


def grows_old_as_the_model_does(subject: StoreUnderTest) -> None:
    """It answers as MemoryStore does when what it keeps grows old."""
    for seed in range(10):
        _follow_the_model(subject, _SeededRandom(seed), (0, 0, 1, 8))


def _follow_the_model(
    subject: StoreUnderTest, die: _SeededRandom, pauses: tuple[float, ...]
) -> None:
    limits = Limits(max_stored_age=30)
    clock = VirtualClock()
    store = subject.open(limits, lambda: clock.now)
    model = OpenStore(MemoryStore(limits), None)
    keys = [StreamKey("", f"session {number}", "stream") for number in range(3)]
    last = dict.fromkeys(keys, 0)
    for step in range(60):
        clock.now += pauses[die.roll(len(pauses))]
        key = keys[die.roll(3)]
        first = max(1, last[key] + (1, 1, 1, 2, 0)[die.roll(5)])
        entries = tuple(
            Entry(seq, b"x" * die.roll(12), final=die.roll(5) == 0)
            for seq in range(first, first + 1 + die.roll(3))
        )
        token = f"append {step}"
        result = model.try_append(key, entries, token, clock.now)
        store.append(key, entries, token, result, now=clock.now)
        if die.roll(3) == 0:
            repeated = model.try_append(key, entries, token, clock.now)
            store.append(key, entries, token, repeated, now=clock.now)
        if result is STORED:
            last[key] = entries[-1].seq
        if die.roll(20) == 0:
            model.drop(key)
            store.drop(key)
        for each in keys:
            after, limit, most = die.roll(last[each] + 2), 1 + die.roll(5), die.roll(30)
            expected = model.read(each, after, limit, most)
            _same(_seen(store.read(each, after, limit, most)), _seen(expected))


def bounds_each_log_and_session(subject: StoreUnderTest) -> None:
    """It keeps no more of a log or session than its limits say; what is left is the end."""
    for limits in (Limits(max_stored_entries=12), Limits(max_stored_bytes=40_000)):
        store = subject.open(limits)
        keys = [StreamKey("", "session", f"stream {number}") for number in range(3)]
        for seq in range(1, 30):
            for key in keys:
                store.append(key, (Entry(seq, bytes(1000)),))
                kept = _end_of(store, key, seq)
                assert len(kept) <= limits.max_stored_entries
            size = sum(_size_of(store, key) for key in keys)
            assert size <= limits.max_stored_bytes, f"a session of {size} bytes"


def stays_within_its_bounds(subject: StoreUnderTest) -> None:
    """It keeps no more than its limits say, of all sessions together."""
    for limits in (Limits(max_stored_entries=12), Limits(max_stored_bytes=40_000)):
        store = subject.open(limits)
        keys = [StreamKey("", f"session {number}", "stream") for number in range(3)]
        for seq in range(1, 30):
            for key in keys:
                store.append(key, (Entry(seq, bytes(1000)),))
                _end_of(store, key, seq)
            pages = [store.read(key) for key in keys]
            count = sum(len(page.entries) for page in pages if page is not None)
            assert count <= limits.max_stored_entries, f"{count} entries"
            size = sum(_size_of(store, key) for key in keys)
            assert size <= limits.max_stored_bytes, f"{size} bytes"


def _end_of(store: OpenStore, key: StreamKey, last: int) -> list[int]:
    """Expect that a log has its last entries. Returns their numbers."""
    page = store.read(key)
    assert page is not None, "what was appended last is kept"
    assert page.last.seq == last
    seqs = [entry.seq for entry in page.entries]
    assert seqs == list(range(last + 1 - len(seqs), last + 1)), "what is left of a log is its end"
    return seqs


def _size_of(store: OpenStore, key: StreamKey) -> int:
    page = store.read(key)
    return 0 if page is None else sum(len(entry.data) for entry in page.entries)


def lets_who_uses_most_give_way(subject: StoreUnderTest) -> None:
    """Who uses little loses nothing by another principal, or by another session of its own."""
    for limits in (Limits(max_stored_entries=60), Limits(max_stored_bytes=100_000)):
        for flooded in ("other", KEY.principal):
            store = subject.open(limits)
            store.append(KEY, _entries(1, 2))
            for number in range(150):
                key = StreamKey(flooded, "flooded", f"stream {number}")
                store.append(key, (Entry(1, bytes(900)),))
            store.has(KEY, _entries(1, 2))
        store = subject.open(limits)
        store.append(KEY, _entries(1, 2))
        for number in range(150):  # opening many sessions does not help the other principal
            store.append(StreamKey("other", f"session {number}", "stream"), (Entry(1, bytes(900)),))
        store.has(KEY, _entries(1, 2))


def forgets_what_is_old(subject: StoreUnderTest) -> None:
    """A log to which nothing was appended for long goes, while its session is in use."""
    clock = VirtualClock()
    store = subject.open(Limits(max_stored_age=90), lambda: clock.now)
    other = StreamKey(KEY.principal, KEY.session, "other")
    store.append(KEY, _entries(1), now=clock.now)
    for seq in range(1, 10):
        clock.now += 20
        store.append(other, _entries(seq), now=clock.now)
        if clock.now <= 80:
            store.has(KEY, _entries(1))
    store.has(KEY, ())


def survives_a_clock_that_jumps(subject: StoreUnderTest) -> None:
    """What was stored shortly before a jump is kept, and what grows old after it goes."""
    for jump in (3600, -3600):
        _jump(subject, jump)


def _jump(subject: StoreUnderTest, jump: float) -> None:
    clock = VirtualClock()
    store = subject.open(Limits(max_stored_age=90), lambda: clock.now)
    other = StreamKey("", "other", "stream")
    store.append(KEY, _entries(1), now=clock.now)
    clock.now += jump
    store.append(other, _entries(1), now=clock.now)
    store.append(KEY, _entries(2), now=clock.now)
    store.has(KEY, _entries(1, 2))
    for seq in range(2, 10):
        clock.now += 20
        store.append(other, _entries(seq), now=clock.now)
    store.has(KEY, ())


def tells_of_changes(subject: StoreUnderTest) -> None:
    """If it has watch(): it tells when the watch works, and after each append and each drop."""
    store = subject.open()
    told, again, other = (_Told(subject.wait) for _ in range(3))
    end = store.watch(KEY, told)
    if end is None:
        return
    told.expect("when the watch works")
    for seq in (1, 2):
        store.append(KEY, _entries(seq))
        told.expect("after each append")
    end_again = store.watch(KEY, again)
    end_other = store.watch(STRANGERS[4], other)
    assert end_again is not None
    assert end_other is not None
    again.expect("when a second watch of the log works")
    other.expect("when the watch of another log works")
    end()
    end()
    for seq in (3, 4):
        store.append(KEY, _entries(seq))
        again.expect("although another watch of the log has ended")
    store.append(STRANGERS[4], _entries(1))
    other.expect("after an append to another log")
    store.drop(KEY)
    again.expect("after a drop of the session")
    other.expect("after a drop of its session, for each log")
    end_again()
    end_other()


def counts_requests(subject: StoreUnderTest) -> None:
    """Its buckets hold what their limit says, and fill again; see RateStore."""
    clock = VirtualClock()
    store = subject.open(clock=lambda: clock.now)
    limit = RateLimit(0.5, 3)

    def take(count: int, expected: float, bucket: str = "principal alice") -> None:
        wait = store.take(bucket, count, limit, now=clock.now)
        if wait is not None:
            text = f"take() of {count} must return {expected} and not {wait}"
            assert abs(wait - expected) < 0.001, text

    for count in (1, 2):
        take(count, 0.0)
    for _ in range(2):
        take(1, 2.0)  # what is refused takes nothing
    take(3, 6.0)
    take(4, 0.0, "principal bob")  # more than a bucket holds count as all of it
    clock.now += 2
    take(2, 2.0)
    take(1, 0.0)
    take(1, 2.0)
    clock.now += 1000
    take(3, 0.0)
    take(1, 2.0)


StoreCheck: TypeAlias = Callable[[StoreUnderTest], None]

STORE_CHECKS: tuple[StoreCheck, ...] = (
    is_of_one_kind,
    keeps_everything,
    lets_one_succeed,
    tells_that_it_is_behind,
    recognises_a_repeated_append,
    keeps_logs_apart,
    does_what_the_model_does,
    bounds_each_log_and_session,
    lets_who_uses_most_give_way,
    forgets_what_is_old,
    tells_of_changes,
    counts_requests,
)
"""What every store promises, by functions that say it."""

SINGLE_STORE_CHECKS: tuple[StoreCheck, ...] = (
    stays_within_its_bounds,
    grows_old_as_the_model_does,
    survives_a_clock_that_jumps,
)
"""What a store promises besides if it is in one place."""


class _SeededRandom:
    """Pseudo-random numbers that are the same in every run and on every Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def roll(self, sides: int) -> int:
        """Return a number from 0 to below ``sides``."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % sides


def _entries(*seqs: int) -> tuple[Entry, ...]:
    return tuple(Entry(seq, b"entry %d" % seq) for seq in seqs)


def _seen(page: Page | None) -> tuple[list[Entry], int] | None:
    return None if page is None else (list(page.entries), page.last.seq)


def _same(got: object, wanted: object, why: str = "read") -> None:
    assert got == wanted, f"{why}: got {got!r}, and not {wanted!r}"


def _as_it_is(result: Any) -> Any:
    return result
