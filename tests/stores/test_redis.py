"""RedisStore with real servers of Redis, which restart, hang, are full, and lose their network."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import logging
import math
import random
import secrets
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from sansmcp import (
    App,
    AppendResult,
    Entry,
    EntryKind,
    Limits,
    LocalProtocolError,
    ServerOptions,
    StateSigner,
    StreamKey,
)
from sansmcp.testing import check_shared_store, check_store
from sansmcp_local import new_server
from sansmcp_stores import RedisStore

from ..cli.conftest import ROOT, environment
from ..ports import free_port
from ..server.harness import example_app
from .redis_server import APPEND_ONLY, Cable, RedisServer, cable, redis_library, running, sentinel
from .waiting import WaitingStore

redis = redis_library()

KEY = StreamKey("alice", "session", "stream")
OTHER = StreamKey("alice", "session", "other")
STORED, CONFLICT, BEHIND = AppendResult
ROUNDS = 30


class WaitingRedis(WaitingStore):
    """A store in Redis that can be used without an event loop."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.redis = store
        self.watch = store.watch


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for all tests that leave it as it is; each uses a prefix of its own."""
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """One that a test may stop."""
    with running(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"test:{secrets.token_hex(4)}"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


OpenStore = Callable[..., WaitingRedis]


@pytest.fixture
def open_store(prefix: str, stack: ExitStack) -> OpenStore:
    """Opens stores that are closed after the test, on the same logs."""

    def open_store(url: str, **settings: Any) -> WaitingRedis:
        settings.setdefault("prefix", prefix)
        return stack.enter_context(closing(WaitingRedis(RedisStore.from_url(url, **settings))))

    return open_store


def entries(*seqs: int, data: bytes = b"x") -> tuple[Entry, ...]:
    return tuple(Entry(seq, data) for seq in seqs)


def seqs_of(store: WaitingRedis, key: StreamKey = KEY) -> list[int]:
    page = store.read(key, 0)
    return [] if page is None else [entry.seq for entry in page.entries]


def wait(condition: Callable[[], Any]) -> None:
    """Wait until another thread or process has made a condition true."""
    give_up = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < give_up, "waited for 90 seconds"
        time.sleep(0.001)


def all_of(store: WaitingRedis, *work: Any) -> list[Any]:
    """Await coroutines together. Gives what each returns or raises."""

    async def gather() -> list[Any]:
        return await asyncio.gather(*work, return_exceptions=True)

    found: list[Any] = store.run(gather())
    return found


class Bell:
    """A function for ``watch()``."""

    def __init__(self) -> None:
        self._rings = threading.Semaphore(0)

    def __call__(self) -> None:
        self._rings.release()

    def rings(self) -> None:
        """Wait until it is called once more."""
        assert self._rings.acquire(timeout=20)

    @property
    def has_rung(self) -> bool:
        return self._rings.acquire(blocking=False)

    def forget(self) -> None:
        """Forget calls that have not been expected."""
        while self._rings.acquire(blocking=False):
            pass

    def is_silent(self) -> bool:
        return not self._rings.acquire(blocking=False)


# What every store promises


@contextmanager
def others_at_work(url: str, prefix: str) -> Generator[None, None, None]:
    """Threads and a process append to logs of their own, in the same Redis."""
    must_end = threading.Event()
    problems: list[BaseException] = []

    def work(name: str) -> None:
        key = StreamKey("worker", name, "stream")
        try:
            with closing(WaitingRedis(RedisStore.from_url(url, prefix=prefix))) as store:
                for seq in itertools.takewhile(lambda _: not must_end.is_set(), itertools.count(1)):
                    assert store.append(key, entries(seq)) is STORED
                    page = store.read(key, seq - 1)
                    assert page is not None
                    assert page.last.seq == seq
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(2)]
    command = [sys.executable, "-m", "tests.stores.test_redis", "work", url, prefix]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for each in threads:
            each.start()
        try:
            yield
        finally:
            must_end.set()
            for each in threads:
                each.join(20)
            appended = process.communicate(timeout=20)[0]
    assert problems == []
    assert process.returncode == 0
    assert int(appended) > 0


def work_until_the_end_of_input(url: str, prefix: str) -> None:
    print("ready", flush=True)
    has_ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        has_ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    key = StreamKey("worker", "process", "stream")
    appended = 0
    with closing(WaitingRedis(RedisStore.from_url(url, prefix=prefix))) as store:
        while not (has_ended.is_set() and appended):
            assert store.append(key, entries(appended + 1)) is STORED
            appended += 1
    print(appended)


@pytest.mark.parametrize("on", ["asyncio", "trio"])
def test_it_does_what_stores_have_to_do(
    server: RedisServer, prefix: str, on: str, stack: ExitStack
) -> None:
    """Threads and processes are at work in it meanwhile."""
    numbers = itertools.count()
    loop = stack.enter_context(closing(asyncio.new_event_loop()))

    def run_trio(work: Any) -> Any:
        async def await_it() -> Any:
            return await work

        return trio.run(await_it)

    run: Any = loop.run_until_complete if on == "asyncio" else run_trio

    def new_store(limits: Limits, clock: Callable[[], float]) -> RedisStore:
        name = f"{prefix}:{next(numbers)}"
        store = RedisStore.from_url(server.url, limits, prefix=name, clock=clock)
        return stack.enter_context(closing(store))

    with others_at_work(server.url, f"{prefix}:0"):
        check_store(new_store, single=False, run=run, wait=wait)
        first, second = (
            stack.enter_context(closing(RedisStore.from_url(server.url, prefix=prefix)))
            for _ in range(2)
        )
        check_shared_store(first, second, run=run, wait=wait)


def race(url: str, prefix: str, name: str) -> list[int]:
    """Append each number, and return those where we were first."""
    won: list[int] = []
    with closing(WaitingRedis(RedisStore.from_url(url, prefix=prefix))) as store:
        for seq in range(1, ROUNDS + 1):
            result = store.append(KEY, entries(seq, data=name.encode()))
            page = store.read(KEY, seq - 1, limit=1)
            assert page is not None
            assert (page.entries[0].data == name.encode()) is (result is STORED)
            if result is STORED:
                won.append(seq)
    return won


def test_threads_and_processes_that_race(server: RedisServer, prefix: str) -> None:
    """Of all who append a number one succeeds. They begin at once."""
    command = [sys.executable, "-m", "tests.stores.test_redis", "race", server.url, prefix]
    processes = [
        subprocess.Popen(
            [*command, name],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    won: list[list[int]] = []

    def race_here(name: str) -> None:
        won.append(race(server.url, prefix, name))

    threads = [threading.Thread(target=race_here, args=(name,)) for name in "de"]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for thread in threads:
        thread.start()
    won_elsewhere = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    for thread in threads:
        thread.join(20)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(won) == 2
    count = Counter(seq for each in won + won_elsewhere for seq in each)
    assert count == Counter(range(1, ROUNDS + 1))


# What it keeps


def stored(server: RedisServer, prefix: str) -> dict[str, Any]:
    """All that is in Redis under a prefix."""
    return {key.decode(): key for key in server.client.scan_iter(f"{prefix}:*", count=1000)}


def check_books(server: RedisServer, prefix: str) -> None:
    """Each index counts its logs, each log its bytes; nothing is left over, and all will expire."""
    keys = stored(server, prefix)
    for name, key in keys.items():
        assert name.endswith(":secret") or server.client.pttl(key) > 0, name
        if not name.endswith("#index"):
            continue
        index = server.client.hgetall(key)
        total = int(index.pop(b"#"))
        assert total == sum(map(int, index.values()))
        assert set(server.client.zrange(name[: -len("index")] + "ages", 0, -1)) == set(index)
        for log, size in index.items():
            fields = server.client.hgetall(log)
            first, last, size_of_log = (int(fields.pop(n)) for n in (b"first", b"last", b"bytes"))
            del fields[b"token"], fields[b"from"]
            assert {int(seq) for seq in fields} == set(range(first, last + 1))
            assert size_of_log == int(size) == 768 + sum(len(d) + 128 for d in fields.values())


@pytest.mark.parametrize("seed", range(3))
def test_the_books_are_right_whatever_is_done(
    server: RedisServer, open_store: OpenStore, prefix: str, seed: int
) -> None:
    die = random.Random(seed)
    limits = Limits(max_stored_bytes=20_000, max_stored_entries=10, max_stored_age=60)
    now = [1000.0]
    store = open_store(server.url, limits=limits, clock=lambda: now[0])
    keys = [StreamKey("", f"session {n % 2}", f"stream/{n}") for n in range(8)]
    last = dict.fromkeys(keys, 0)
    for _ in range(300):
        key = die.choice(keys)
        first = max(1, last[key] + die.choice((1, 1, 1, 1, 2, 0)))
        some = entries(*range(first, first + die.randint(1, 3)), data=bytes(die.randrange(3000)))
        if store.append(key, some) is STORED:
            last[key] = some[-1].seq
        if die.random() < 0.05:
            store.drop("", key.session)
            last.update({each: 0 for each in keys if each.session == key.session})
        if die.random() < 0.02:
            now[0] += 45
    check_books(server, prefix)
    assert any(name.endswith("#index") for name in stored(server, prefix))


def test_a_log_that_has_expired_is_counted_no_more(
    server: RedisServer, open_store: OpenStore, prefix: str
) -> None:
    store = open_store(server.url)
    for seq in (1, 5):
        assert store.append(KEY, entries(seq, data=bytes(500))) is STORED
        (log,) = (name for name in stored(server, prefix) if name.endswith(":stream"))
        if seq == 1:
            server.client.delete(log)
    check_books(server, prefix)


def test_keys_name_nobody(server: RedisServer, open_store: OpenStore, prefix: str) -> None:
    """They are seen in MONITOR and in logs; other characters than those of keys are hashed."""
    store = open_store(server.url)
    for stream in ("plain", "{curly}", "ü", "half \ud800", "x" * 500, "", "~" + "a" * 64):
        key = StreamKey("principal ü", "session \udfff", stream)
        assert store.append(key, entries(1, data=stream.encode("utf-8", "replace"))) is STORED
        page = store.read(key, 0)
        assert page is not None
        assert page.entries[0].data == stream.encode("utf-8", "replace")
    names = stored(server, prefix)
    assert len({name for name in names if "{" in name}) == 7 + 2
    for name in names:
        assert "session" not in name
        assert "principal" not in name
        assert len(name) < 200


def test_a_kind_of_a_later_version_is_unknown(
    server: RedisServer, open_store: OpenStore, prefix: str
) -> None:
    store = open_store(server.url)
    assert store.append(KEY, entries(1, 2)) is STORED
    (log,) = (name for name in stored(server, prefix) if name.endswith(":stream"))
    server.client.hset(log, "2", b"Z0data")
    page = store.read(KEY, 1)
    assert page is not None
    assert page.entries == (Entry(2, b"data", kind=EntryKind.UNKNOWN),)
    assert page.last.kind is EntryKind.UNKNOWN
    assert store.append(KEY, entries(3)) is STORED


def test_a_token_is_known_after_its_entries_were_trimmed(
    server: RedisServer, open_store: OpenStore
) -> None:
    store = open_store(server.url, limits=Limits(max_stored_entries=2))
    for _ in range(2):
        assert store.append(KEY, entries(1, 2, 3, 4, 5), token="t") is STORED
    assert seqs_of(store) == [4, 5]
    assert store.append(KEY, entries(1, 2, 3, 4, 5), token="u") is CONFLICT
    assert store.append(KEY, entries(6), token="t") is STORED
    assert store.append(KEY, entries(1), token="t") is CONFLICT


def test_a_session_loses_its_large_logs_before_its_small_ones(
    server: RedisServer, open_store: OpenStore, prefix: str
) -> None:
    """The record that the session exists is a small log, and older than most."""
    store = open_store(server.url, limits=Limits(max_stored_bytes=50_000))
    record = StreamKey("alice", "session", "record")
    assert store.append(record, entries(1)) is STORED
    for number in range(30):
        key = StreamKey("alice", "session", f"stream {number}")
        assert store.append(key, entries(1, data=bytes(5000))) is STORED
    assert seqs_of(store, record) == [1]
    assert seqs_of(store, StreamKey("alice", "session", "stream 3")) == []
    check_books(server, prefix)


def test_a_principal_has_so_many_sessions(
    server: RedisServer, open_store: OpenStore, prefix: str
) -> None:
    """The one that was used longest ago goes; the sessions of others stay."""
    now = [1000.0]
    limits = Limits(max_sessions_per_principal=3, max_sessions=5, max_stored_age=90)
    stores = [open_store(server.url, limits=limits, clock=lambda: now[0]) for _ in range(2)]

    def use(principal: str, session: int) -> None:
        now[0] += 1
        key = StreamKey(principal, f"{session}", "s")
        page = stores[0].read(key, 0)
        seq = 1 if page is None else page.last.seq + 1
        assert stores[session % 2].append(key, entries(seq)) is STORED

    def sessions(principal: str) -> list[int]:
        return [n for n in range(9) if seqs_of(stores[0], StreamKey(principal, f"{n}", "s"))]

    use("bob", 0)
    for session in range(5):
        use("alice", session)
    assert (sessions("alice"), sessions("bob")) == ([2, 3, 4], [0])
    stores[0].drop("alice", "3")
    use("alice", 5)
    assert sessions("alice") == [2, 4, 5], "one that is dropped does not count"
    for session in range(7):
        use("", session)
    assert sessions("") == [2, 3, 4, 5, 6], "without authentication all are one"
    for number in range(9):
        assert stores[0].append(StreamKey("alice", "", f"s{number}"), entries(1)) is STORED
    assert sessions("alice") == [2, 4, 5], "logs without a session are not counted"
    check_books(server, prefix)


def signer(store: WaitingRedis) -> StateSigner:
    """The one that a server gets with a store."""
    made: Any = new_server(example_app(), store.store, resumable=True)
    options: ServerOptions = made._core.options  # noqa: SLF001
    assert options.state_signer is not None
    return options.state_signer


@pytest.mark.parametrize("lose", ["flushall", "delete"])
def test_a_key_that_redis_has_lost_is_written_again(
    own: RedisServer, open_store: OpenStore, lose: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No append-only file, FLUSHALL, or eviction. Else old and new processes never agree again."""
    store = open_store(own.url)
    signed = signer(store).sign("state", "ada", "tools/call", {}, name="name")
    if lose == "flushall":
        own.client.flushall()
    else:
        own.client.delete(*own.client.keys("*:secret"))
    look_again(store)
    assert "Redis has lost" in caplog.text
    new = open_store(own.url)
    assert new.secret == store.secret
    assert signer(new).verify(signed, "ada", "tools/call", {}) == "state"


