"""Server processes that SIGKILL ends in the middle of a frame, after a drawn number of bytes."""

from __future__ import annotations

import asyncio
import random
import sys
from functools import partial
from typing import Any, cast

import pytest

import sansmcp_asyncio
import sansmcp_blocking
from sansmcp import CallError, Disconnected

from .test_conversations import ADAPTERS, command, settings, text_of

pytest.importorskip("h2")
trio = pytest.importorskip("trio")

import sansmcp_trio  # noqa: E402

if sys.platform == "win32":
    pytest.skip("there is no SIGKILL", allow_module_level=True)

CALLS = 30
IN_TIME = 120.0
"""Seconds in which all ends, also on a busy machine; the calls themselves would wait longer."""


def arguments_of(number: int) -> tuple[str, dict[str, Any]]:
    """The tool and the arguments of a call."""
    if number % 3:
        return "echo", {"text": f"{number} " + "y" * 40 * number}
    return "large", {"size": 2_000 * number}


def check(number: int, outcome: Any) -> bool:
    """Check how a call has ended, and return True if it has a result."""
    name, arguments = arguments_of(number)
    if isinstance(outcome, dict):
        result = cast("dict[str, Any]", outcome)
        expected = arguments["text"] if name == "echo" else "x" * arguments["size"]
        assert text_of(result) == expected
        return True
    assert isinstance(outcome, Disconnected), repr(outcome)
    assert "ended by signal 9" in str(outcome), str(outcome)
    return False


async def with_asyncio(server: list[str]) -> list[Any]:
    async with sansmcp_asyncio.connect(server, **settings()) as client:
        calls = [client.call_tool(*arguments_of(number)) for number in range(CALLS)]
        gathered = asyncio.gather(*calls, return_exceptions=True)
        return list(await asyncio.wait_for(gathered, IN_TIME))


async def with_trio(server: list[str]) -> list[Any]:
    outcomes: dict[int, Any] = {}
    async with sansmcp_trio.connect(server, **settings()) as client:

        async def call(number: int) -> None:
            assert number not in outcomes
            try:
                outcomes[number] = await client.call_tool(*arguments_of(number))
            except CallError as error:
                outcomes[number] = error

        with trio.fail_after(IN_TIME):
            async with trio.open_nursery() as nursery:
                for number in range(CALLS):
                    nursery.start_soon(call, number)
    return [outcomes[number] for number in range(CALLS)]


def with_blocking(server: list[str]) -> list[Any]:
    """Make one call after the other, up to the one that fails."""
    outcomes: list[Any] = []
    with sansmcp_blocking.connect(server, **settings()) as client:
        while not outcomes or isinstance(outcomes[-1], dict):
            try:
                outcomes.append(client.call_tool(*arguments_of(len(outcomes))))
            except CallError as error:
                outcomes.append(error)
    return outcomes


def kill(adapter: str, seed: int) -> None:
    # All responses together have about 280 kB, and the opening some hundred bytes.
    place = random.Random(f"{adapter} {seed}").choice((3_000, 30_000, 90_000, 200_000))
    place += random.Random(seed).randrange(1_000)
    server = command(ADAPTERS[seed % 3], str(place))
    if adapter == "asyncio":
        outcomes = asyncio.run(with_asyncio(server))
    elif adapter == "trio":
        outcomes = trio.run(partial(with_trio, server))
    else:
        outcomes = with_blocking(server)
    completed = [check(number, outcome) for number, outcome in enumerate(outcomes)]
    assert not all(completed), "the process was not killed"
    assert len(completed) == (completed.index(False) + 1 if adapter == "blocking" else CALLS)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_killed_process_ends_each_call_once(adapter: str, seed: int) -> None:
    kill(adapter, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_further_kills(adapter: str, seed: int) -> None:
    kill(adapter, seed)
