"""Clients end the call that their machine has raised for, and leave no other caller waiting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sansmcp
from sansmcp import Client, ClientConnection, ConnectionPool
from sansmcp_pytest import ClientUnderTest
from sansmcp_pytest._checks.clients import connected, start
from sansmcp_pytest._checks.fake_server import Exchange, FakeServer, echo

from ..asyncio.adapter_under_test import AsyncioClients
from ..blocking.adapter_under_test import BlockingClients
from ..trio.adapter_under_test import TrioClients
from .plants import Plant, Planted, public_names

CLIENTS: dict[str, Callable[[], ClientUnderTest]] = {
    "asyncio": lambda: AsyncioClients("asyncio"),
    "trio": TrioClients,
    "blocking": BlockingClients,
}


HIT = (
    "Client.call",
    "Client.drive",
    "Client.next_deadline",
    "Client.next_effect",
    "Client.next_event",
    "Client.receive_part",
    "ClientConnection.begin",
    "ClientConnection.receive_data",
    "ConnectionPool.begin",
    "ConnectionPool.release",
)
"""What is planted for nothing if it is not used."""


def plants() -> Iterator[Plant]:
    for kind in (Client, ClientConnection, ConnectionPool):
        for name in public_names(kind):
            for use in (1, 2):
                yield Plant(kind, name, use)


def outcome(pending: Any) -> str:
    """How a call ended; it must end."""
    try:
        pending.result()
    except (sansmcp.CallError, sansmcp.LocalProtocolError, Planted) as error:
        return type(error).__name__
    return "result"


@pytest.mark.parametrize("name", CLIENTS)
def test_an_exception_ends_a_call_and_no_caller_waits_for_ever(name: str) -> None:
    """Planted at each public method of the machines, one at a time."""
    hit: list[str] = []
    for plant in plants():
        plant.arm()
        with FakeServer({"tools/call": echo, "notifications/cancelled": ignore}) as server:
            ends: list[str] = []
            with (
                contextlib.suppress(Planted, sansmcp.CallError),
                connected(CLIENTS[name](), server.url, versions=("2025-11-25",)) as client,
                plant.sown(),
            ):
                pending = [start(client, {"n": n}) for n in range(3)]
                ends += [outcome(each) for each in pending]
                ends.append(outcome(start(client, {"n": "after"})))
            if plant.has_raised:
                hit.append(str(plant))
            assert ends[-1:] != ["result"] or ends.count("result") >= len(ends) - 1, (plant, ends)
    assert {f"{method} (1)" for method in HIT} - set(hit) == set()


def ignore(exchange: Exchange) -> None:
    exchange.reply(202)
