"""A rate limit that several servers count together, in a real store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

import sansmcp_asyncio
import sansmcp_blocking
from sansmcp import Limits, RateLimit
from sansmcp_stores import RedisStore, SqliteStore

from ..server.modern.harness import mirrored, modern, modern_app
from .redis_server import RedisServer, running
from .waiting import WaitingStore

LIMIT = RateLimit(0.001, burst=10)
"""No token comes back within a test."""

OpenStore = Callable[[], "SqliteStore | RedisStore"]


@pytest.fixture
def redis_server(tmp_path: Path) -> Generator[RedisServer, None, None]:
    with running(tmp_path / "redis") as server:
        yield server


@pytest.fixture(params=["SQLite", "Redis"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[OpenStore, None, None]:
    """Opens the same store again, with a connection of its own."""
    with ExitStack() as stack:
        if request.param == "Redis":
            url: str = request.getfixturevalue("redis_server").url
            yield lambda: stack.enter_context(closing(RedisStore.from_url(url)))
        else:
            yield lambda: stack.enter_context(closing(SqliteStore(tmp_path / "a.db")))


@asynccontextmanager
async def serving(*stores: SqliteStore | RedisStore) -> AsyncGenerator[list[str], None]:
    """One server for each store; gives their URLs."""
    async with AsyncExitStack() as stack:
        yield [
            (
                await stack.enter_async_context(
                    sansmcp_asyncio.serve(
                        modern_app(), http=("127.0.0.1", 0), store=store, rate_limit=LIMIT
                    )
                )
            ).url
            for store in stores
        ]


async def ask(urls: list[str], count: int) -> Counter[int]:
    """Make requests at all servers at once; gives how often each status came."""
    async with httpx.AsyncClient(timeout=30) as web:

        async def one(number: int) -> httpx.Response:
            message = modern(number, "server/discover")
            headers = {name: text for name, text in mirrored(message).items() if text}
            accept = {"accept": "application/json, text/event-stream"}
            return await web.post(
                urls[number % len(urls)], json=message, headers={**headers, **accept}
            )

        found = await asyncio.gather(*map(one, range(count)))
    for response in found:
        assert ("retry-after" in response.headers) == (response.status_code == 429)
    return Counter(response.status_code for response in found)


def test_two_servers_admit_no_more_than_the_rate(open_store: OpenStore) -> None:
    async def main() -> None:
        async with serving(open_store(), open_store()) as urls:
            assert await ask(urls, 16) == {200: 10, 429: 6}
            assert await ask(urls[:1], 3) == {429: 3}

    asyncio.run(main())


def test_threads_do_the_same(open_store: OpenStore) -> None:
    with ExitStack() as stack:
        urls = [
            stack.enter_context(
                sansmcp_blocking.serve(
                    modern_app(), http=("127.0.0.1", 0), store=open_store(), rate_limit=LIMIT
                )
            ).url
            for _ in range(2)
        ]
        assert asyncio.run(ask(urls, 16)) == {200: 10, 429: 6}


def test_each_counts_alone_while_the_store_is_away(redis_server: RedisServer) -> None:
    """Each server admits what its own count allows; no request is refused because of the store."""

    async def main(*stores: RedisStore) -> None:
        async with serving(*stores) as urls:
            assert await ask(urls, 4) == {200: 4}
            redis_server.stop()
            assert await ask(urls, 20) == {200: 16, 429: 4}
            redis_server.start()

    with (
        closing(RedisStore.from_url(redis_server.url)) as first,
        closing(RedisStore.from_url(redis_server.url)) as second,
    ):
        asyncio.run(main(first, second))


def test_each_counts_alone_while_the_store_hangs(redis_server: RedisServer) -> None:
    async def main(*stores: RedisStore) -> None:
        async with serving(*stores) as urls:
            with redis_server.hanging():
                assert await ask(urls, 22) == {200: 20, 429: 2}

    with (
        closing(RedisStore.from_url(redis_server.url)) as first,
        closing(RedisStore.from_url(redis_server.url)) as second,
    ):
        asyncio.run(main(first, second))


def test_buckets_are_forgotten_when_they_are_full(redis_server: RedisServer) -> None:
    redis = RedisStore.from_url(redis_server.url)
    with closing(WaitingStore(redis)) as store:
        for limit in (RateLimit(0.1, 5), RateLimit(1e-300, 10**6), RateLimit(1e9, 1)):
            assert store.run(redis.take(f"{limit}", 1, limit, now=0.0)) == 0.0
        ages = sorted(redis_server.client.pttl(key) for key in redis_server.client.keys("*rate*"))
        assert len(ages) in (2, 3)
        assert 9_000 < ages[-2] <= 10_000
        assert ages[-1] > 10**11
        assert store.run(redis.take("RateLimit(per_second=0.1, burst=5)", 1, LIMIT, now=0)) == 0.0


def test_the_buckets_in_a_file_are_bounded(tmp_path: Path) -> None:
    now = 1000.0
    limits = Limits(max_rate_buckets=3)
    file = SqliteStore(tmp_path / "a.db", limits, clock=lambda: now)
    with closing(WaitingStore(file)) as store:

        def take(name: str) -> float:
            return store.run(file.take(name, 1, RateLimit(0.1, 1), now=0.0))

        assert [take(name) for name in ("a", "b", "c")] == [0.0] * 3
        assert take("a") == 10.0
        now += 5
        assert [take(name) for name in ("d", "e")] == [0.0] * 2
        assert take("e") == 10.0
        assert take("a") == 0.0  # it was forgotten
        now += 100
        assert [take(name) for name in ("a", "d", "e")] == [0.0] * 3