def test_all_take_the_key_of_a_process_that_was_faster(
    own: RedisServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    old = open_store(own.url)
    before, old_key = signer(old), old.secret
    signed = before.sign("state", "ada", "tools/call", {}, name="name")
    look_again(old)
    own.client.flushall()
    new = signer(open_store(own.url))
    look_again(old)
    assert "has changed in Redis" in caplog.text
    assert old.secret != old_key
    assert before.verify(signed, "ada", "tools/call", {}) == "state", "it still knows its own"
    again = before.sign("state", "ada", "tools/call", {}, name="name")
    assert new.verify(again, "ada", "tools/call", {}) == "state"
    foreign = new.sign("state", "ada", "tools/call", {}, name="name")
    assert before.verify(foreign, "ada", "tools/call", {}) == "state"


def test_a_key_that_is_none_is_left_alone(own: RedisServer, open_store: OpenStore) -> None:
    store = open_store(own.url)
    key = store.secret
    (name,) = own.client.keys("*:secret")
    own.client.set(name, "short")
    look_again(store)
    assert store.secret == key
    assert own.client.get(name) == b"short"


def test_the_key_is_looked_for_by_a_store_that_is_not_used_otherwise(
    own: RedisServer, open_store: OpenStore
) -> None:
    """At 2026-07-28 a state comes back without any use of the store."""
    store = open_store(own.url)
    key = signer(store)
    assert key.sign("state", "ada", "tools/call", {}, name="name")
    look_again(store)
    inner: Any = store.store
    inner._looked_at = -math.inf  # noqa: SLF001
    own.client.flushall()
    key.sign("state", "ada", "tools/call", {}, name="name")
    while not own.client.keys("*:secret"):
        time.sleep(0.001)


def look_again(store: WaitingRedis) -> None:
    """Let a store look for the key of signed states now: it does so after an operation."""
    inner: Any = store.store
    inner._looked_at = -math.inf  # noqa: SLF001
    for _ in range(2):  # the next operation begins after the look that follows the first
        store.read(KEY, 0)


def test_all_have_the_same_secret(server: RedisServer, open_store: OpenStore, prefix: str) -> None:
    first, again = (open_store(server.url) for _ in range(2))
    other = open_store(server.url, prefix=prefix + ".other")
    assert first.secret == again.secret == first.secret != other.secret
    assert len(first.secret) == 32
    server.client.set(f"{prefix}:secret", "short")
    with pytest.raises(LocalProtocolError, match=f"{prefix}:secret of Redis must hold 32 bytes"):
        _ = open_store(server.url).secret


# Failures


def test_a_reply_that_is_lost(own: RedisServer, open_store: OpenStore) -> None:
    """The append was done. Its repetition, and no other, is answered STORED again."""
    with cable(own.port) as way:
        store = open_store(way.url)
        direct = open_store(own.url)
        assert store.append(KEY, entries(1)) is STORED
        for again, expected in (("t", STORED), ("u", CONFLICT)):
            way.lose_reply_to(b"EVALSHA")
            with pytest.raises(redis.ConnectionError):
                store.append(OTHER, entries(1, 2), token="t")
            assert way.lost.is_set()
            wait(lambda: seqs_of(direct, OTHER) == [1, 2])
            assert store.append(OTHER, entries(1, 2), token=again) is expected
            assert seqs_of(store, OTHER) == [1, 2]
            direct.drop(OTHER.principal, OTHER.session)


def test_the_library_repeats_nothing(own: RedisServer, open_store: OpenStore) -> None:
    """Redis gets each append once; otherwise a store that is away would hold up everything."""
    with cable(own.port) as way:
        store = open_store(way.url)
        assert store.append(KEY, entries(1)) is STORED
        before = own.client.info("commandstats")["cmdstat_evalsha"]["calls"]
        way.lose_reply_to(b"EVALSHA")
        with pytest.raises(redis.ConnectionError):
            store.append(KEY, entries(2))
        assert own.client.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1


def test_redis_hangs(own: RedisServer, open_store: OpenStore) -> None:
    """What timed out is done after all, once; its late reply answers no other command."""
    store = open_store(f"{own.url}?socket_timeout=0.2")
    assert store.append(KEY, entries(1)) is STORED
    with own.hanging():
        with pytest.raises(redis.TimeoutError):
            store.append(KEY, entries(2, 3), token="t")
        with pytest.raises((redis.TimeoutError, redis.ConnectionError)):
            store.read(OTHER, 0)
    wait(lambda: seqs_of(store) == [1, 2, 3])
    assert store.append(KEY, entries(2, 3), token="t") is STORED
    assert store.append(KEY, entries(2, 3), token="u") is CONFLICT
    assert store.read(OTHER, 0) is None
    assert seqs_of(store) == [1, 2, 3]


@pytest.mark.parametrize("end", [RedisServer.stop, RedisServer.kill], ids=["stopped", "killed"])
def test_redis_restarts(
    own: RedisServer,
    open_store: OpenStore,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[RedisServer], None],
) -> None:
    """It has all that it acknowledged, and has forgotten the scripts. Watches are renewed."""
    store = open_store(own.url)
    keys = [StreamKey("alice", f"session {n % 5}", f"stream {n}") for n in range(20)]
    bells = [Bell() for _ in keys]
    for key, bell in zip(keys, bells, strict=True):
        store.watch(key, bell)
        bell.rings()
        assert store.append(key, entries(1, 2)) is STORED
        bell.rings()
    end(own)
    with pytest.raises(redis.ConnectionError):
        store.append(KEY, entries(3))
    for bell in bells:
        bell.forget()
    own.start()
    for bell in bells:
        bell.rings()
    assert [seqs_of(store, key) for key in keys] == [[1, 2]] * 20
    own.client.script_flush()
    appends = [store.redis.append(key, entries(3), token="t", now=0) for key in keys]
    assert all_of(store, *appends) == [STORED] * 20, "in one pipeline, without the scripts"
    for bell in bells:
        bell.rings()
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.message.partition(":")[0] for record in told] == ["redis watches"], "once"


