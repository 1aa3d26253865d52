"""Mutated responses, event streams and process output against clients of all revisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sansmcp import h11_parser, httptools_parser
from sansmcp.process import StderrData, StdoutData
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp.states import ClientState

from .client_harness import FuzzClient, http_client, messages
from .mutations import SEEDS, Mutator
from .server_harness import MODERN
from .test_servers import check


def over_http(seed: int, count: int, http11: Any) -> Iterator[tuple[int, bytes]]:
    """Respond with mutated responses; yield the number and the bytes before they are fed."""
    random = Mutator(seed)
    world: FuzzClient | None = None
    data = b""
    for number in range(count):
        if world is None or world.is_closed:
            world = http_client(random, http11)
            world.client.start(now=world.now)
            world.run_pending()
        handle = world.call()
        if world.open:
            effect = random.choice(list(world.open.values()))
            data = world.damaged(effect)
            yield number, data
            world.exchange(effect, data)
        world.pass_time(random.choice((1.0, 60.0)), world.answer_requests)
        if handle is None:
            world.is_closed = True
            continue
        if random.random() < 0.1:
            world.client.close(now=world.now)
            world.run_pending()
        world.pass_time(2000.0, world.answer_requests)
        assert world.ended[handle] == 1, f"ended {world.ended[handle]} times"
        if world.is_closed:
            assert world.client.state is ClientState.CLOSED
            assert world.client.next_deadline() is None


def over_process(seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Feed mutated lines of a server process."""
    random = Mutator(seed)
    world: FuzzClient | None = None
    for number in range(count):
        if world is None or world.is_closed:
            versions = random.choice((HANDSHAKE_VERSIONS, tuple(REVISIONS), (MODERN,)))
            world = FuzzClient(random, target=("server",), versions=versions)
            world.client.start(now=world.now)
            world.run_pending()
        if random.random() < 0.8:
            world.answer_lines()
        handle = world.call()
        corpus = [each + b"\n" for each in messages(random.randrange(4))]
        data = random.mutated(random.choice(corpus), corpus)
        yield number, data
        for piece in random.pieces(data):
            kind = StdoutData if random.random() < 0.95 else StderrData
            world.client.receive_process_part(kind(piece), now=world.now)
            world.run_pending()
        if random.random() < 0.05:
            world.exit()
        if handle is None:
            world.is_closed = True
            continue
        world.pass_time(random.choice((1.0, 2000.0)), world.answer_lines)
        world.pass_time(100.0, lambda: None)
        assert world.ended[handle] == 1, f"ended {world.ended[handle]} times"


@pytest.mark.parametrize("parser", [h11_parser, httptools_parser], ids=["h11", "httptools"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_responses(seed: int, parser: Any) -> None:
    """750 calls each, with one mutated response at least."""
    check(seed, over_http(seed, 750, parser.HTTP11))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_output(seed: int) -> None:
    """1,500 lines each."""
    check(seed, over_process(seed, 1500))
