"""The transition tables are complete, lead somewhere, and are what the printed text says."""

from __future__ import annotations

import enum
import itertools

import pytest

from sansmcp.errors import LocalProtocolError
from sansmcp.states import advance

from .tables import GOLDEN, NAMED, Table, events, render, states

ENDS = {
    "opening": {"CLOSED"},
    "process": {"ENDED"},
    "stream": {"CLOSED"},
    "server": {"STOPPED"},
    "session": {"ENDED"},
    "log": {"CLOSED"},
    "task log": {"SETTLED"},
    "call": {"ANSWERED", "CANCELLED"},
    "exchange": {"DONE"},
    "pipe": {"CLOSED"},
    "connection": {"CLOSED"},
    "authorization": {"CLOSED"},
}
"""The states of each table that nothing leads out of."""


def reachable(table: Table, start: enum.Enum) -> set[enum.Enum]:
    """The states that can come after a state, and that state."""
    found: set[enum.Enum] = set()
    waiting = [start]
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting.extend(table[state].values())
    return found


def ends(table: Table) -> set[enum.Enum]:
    return {state for state in table if reachable(table, state) == {state}}


@pytest.mark.parametrize("name", NAMED)
def test_every_state_is_a_row_in_the_order_of_its_enum(name: str) -> None:
    assert list(NAMED[name]) == states(NAMED[name])


@pytest.mark.parametrize("name", NAMED)
def test_every_event_can_happen(name: str) -> None:
    table = NAMED[name]
    assert {event for row in table.values() for event in row} == set(events(table))


@pytest.mark.parametrize("name", NAMED)
def test_every_event_leads_to_a_state_or_is_refused(name: str) -> None:
    table = NAMED[name]
    for state, event in itertools.product(states(table), events(table)):
        if event in table[state]:
            assert advance(table, state, event) is table[state][event]
            assert table[state][event] in table
        else:
            with pytest.raises(LocalProtocolError, match="does not allow"):
                advance(table, state, event)


@pytest.mark.parametrize("name", NAMED)
def test_every_state_is_reached_from_the_first(name: str) -> None:
    first, *_ = states(NAMED[name])
    assert reachable(NAMED[name], first) == set(NAMED[name])


@pytest.mark.parametrize("name", NAMED)
def test_every_state_leads_to_an_end(name: str) -> None:
    table = NAMED[name]
    assert {state.name for state in ends(table)} == ENDS[name]
    assert all(reachable(table, state) & ends(table) for state in table)


def test_the_printed_text_shows_the_tables() -> None:
    how = "python -m tests.house.tables > tests/house/tables.txt writes it anew"
    assert GOLDEN.read_text() == render(), how


class Light(enum.Enum):
    RED = enum.auto()
    GREEN = enum.auto()


class Change(enum.Enum):
    GO = enum.auto()


def test_what_leads_nowhere_is_seen() -> None:
    circle: Table = {Light.RED: {Change.GO: Light.GREEN}, Light.GREEN: {Change.GO: Light.RED}}
    assert ends(circle) == set()
    island: Table = {Light.RED: {Change.GO: Light.RED}, Light.GREEN: {}}
    assert reachable(island, Light.RED) == {Light.RED}
    assert ends(island) == {Light.RED, Light.GREEN}