def test_a_session_is_recorded_after_its_first_append_failed(
    own: RedisServer, open_store: OpenStore, prefix: str
) -> None:
    """It counts as one of its principal."""
    store = open_store(own.url)
    own.stop()
    with pytest.raises(redis.ConnectionError):
        store.append(KEY, entries(1), token="t")
    own.start()
    assert store.append(KEY, entries(1), token="t") is STORED
    (sessions,) = (name for name in stored(own, prefix) if ":p:" in name)
    assert own.client.zcard(sessions) == 1


def test_redis_is_full(own: RedisServer, open_store: OpenStore) -> None:
    """A batch is refused as a whole, and reading still works, in the same pipeline."""
    store = open_store(own.url)
    assert store.append(KEY, entries(1)) is STORED
    used = own.client.info("memory")["used_memory"]
    own.client.config_set("maxmemory", used - 100_000)
    batch = entries(*range(2, 22), data=bytes(1000))
    refused, read, dropped = all_of(
        store,
        store.redis.append(KEY, batch, token="t", now=0),
        store.redis.read(KEY, 0, limit=9, max_bytes=99),
        store.redis.drop("nobody", "session"),
    )
    assert isinstance(refused, redis.exceptions.OutOfMemoryError)
    assert read.last.seq == 1
    assert dropped is None
    own.client.config_set("maxmemory", 0)
    assert store.append(KEY, batch, token="t") is STORED
    assert seqs_of(store) == list(range(1, 22))


