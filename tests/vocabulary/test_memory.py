"""The memory store: bounded, and never with a hole it does not show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Entry, Limits, MemoryStore, Page, StreamKey

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
    store.append(KEY, entries(1, 2), now=0)
    store.append(KEY, (LAST,), now=0)
    assert read(store, KEY, 0) == Page((*entries(1, 2), LAST), LAST)
    assert seqs(read(store, KEY, 2)) == [3]
    assert read(store, KEY, 3) == Page((), LAST)
    assert read(store, KEY, 9) == Page((), LAST)
    assert store.count == 3


def test_pages_are_bounded() -> None:
    store = MemoryStore()
    store.append(KEY, entries(1, 2, 3, 4, size=10), now=0)
    assert seqs(read(store, KEY, 0, limit=2)) == [1, 2]
    assert seqs(read(store, KEY, 0, max_bytes=25)) == [1, 2]
    assert seqs(read(store, KEY, 0, max_bytes=1)) == [1]


def test_logs_are_apart() -> None:
    store = MemoryStore()
    store.append(KEY, entries(1), now=0)
    for other in (
        StreamKey("you", "session", "stream"),
        StreamKey("me", "other", "stream"),
        StreamKey("me", "session", "other"),
    ):
        assert read(store, other, 0) is None


def test_a_session_is_dropped_as_a_whole() -> None:
    store = MemoryStore()
    other = StreamKey("me", "other", "stream")
    store.append(KEY, entries(1, 2), now=0)
    store.append(StreamKey("me", "session", "second"), entries(1), now=0)
    store.append(other, entries(1), now=0)
    store.drop("me", "session")
    store.drop("me", "session")
    assert read(store, KEY, 0) is None
    assert seqs(read(store, other, 0)) == [1]
    assert (store.count, store.size) == (1, 1)


def test_the_oldest_go_first_by_count_bytes_and_age() -> None:
    by_count = MemoryStore(Limits(stored_entries=2))
    by_bytes = MemoryStore(Limits(stored_bytes=2))
    by_age = MemoryStore(Limits(stored_age=10))
    for store in (by_count, by_bytes, by_age):
        store.append(KEY, entries(1), now=0)
        store.append(KEY, entries(2), now=5)
        store.append(KEY, entries(3), now=11)
        assert read(store, KEY, 0) == Page(
            entries(2, 3), *entries(3)
        )  # the hole shows: 1 is missing


def test_a_log_that_has_lost_everything_is_unknown() -> None:
    store = MemoryStore(Limits(stored_entries=1))
    store.append(KEY, entries(1), now=0)
    other = StreamKey("", "", "b")
    store.append(other, entries(1), now=0)
    assert read(store, KEY, 0) is None
    store.append(KEY, entries(2), now=0)
    assert read(store, KEY, 0) == Page(entries(2), *entries(2))


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 5), st.booleans()),
        max_size=40,
    )
)
def test_it_stays_within_its_bounds(steps: list[tuple[str, int, int, bool]]) -> None:
    limits = Limits(stored_entries=10, stored_bytes=30, stored_age=20)
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
        store.append(key, entries(*range(first, first + count), size=count), now=now)
        assert store.count <= limits.stored_entries
        assert store.size <= limits.stored_bytes
        for other, seq in last.items():
            page = read(store, StreamKey("", other, "s"), 0)
            if page is not None:
                found = [entry.seq for entry in page.entries]
                assert found == list(range(seq - len(found) + 1, seq + 1))
