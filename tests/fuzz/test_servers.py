"""Mutated HTTP bytes and lines of stdio against servers of all revisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sansmcp import ServerConnection, ServerPipe, h11_parser, httptools_parser

from .mutations import SEEDS, with_length
from .server_harness import (
    LEGACY_MESSAGES,
    MODERN_MESSAGES,
    Bystander,
    Peer,
    World,
    ended,
    get,
    http_corpus,
    initialize,
    message,
    post,
    session_header,
)


def over_http(seed: int, count: int, **settings: Any) -> Iterator[tuple[int, bytes]]:
    """Feed mutated requests; yield the number and the bytes of each before it is fed."""
    world = World(seed, **settings)
    random = world.random
    bystander = Bystander(world)
    session, corpus = b"", list[bytes]()
    for number in range(count):
        if number % 40 == 0:
            assert bystander.is_answered()
            response = Peer(world, ServerConnection).feed(post(initialize("2025-11-25")))
            session = session_header(response).partition(b" ")[2]
            corpus = http_corpus(session, b"token-%d-0" % seed)
            world.finish_calls()
        data = random.mutated(random.choice(corpus), corpus)
        yield number, data
        peer = Peer(world, ServerConnection)
        peer.feed(*random.pieces(data))
        if random.random() < 0.1:
            world.finish_calls()
            if random.random() < 0.3:
                world.wait(65, peer, bystander.peer)
        peer.end()
        assert peer.is_closed
    assert bystander.is_answered()
    bystander.peer.end()
    assert ended(world)


def over_stdio(seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Feed mutated lines; yield the number and the bytes of each before it is fed."""
    world = World(seed)
    random = world.random
    bystander = Bystander(world)
    corpus = [each + b"\n" for each in (*LEGACY_MESSAGES, *MODERN_MESSAGES)]
    peer = Peer(world, ServerPipe)
    for number in range(count):
        if number % 20 == 0:
            assert bystander.is_answered()
            world.finish_calls()
            peer.end()
            world.wait(6, peer)
            assert peer.is_closed
            peer = Peer(world, ServerPipe)
            if random.random() < 0.8:
                peer.feed(
                    initialize(random.choice(("2024-11-05", "2025-03-26", "2025-11-25"))) + b"\n"
                )
                peer.feed(message("notifications/initialized") + b"\n")
        data = random.mutated(random.choice(corpus), corpus)
        yield number, data
        peer.feed(*random.pieces(data))
    peer.machine.connection_lost(now=world.now)
    bystander.peer.end()
    assert ended(world)


def check(seed: int, cases: Iterator[tuple[int, bytes]]) -> None:
    case: tuple[int, bytes] | None = None
    try:
        for each in cases:
            case = each
    except Exception as error:
        raise AssertionError(f"seed {seed}: {case!r}") from error


@pytest.mark.parametrize("parser", [h11_parser, httptools_parser], ids=["h11", "httptools"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_requests(seed: int, parser: Any) -> None:
    """2,000 requests each."""
    check(seed, over_http(seed, 2000, http11=parser.HTTP11))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_requests_where_sessions_are_shared(seed: int) -> None:
    """1,000 requests each."""
    check(seed, over_http(1000 + seed, 1000, shared_store=True, multi_turn=True))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_lines(seed: int) -> None:
    """2,000 lines each."""
    check(seed, over_stdio(seed, 2000))


def test_what_was_found_stays_found() -> None:
    """Bytes for which a machine once raised."""
    for data in (
        get(target=b"http://]"),
        with_length(post(b'{"jsonrpc":"2.0","id":' + b"9" * 641 + b',"method":"ping"}')),
    ):
        world = World(0)
        peer = Peer(world, ServerConnection)
        assert peer.feed(data).startswith(b"HTTP/1.1 4")