def test_an_operation_that_fails_takes_no_other_along(
    server: RedisServer, open_store: OpenStore, prefix: str
) -> None:
    """Nor does what it writes beside the logs; nothing of the failed one is written."""
    store = open_store(server.url)
    assert store.append(KEY, entries(1)) is STORED
    (log,) = (name for name in stored(server, prefix) if name.endswith(":stream"))
    (sessions,) = (name for name in stored(server, prefix) if ":p:" in name)
    for broken in (log, log.replace(":stream", "#index"), log.replace(":stream", "#ages")):
        kept = server.client.dump(broken)
        server.client.delete(broken)
        server.client.set(broken, "not what it should be")
        server.client.set(sessions, "neither")
        before = set(stored(server, prefix))
        elsewhere = StreamKey("alice", broken, "stream")
        failed, done = all_of(
            store,
            store.redis.append(KEY, entries(2), token="t", now=0),
            store.redis.append(elsewhere, entries(1), token="t", now=0),
        )
        assert isinstance(failed, redis.ResponseError)
        assert "WRONGTYPE" in str(failed)
        assert done is STORED
        new = set(stored(server, prefix)) - before
        assert len(new) == 3
        assert not any(name.startswith(log.partition(":stream")[0]) for name in new)
        server.client.restore(broken, 60_000, kept, replace=True)
        server.client.delete(sessions)
    assert store.append(KEY, entries(2), token="t") is STORED
    assert seqs_of(store) == [1, 2]


