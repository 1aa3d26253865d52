"""Check that a store of your own fulfils the contract of :class:`sansmcp.Store`.

    def test_my_store(tmp_path):
        numbers = itertools.count()

        def new_store(limits, clock):
            return MyStore(tmp_path / str(next(numbers)), limits, clock)

        check_store(new_store)

    def test_shared_files(tmp_path):
        check_shared_store(MyStore(tmp_path / "a"), MyStore(tmp_path / "a"))

MemoryStore is the model: below the limits, another store has to return what it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..drivers.store_checks import has_secret, is_durable
from ..limits import Limits
from ..memory_store import MemoryStore
from ..store import Entry, EntryKind, Page, Store, StreamKey
from .clock import VirtualClock

NewStore: TypeAlias = Callable[[Limits, Callable[[], float]], Store]
"""Returns a new empty store. The clock is for stores that read the time themselves."""

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


def check_store(new_store: NewStore) -> None:
    """Raise AssertionError if a store does not fulfil the contract of :class:`sansmcp.Store`."""
    for check in STORE_CHECKS:
        check(new_store)


def check_shared_store(first: Store, second: Store) -> None:
    """Raise AssertionError unless two objects of one empty store return the same, at once."""
    assert first.append(KEY, _entries(1, 2), now=0)
    _same(_seen(second.read(KEY, 0, limit=9, max_bytes=ALL)), (list(_entries(1, 2)), 2))
    assert second.append(KEY, _entries(3), now=0)
    assert not first.append(KEY, _entries(3, 4), now=0), "only one of two may succeed"
    assert first.append(KEY, _entries(4), now=0)
    for store in (first, second):
        _same(_seen(store.read(KEY, 2, limit=9, max_bytes=ALL)), (list(_entries(3, 4)), 4))
    second.drop(KEY.principal, KEY.session)
    assert first.read(KEY, 0, limit=9, max_bytes=ALL) is None
    for store in (first, second):
        other = second if store is first else first
        assert is_durable(store) == is_durable(other), "all ways to one store have one is_durable"


def is_synchronous(new_store: NewStore) -> None:
    """Methods are synchronous; append gives a bool, read a Page or None, is_durable is a bool."""
    store = new_store(Limits(), lambda: 0.0)
    check_synchronous(store)
    assert store.append(KEY, _entries(1), now=0) is True
    assert store.append(KEY, _entries(1), now=0) is False
    assert isinstance(store.read(KEY, 0, limit=1, max_bytes=1), Page)
    assert store.read(STRANGERS[0], 0, limit=1, max_bytes=1) is None
    assert isinstance(getattr(store, "is_durable", False), bool), "is_durable must be a bool"
    assert has_secret(store) or not hasattr(store, "secret"), "secret must be bytes"


def keeps_everything(new_store: NewStore) -> None:
    """It returns all entries, whatever their data and kind, in pages of any size."""
    store = new_store(Limits(), lambda: 0.0)
    entries = [
        Entry(seq, data, kind=kind)
        for seq, (kind, data) in enumerate(
            [(kind, data) for kind in EntryKind for data in (b"", b"\x00\xff\n", b"{}" * 5000)], 1
        )
    ]
    last = Entry(len(entries) + 1, b"last", final=True)
    assert store.append(KEY, tuple(entries), now=0)
    assert store.append(KEY, (last,), now=0)
    for after in range(last.seq + 2):
        page = store.read(KEY, after, limit=3, max_bytes=ALL)
        _same(_seen(page), ([*entries, last][after : after + 3], last.seq))
        assert page is not None
        assert (page.last.final, page.last.kind) == (True, EntryKind.MESSAGE)
    page = store.read(KEY, 2, limit=9, max_bytes=1)
    _same(_seen(page), (entries[2:3], last.seq), "one entry at least, however large")
    assert store.read(KEY, 0, limit=9, max_bytes=len(entries[1].data)) is not None


def lets_one_succeed(new_store: NewStore) -> None:
    """Of several appends of one number, one succeeds; the others change nothing."""
    store = new_store(Limits(), lambda: 0.0)
    assert store.append(KEY, _entries(5, 6), now=0), "a log may begin anywhere"
    for wrong in (_entries(6), _entries(5), _entries(1), _entries(8), _entries(6, 7)):
        assert not store.append(KEY, wrong, now=0)
    _same(_seen(store.read(KEY, 4, limit=9, max_bytes=ALL)), (list(_entries(5, 6)), 6))
    assert store.append(KEY, _entries(7), now=0)


def keeps_logs_apart(new_store: NewStore) -> None:
    """A log of another principal, session or name is another log."""
    store = new_store(Limits(), lambda: 0.0)
    assert store.append(KEY, _entries(1), now=0)
    for stranger in STRANGERS:
        assert store.read(stranger, 0, limit=9, max_bytes=ALL) is None
        store.drop(stranger.principal, stranger.session + "x")
        assert store.append(stranger, _entries(1, 2), now=0)
    store.drop(STRANGERS[0].principal, STRANGERS[0].session)
    assert store.read(STRANGERS[0], 0, limit=9, max_bytes=ALL) is None
    _same(_seen(store.read(STRANGERS[1], 0, limit=9, max_bytes=ALL)), (list(_entries(1, 2)), 2))
    _same(_seen(store.read(KEY, 0, limit=9, max_bytes=ALL)), (list(_entries(1)), 1))
    store.drop(KEY.principal, KEY.session)
    for gone in (KEY, STRANGERS[4]):
        assert store.read(gone, 0, limit=9, max_bytes=ALL) is None


def does_what_the_model_does(new_store: NewStore) -> None:
    """It returns what MemoryStore returns, also when entries expire."""
    for seed in range(20):
        _follow_the_model(new_store, _SeededRandom(seed))


def _follow_the_model(new_store: NewStore, die: _SeededRandom) -> None:
    limits = Limits(max_stored_age=30)
    clock = VirtualClock()
    store, model = new_store(limits, lambda: clock.now), MemoryStore(limits)
    keys = [StreamKey("", f"session {number}", "stream") for number in range(3)]
    last = dict.fromkeys(keys, 0)
    for _ in range(60):
        clock.now += (0, 0, 1, 8)[die.roll(4)]
        key = keys[die.roll(3)]
        first = last[key] + (1, 1, 1, 2)[die.roll(4)]
        entries = tuple(
            Entry(seq, b"x" * die.roll(12), final=die.roll(5) == 0)
            for seq in range(first, first + 1 + die.roll(3))
        )
        is_added = model.append(key, entries, now=clock.now)
        assert store.append(key, entries, now=clock.now) is is_added
        if is_added:
            last[key] = entries[-1].seq
        for each in keys:
            after, limit, most = die.roll(last[each] + 2), 1 + die.roll(5), die.roll(30)
            expected = model.read(each, after, limit=limit, max_bytes=most)
            _same(_seen(store.read(each, after, limit=limit, max_bytes=most)), _seen(expected))


def stays_within_its_bounds(new_store: NewStore) -> None:
    """It stores no more than its limits allow; what remains of a log is its end."""
    for limits in (Limits(max_stored_entries=12), Limits(max_stored_bytes=40_000)):
        store = new_store(limits, lambda: 0.0)
        keys = [StreamKey("", f"session {number}", "stream") for number in range(3)]
        for seq in range(1, 30):
            for key in keys:
                assert store.append(key, (Entry(seq, bytes(1000)),), now=0)
                page = store.read(key, 0, limit=ALL, max_bytes=ALL)
                assert page is not None, "the last append must be kept"
                assert page.last.seq == seq
                seqs = [entry.seq for entry in page.entries]
                assert seqs == list(range(seq + 1 - len(seqs), seq + 1))
            pages = [store.read(key, 0, limit=ALL, max_bytes=ALL) for key in keys]
            kept = [entry for page in pages if page is not None for entry in page.entries]
            assert len(kept) <= limits.max_stored_entries
            assert sum(len(entry.data) for entry in kept) <= limits.max_stored_bytes


def evicts_from_the_largest_user(new_store: NewStore) -> None:
    """Another principal, or session of the same one, that uses much evicts none of its entries."""
    for limits in (Limits(max_stored_entries=60), Limits(max_stored_bytes=100_000)):
        for flooded in ("other", KEY.principal):
            store = new_store(limits, lambda: 0.0)
            assert store.append(KEY, _entries(1, 2), now=0)
            for number in range(150):
                key = StreamKey(flooded, "flooded", f"stream {number}")
                assert store.append(key, (Entry(1, bytes(900)),), now=0)
            _same(_seen(store.read(KEY, 0, limit=9, max_bytes=ALL)), (list(_entries(1, 2)), 2))


def survives_a_clock_that_jumps(new_store: NewStore) -> None:
    """It keeps entries that were stored shortly before a jump, and later discards them by age."""
    for jump in (3600, -3600):
        _jump(new_store, jump)


def _jump(new_store: NewStore, jump: float) -> None:
    limits = Limits(max_stored_age=90)
    clock = VirtualClock()
    store = new_store(limits, lambda: clock.now)
    other = StreamKey("", "other", "stream")
    assert store.append(KEY, _entries(1), now=clock.now)
    clock.now += jump
    assert store.append(other, _entries(1), now=clock.now)
    assert store.append(KEY, _entries(2), now=clock.now)
    _same(_seen(store.read(KEY, 0, limit=9, max_bytes=ALL)), (list(_entries(1, 2)), 2))
    for seq in range(2, 10):
        clock.now += 20
        assert store.append(other, _entries(seq), now=clock.now)
    assert store.read(KEY, 0, limit=9, max_bytes=ALL) is None


STORE_CHECKS: tuple[Callable[[NewStore], None], ...] = (
    is_synchronous,
    keeps_everything,
    lets_one_succeed,
    keeps_logs_apart,
    does_what_the_model_does,
    stays_within_its_bounds,
    evicts_from_the_largest_user,
    survives_a_clock_that_jumps,
)
"""The checks of :func:`check_store`; the docstring of each is what the store must do."""


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
