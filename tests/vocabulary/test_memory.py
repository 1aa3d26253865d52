"""The memory store: bounded, and never with a hole it does not show."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import AppendResult, Entry, Limits, MemoryStore, Page, StreamKey

from ..appending import append

KEY = StreamKey("me", "session", "stream")
LAST = Entry(3, b"last", final=True)


def entries(*seqs: int, size: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(seq, b"x" * size) for seq in seqs)


def seqs(page: Page | None) -> list[int] | None:
    return None if page is None else [entry.seq for entry in page.entries]


def read(
    store: MemoryStore, key: StreamKey, after: int, limit: int = 100, max_bytes: int = 10**6
) -> Page | None:
    return store.read(key, after, limit=limit, max_bytes=max_bytes)


def test_what_was_appended_is_read() -> None:
    store = MemoryStore()
    append(store, KEY, entries(1, 2), now=0)
    append(store, KEY, (LAST,), now=0)
    assert read(store, KEY, 0) == Page((*entries(1, 2), LAST), LAST)
    assert seqs(read(store, KEY, 2)) == [3]
    assert read(store, KEY, 3) == Page((), LAST)
    assert read(store, KEY, 9) == Page((), LAST)
    assert store.count == 3


def test_pages_are_bounded() -> None:
    store = MemoryStore()
    append(store, KEY, entries(1, 2, 3, 4, size=10), now=0)
    assert seqs(read(store, KEY, 0, limit=2)) == [1, 2]
    assert seqs(read(store, KEY, 0, max_bytes=25)) == [1, 2]
    assert seqs(read(store, KEY, 0, max_bytes=1)) == [1]


def test_logs_are_apart() -> None:
    store = MemoryStore()
    append(store, KEY, entries(1), now=0)
    for other in (
        StreamKey("you", "session", "stream"),
        StreamKey("me", "other", "stream"),
        StreamKey("me", "session", "other"),
    ):
        assert read(store, other, 0) is None


def test_a_session_is_dropped_as_a_whole() -> None:
    store = MemoryStore()
    other = StreamKey("me", "other", "stream")
    append(store, KEY, entries(1, 2), now=0)
    append(store, StreamKey("me", "session", "second"), entries(1), now=0)
    append(store, other, entries(1), now=0)
    store.drop("me", "session")
    store.drop("me", "session")
    assert read(store, KEY, 0) is None
    assert seqs(read(store, other, 0)) == [1]
    alone = MemoryStore()
    append(alone, other, entries(1), now=0)
    assert (store.count, store.size) == (1, alone.size)
    store.drop("me", "other")
    assert (store.count, store.size) == (0, 0)


def test_the_oldest_go_first_by_count_bytes_and_age() -> None:
    two = MemoryStore()
    append(two, KEY, entries(1, 2), now=0)
    by_count = MemoryStore(Limits(max_stored_entries=2))
    by_bytes = MemoryStore(Limits(max_stored_bytes=two.size))
    by_age = MemoryStore(Limits(max_stored_age=10))
    for store in (by_count, by_bytes, by_age):
        for seq in (1, 2, 3):
            append(store, KEY, entries(seq), now=3 * seq)
    for store in (by_count, by_bytes):  # the hole shows: 1 is missing
        assert read(store, KEY, 0) == Page(entries(2, 3), *entries(3))
    assert seqs(read(by_age, KEY, 0)) == [1, 2, 3]
    append(by_age, KEY, entries(4), now=12)
    append(by_age, KEY, entries(5), now=15)
    assert seqs(read(by_age, KEY, 0)) == [2, 3, 4, 5]


def test_a_log_that_has_lost_everything_is_unknown() -> None:
    store = MemoryStore(Limits(max_stored_entries=1))
    append(store, KEY, entries(1), now=0)
    other = StreamKey("", "", "b")
    append(store, other, entries(1), now=0)
    assert read(store, KEY, 0) is None
    append(store, KEY, entries(2), now=0)
    assert read(store, KEY, 0) == Page(entries(2), *entries(2))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 5), st.booleans()),
        max_size=40,
    )
)
def test_it_stays_within_its_bounds(steps: list[tuple[str, int, int, bool]]) -> None:
    limits = Limits(max_stored_entries=10, max_stored_bytes=30, max_stored_age=20)
    store = MemoryStore(limits)
    last: dict[str, int] = {}
    now = 0.0
    for name, count, pause, drops in steps:
        now += pause
        key = StreamKey("", name, "s")
        if drops:
            store.drop("", name)
            last.pop(name, None)
        first = last.get(name, 0) + 1
        last[name] = first + count - 1
        append(store, key, entries(*range(first, first + count), size=count), now=now)
        assert store.count <= limits.max_stored_entries
        assert store.size <= limits.max_stored_bytes
        for other, seq in last.items():
            page = read(store, StreamKey("", other, "s"), 0)
            if page is not None:
                found = [entry.seq for entry in page.entries]
                assert found == list(range(seq - len(found) + 1, seq + 1))


# What it costs


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("sessions", "logs", "count", "size"),
    [(1, 1, 5000, 100), (1, 3000, 1, 100), (3000, 1, 1, 100), (50, 10, 10, 50), (1, 1, 50, 10**5)],
)
def test_what_is_counted_is_what_python_takes(
    sessions: int, logs: int, count: int, size: int
) -> None:
    """Nominally 64 MiB grew to 176 MB, as only payload was counted."""
    gc.collect()
    tracemalloc.start()
    store = MemoryStore(
        Limits(max_stored_bytes=10**9, max_stored_entries=10**9, max_stored_age=10**9)
    )
    for session in range(sessions):
        name = f"session-{session:035}"  # as long as a token
        for log in range(logs):
            key = StreamKey("", name, f"stream-{session:018}-{log:017}")
            for seq in range(1, count + 1):
                data = str(seq).encode().ljust(size)
                append(store, key, (Entry(seq, data),), now=seq + 0.5)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert store.count == sessions * logs * count
    assert 0.75 * taken < store.size < 1.25 * taken


@pytest.mark.no_cover
def test_a_store_in_use_for_long_does_not_grow() -> None:
    """What has gone leaves nothing behind, whoever had to give way."""
    tracemalloc.start()
    limits = Limits(max_stored_bytes=500_000)
    store = MemoryStore(limits)
    for number in range(20_000):
        key = StreamKey(f"principal {number % 7}", f"session {number % 50}", f"log {number % 300}")
        page = store.read(key, 0, limit=1, max_bytes=1)
        first = 1 if page is None else page.last.seq + 1
        append(store, key, (Entry(first, bytes(number % 2000)),), now=number)
        assert store.size <= limits.max_stored_bytes
        if number % 90 == 0:
            store.drop(key.principal, key.session)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 1.5 * limits.max_stored_bytes


# Neighbours


def flood(store: MemoryStore, principal: str, session: str, count: int, size: int = 100) -> None:
    for number in range(count):
        append(store, StreamKey(principal, session, f"log {number}"), entries(1, size=size), now=0)


@pytest.mark.parametrize(
    "limits", [Limits(max_stored_entries=200), Limits(max_stored_bytes=200_000)]
)
@pytest.mark.parametrize("is_one_session", [False, True])
def test_who_uses_most_gives_way_first(limits: Limits, is_one_session: bool) -> None:
    """Principals, and sessions of one principal, evicted each other."""
    store = MemoryStore(limits)
    append(store, KEY, entries(1, 2, 3), now=0)
    if is_one_session:
        flood(store, KEY.principal, "flooded", 3000)
    else:
        for number in range(3000):
            flood(store, "attacker", f"session {number}", 1)
    assert seqs(read(store, KEY, 0)) == [1, 2, 3]
    assert store.count <= limits.max_stored_entries
    assert store.size <= limits.max_stored_bytes
    assert store.count > 60  # and one may use what others do not need


def test_who_uses_little_keeps_it_against_many() -> None:
    store = MemoryStore(Limits(max_stored_entries=400))
    append(store, KEY, entries(1, 2), now=0)
    for number in range(20):
        flood(store, f"attacker {number}", "session", 500)
    assert seqs(read(store, KEY, 0)) == [1, 2]


# Clocks


@pytest.mark.parametrize("jump", [3600, -3600, 1e9, -1e9])
def test_a_clock_that_jumps_takes_nothing_along(jump: float) -> None:
    """A clock put forward by an hour emptied the store."""
    store = MemoryStore(Limits(max_stored_age=90))
    append(store, KEY, entries(1), now=0)
    append(store, KEY, entries(2), now=jump)
    append(store, KEY, entries(3), now=jump + 20)
    append(store, KEY, entries(4), now=20)
    assert seqs(read(store, KEY, 0)) == [1, 2, 3, 4]
    for now in range(40, 400, 20):
        append(store, StreamKey("", "", "other"), entries(now // 20 - 1), now=now)
    assert read(store, KEY, 0) is None


# Repeated appends


def test_an_append_that_is_repeated_is_recognised() -> None:
    """Its reply was lost: it must not count as another one, nor be stored twice."""
    store = MemoryStore()
    results = [store.append(KEY, entries(1, 2), token="a", now=0) for _ in range(3)]
    assert results == [AppendResult.STORED] * 3
    assert seqs(read(store, KEY, 0)) == [1, 2]
    assert store.count == 2


@pytest.mark.parametrize(
    ("numbers", "token"), [((1, 2), "b"), ((1,), "b"), ((2,), "a"), ((2, 3), "b")]
)
def test_another_append_of_the_same_number_conflicts(numbers: tuple[int, ...], token: str) -> None:
    store = MemoryStore()
    store.append(KEY, entries(1, 2), token="a", now=0)
    assert store.append(KEY, entries(*numbers), token=token, now=0) is AppendResult.CONFLICT
    assert seqs(read(store, KEY, 0)) == [1, 2]


def test_only_the_last_append_is_recognised() -> None:
    store = MemoryStore()
    store.append(KEY, entries(1), token="a", now=0)
    store.append(KEY, entries(2), token="b", now=0)
    assert store.append(KEY, entries(1), token="a", now=0) is AppendResult.CONFLICT
    assert store.append(KEY, entries(2), token="b", now=0) is AppendResult.STORED


def test_a_log_that_ends_before_what_was_acknowledged_is_behind() -> None:
    store = MemoryStore()
    store.append(KEY, entries(1), token="a", now=0)
    assert store.append(KEY, entries(3), token="b", now=0) is AppendResult.BEHIND
    assert seqs(read(store, KEY, 0)) == [1]