def test_a_primary_that_has_become_a_replica(own: RedisServer, open_store: OpenStore) -> None:
    """Appends fail, on connections that are made anew: its name may lead to another one."""
    store = open_store(own.url)
    assert store.append(KEY, entries(1)) is STORED
    own.client.replicaof("127.0.0.1", str(free_port()))
    made = own.client.info("stats")["total_connections_received"]
    for _ in range(2):
        with pytest.raises(redis.exceptions.ReadOnlyError):
            store.append(KEY, entries(2), token="t")
    assert own.client.info("stats")["total_connections_received"] >= made + 1
    assert seqs_of(store) == [1]
    own.client.config_set("replica-serve-stale-data", "no")
    with pytest.raises(redis.exceptions.MasterDownError):
        store.append(KEY, entries(2), token="t")
    own.client.replicaof("NO", "ONE")
    assert store.append(KEY, entries(2), token="t") is STORED


def test_redis_is_loading(tmp_path: Path, open_store: OpenStore) -> None:
    """It answers that it is, and nothing is lost."""
    with running(tmp_path / "redis", "--save", "") as own:
        store = open_store(own.url)
        # Between keys of some size it looks after its clients.
        for number in range(20):
            key = StreamKey("alice", f"session {number}", "stream")
            assert store.append(key, entries(1, data=secrets.token_bytes(4000))) is STORED
        own.client.save()
        # That it takes long to load its file is a setting for tests.
        slow = ("--key-load-delay", "50000", "--loading-process-events-interval-bytes", "1024")
        own.settings = ("--save", "", *slow)
        own.stop()
        starting = threading.Thread(target=own.start)
        starting.start()
        seen: set[str] = set()

        def is_loaded() -> bool:
            try:
                return store.append(KEY, entries(1), token="t") is STORED
            except redis.ConnectionError as error:
                seen.add(type(error).__name__)
                return False

        wait(is_loaded)
        starting.join(20)
        assert "BusyLoadingError" in seen
        assert seqs_of(store, StreamKey("alice", "session 10", "stream")) == [1]


def test_redis_is_missing(open_store: OpenStore, tmp_path: Path) -> None:
    """That is said when a server is made, which asks for the secret; closing does not fail."""
    port = free_port()
    for url, reason in (
        (f"redis://:password@127.0.0.1:{port}", f"127.0.0.1:{port}"),
        (f"unix://{tmp_path}/no.sock", "No such file"),
    ):
        store = open_store(url)
        with pytest.raises(ConnectionError, match=reason) as raised:
            new_server(App("late", "1"), store.redis)
        assert "password" not in str(raised.value)
        assert "Start Redis before the server" in str(raised.value)
        with pytest.raises(redis.ConnectionError, match=reason):
            store.append(KEY, entries(1))


def test_redis_starts_after_the_server_was_made(
    own: RedisServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The store is not asked for its key if the server has one."""
    own.stop()
    store = open_store(own.url)
    new_server(
        App("late", "1"), store.redis, state_signer=StateSigner(keys=(b"k" * 32,), clock=time.time)
    )
    with pytest.raises(ConnectionError):
        _ = store.secret
    own.start()
    assert len(store.secret) == 32
    assert store.append(KEY, entries(1)) is STORED
    assert not caplog.records


# Being woken


def watch(store: WaitingRedis, key: StreamKey = KEY) -> Bell:
    bell = Bell()
    store.watch(key, bell)
    bell.rings()
    return bell


@pytest.fixture
def way(own: RedisServer) -> Iterator[Cable]:
    with cable(own.port) as way:
        yield way


def test_a_drop_of_another_process_is_told(server: RedisServer, open_store: OpenStore) -> None:
    store, other = open_store(server.url), open_store(server.url)
    bells = [watch(store, key) for key in (KEY, OTHER)]
    stranger = watch(store, StreamKey("alice", "another", "stream"))
    assert other.append(KEY, entries(1)) is STORED
    bells[0].rings()
    other.drop(KEY.principal, KEY.session)
    for bell in bells:
        bell.rings()
    assert not stranger.has_rung


def test_what_is_told_while_the_network_is_away(
    own: RedisServer, way: Cable, open_store: OpenStore
) -> None:
    """It is told afterwards, for each watched log; watches that begin and end meanwhile, too."""
    store, writer = open_store(way.url), open_store(own.url)
    bell, other = watch(store), watch(store, StreamKey("bob", "session", "stream"))
    way.cut()
    assert writer.append(KEY, entries(1)) is STORED
    ended, new = Bell(), Bell()
    end: Any = store.watch(OTHER, ended)
    end()
    store.watch(StreamKey("", "", "new"), new)
    ended.forget()
    for each in (bell, other):
        each.forget()
    way.mend()
    for each in (bell, other, new):
        each.rings()
    assert writer.append(OTHER, entries(1)) is STORED
    assert writer.append(KEY, entries(2)) is STORED
    bell.rings()
    assert ended.is_silent()


def test_a_network_that_is_silent(
    own: RedisServer, way: Cable, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes no connection. Redis is asked whether it is there; then a new one is made."""
    monkeypatch.setattr("sansmcp_stores._redis_watches._LISTEN", 0.1)
    store, writer = open_store(f"{way.url}?socket_timeout=0.3"), open_store(own.url)
    bell = watch(store)
    before = way.connections
    (listener,) = own.client.client_list("pubsub")
    wait(lambda: own.client.client_list("pubsub")[0]["cmd"] == "ping")
    assert own.client.client_list("pubsub")[0]["id"] == listener["id"], "asked and answered"
    way.fall_silent()
    assert writer.append(KEY, entries(1)) is STORED
    wait(lambda: way.connections > before)
    bell.forget()
    way.mend()
    bell.rings()


def test_a_watch_that_raises(
    server: RedisServer, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and disturbs no other."""
    store = open_store(server.url)

    def fail() -> None:
        raise ZeroDivisionError

    store.watch(KEY, fail)
    bell = watch(store)
    assert store.append(KEY, entries(1)) is STORED
    bell.rings()
    assert "the watch of a store raised an exception" in caplog.messages


def test_subscriptions_end_with_their_watches(own: RedisServer, open_store: OpenStore) -> None:
    store = open_store(own.url)

    def channels() -> int:
        return len(own.client.pubsub_channels())

    ends: list[Any] = []
    for number in range(50):
        key = StreamKey("", f"session {number % 10}", f"stream {number}")
        bell = Bell()
        ends.append(store.watch(key, bell))
        bell.rings()
    wait(lambda: channels() == 11)
    for end in ends:
        end()
        end()
    wait(lambda: channels() == 1)


@pytest.mark.parametrize("owns", [True, False], ids=["own client", "client of the user"])
@pytest.mark.parametrize("is_away", [False, True], ids=["there", "away"])
def test_closing_while_threads_read(
    own: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture, owns: bool, is_away: bool
) -> None:
    """Nothing is logged, and no thread remains. A client of the user can be used afterwards."""
    before = set(threading.enumerate())
    client = redis.Redis.from_url(own.url, socket_timeout=2)
    store = WaitingRedis(
        RedisStore.from_url(own.url, prefix=prefix) if owns else RedisStore(client, prefix=prefix)
    )
    bell = watch(store)
    assert store.append(KEY, entries(1)) is STORED
    if is_away:
        own.kill()
        wait(lambda: any(r.levelno == logging.WARNING for r in caplog.records))
    caplog.clear()
    store.close()
    store.redis.close()
    wait(lambda: set(threading.enumerate()) <= before)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    bell.forget()
    with pytest.raises(LocalProtocolError, match="closed"):
        store.watch(KEY, bell)
    with pytest.raises(LocalProtocolError, match="closed"):
        asyncio.run(store.redis.append(KEY, entries(1), token="t", now=0))
    if not is_away:
        assert client.ping()
        wait(lambda: own.client.pubsub_channels() == [])
    client.close()


FORK = """
import os, sys
from contextlib import closing
from tests.stores.test_redis import *

store = WaitingRedis(RedisStore.from_url(sys.argv[1], prefix=sys.argv[2]))
bell = watch(store)
assert store.append(KEY, entries(1)) is STORED
bell.rings()
child = os.fork()
if child == 0:
    store = WaitingRedis(store.redis)
    mine = watch(store, OTHER)
    assert store.append(KEY, entries(2)) is STORED
    assert store.append(OTHER, entries(1)) is STORED
    mine.rings()
    assert bell.is_silent()
    store.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
bell.rings()
assert seqs_of(store) == [1, 2]
assert store.append(KEY, entries(3)) is STORED
bell.rings()
store.close()
"""


def test_a_process_that_forks(server: RedisServer, prefix: str) -> None:
    """The child has threads and connections of its own, and the parent goes on."""
    subprocess.run(
        [sys.executable, "-c", FORK, server.url, prefix],
        cwd=ROOT,
        env=environment(),
        timeout=60,
        check=True,
    )


# Ways to Redis


def check_use(store: RedisStore) -> None:
    """Use all of a store, then close it."""
    with closing(WaitingRedis(store)) as waiting:
        assert len(waiting.secret) == 32
        bell = watch(waiting)
        keys = [StreamKey("alice", f"session {number}", "stream") for number in range(9)]
        appends = [store.append(key, entries(1, 2), token="t", now=0) for key in [KEY, *keys]]
        assert all_of(waiting, *appends) == [STORED] * 10
        bell.rings()
        assert seqs_of(waiting) == [1, 2]
        for key in keys:
            waiting.drop(key.principal, key.session)
            assert waiting.read(key, 0) is None


def test_a_password(tmp_path: Path, prefix: str, open_store: OpenStore) -> None:
    url = "redis://:secret@127.0.0.1:{port}"
    with running(tmp_path / "redis", "--save", "", "--requirepass", "secret", url=url) as own:
        check_use(RedisStore.from_url(own.url, prefix=prefix))
        for wrong in (own.url.replace("secret", "wrong"), own.url.replace(":secret@", "")):
            store = open_store(wrong)
            with pytest.raises(redis.AuthenticationError):
                _ = store.secret
            with pytest.raises(redis.AuthenticationError):
                store.append(KEY, entries(1))


def test_a_user_of_redis_who_may_do_little(own: RedisServer, prefix: str) -> None:
    """It may use the keys and channels of the store, and no dangerous command."""
    own.client.execute_command(
        *("ACL", "SETUSER", "mcp", "on", ">secret", "+@all", "-@dangerous"),
        *(f"~{prefix}:*", f"&{prefix}:*"),
    )
    url = own.url.replace("redis://", "redis://mcp:secret@")
    check_use(RedisStore.from_url(url, prefix=prefix))


def test_a_unix_socket(tmp_path: Path, prefix: str) -> None:
    with running(tmp_path / "redis", "--save", "", "--unixsocket", str(tmp_path / "r.sock")):
        check_use(RedisStore.from_url(f"unix://{tmp_path}/r.sock", prefix=prefix))


def test_tls_with_an_authority_of_ones_own(
    tmp_path: Path, prefix: str, open_store: OpenStore
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    names = ("ca", "cert", "key")
    ca, cert, key = (str(tmp_path / f"{name}.pem") for name in names)
    authority.cert_pem.write_to_path(ca)
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    tls = ("--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
    port = free_port()
    settings = ("--save", "", "--tls-port", str(port), *tls, "--tls-auth-clients", "no")
    with running(tmp_path / "redis", *settings):
        url = f"rediss://127.0.0.1:{port}"
        check_use(RedisStore.from_url(f"{url}?ssl_ca_certs={ca}", prefix=prefix))
        store = open_store(url)
        with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
            store.append(KEY, entries(1))


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols_of_redis(server: RedisServer, prefix: str, protocol: int) -> None:
    check_use(RedisStore.from_url(f"{server.url}?protocol={protocol}", prefix=prefix))


@pytest.mark.filterwarnings("ignore:Call to '__init__':DeprecationWarning")  # redis 6.0 to 6.3
def test_a_cluster(tmp_path: Path, prefix: str) -> None:
    with running(tmp_path / "redis", *APPEND_ONLY, "--cluster-enabled", "yes") as own:
        own.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait(lambda: own.client.cluster("info")["cluster_state"] == "ok")
        client = redis.RedisCluster.from_url(own.url, socket_timeout=2)
        check_use(RedisStore(client, prefix=prefix))
        store = WaitingRedis(RedisStore(client, prefix=prefix))
        bell = watch(store)
        own.stop()
        own.start()
        wait(lambda: own.client.cluster("info")["cluster_state"] == "ok")
        assert seqs_of(store) == [1, 2]
        bell.rings()
        assert store.append(KEY, entries(3)) is STORED
        bell.rings()
        store.close()
        client.close()


def works_again(work: Callable[[], bool]) -> None:
    """Wait until it does not fail any more, and returns True."""

    def succeeds() -> bool:
        try:
            return work()
        except redis.RedisError:
            return False

    wait(succeeds)


def test_sentinel_fails_over(tmp_path: Path, prefix: str, stack: ExitStack) -> None:
    """The store finds the new primary, with what was replicated; watches go on there."""
    with (
        running(tmp_path / "one", *APPEND_ONLY, "--repl-diskless-sync-delay", "0") as one,
        running(tmp_path / "two", *APPEND_ONLY, "--replicaof", "127.0.0.1", str(one.port)) as two,
        sentinel(tmp_path, one.port) as port,
    ):
        sentinels = redis.sentinel.Sentinel([("127.0.0.1", port)], socket_timeout=2)
        for each in sentinels.sentinels:
            stack.callback(each.close)
        wait(lambda: sentinels.discover_slaves("main"))
        client = sentinels.master_for("main", socket_timeout=2)
        check_use(RedisStore(client, prefix=prefix))
        stack.callback(client.close)
        store = stack.enter_context(closing(WaitingRedis(RedisStore(client, prefix=prefix))))
        bell = watch(store)
        # WAIT is about the writes of its own connection, and those before them.
        wait(lambda: one.client.set("last", "") and one.client.wait(1, 100) == 1)
        one.kill()

        works_again(lambda: store.append(KEY, entries(3), token="t") is STORED)
        works_again(lambda: seqs_of(store) == [1, 2, 3])
        assert two.client.info("replication")["role"] == "master"
        wait(two.client.pubsub_channels)
        bell.forget()
        works_again(lambda: store.append(KEY, entries(4), token="u") is STORED)
        bell.rings()


def test_clients_that_cannot_be_used() -> None:
    with pytest.raises(TypeError, match=r"redis\.Redis or redis\.RedisCluster, got redis\.asyncio"):
        RedisStore(importlib.import_module("redis.asyncio").Redis())
    with pytest.raises(LocalProtocolError, match="decode_responses=False"):
        RedisStore(redis.Redis(decode_responses=True))
    with pytest.raises(LocalProtocolError, match="decode_responses=False"):
        RedisStore.from_url("redis://127.0.0.1?decode_responses=yes")
    with pytest.raises(LocalProtocolError, match="prefix must have"):
        RedisStore(redis.Redis(), prefix="{x}")
    with pytest.raises(ValueError, match="redis://"):
        RedisStore.from_url("http://127.0.0.1")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (APPEND_ONLY, []),
        (("--save", ""), ["set appendonly yes"]),
        ((*APPEND_ONLY, "--maxmemory-policy", "allkeys-lru"), ["and not allkeys-lru"]),
        (("--maxmemory-policy", "volatile-ttl"), ["set appendonly yes", "and not volatile-ttl"]),
        ((*APPEND_ONLY, "--rename-command", "INFO", ""), []),
    ],
    ids=["right", "no file", "policy", "both", "INFO is forbidden"],
)
def test_settings_that_lose_entries(
    tmp_path: Path,
    open_store: OpenStore,
    caplog: pytest.LogCaptureFixture,
    settings: tuple[str, ...],
    told: list[str],
) -> None:
    """One line is logged, however the store is used first. CONFIG is not needed."""
    with running(tmp_path / "redis", *settings, "--rename-command", "CONFIG", "") as own:
        for uses_secret in (True, False):
            caplog.clear()
            store = open_store(own.url)
            for _ in range(2):
                assert store.secret if uses_secret else store.append(KEY, entries(1))
            lines = [each for each in caplog.messages if each.startswith("RedisStore:")]
            assert len(lines) == bool(told)
            for text in told:
                assert text in lines[0]


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("import sansmcp_stores, sys; print('redis' in sys.modules)", "False"),
        (
            "from sansmcp_stores import SqliteStore; import sys; print('redis' in sys.modules)",
            "False",
        ),
        (
            "import sys; sys.modules['redis'] = None\n"
            "from sansmcp_stores import *\n"
            "try: RedisStore.from_url('redis://x')\n"
            "except ImportError as error: print(error)",
            "RedisStore needs the extra: pip install 'sansmcp[redis]'",
        ),
    ],
    ids=["the package", "SqliteStore", "without the extra"],
)
def test_redis_is_imported_when_it_is_used(program: str, output: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == output


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work_until_the_end_of_input(*sys.argv[2:])
    else:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(race(*sys.argv[2:])))
