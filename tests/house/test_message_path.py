"""ARCHITECTURE.md follows a message through functions that exist."""

from __future__ import annotations

from .message_path import (
    AT_THE_CLIENT,
    AT_THE_SERVER,
    PAGE,
    Function,
    functions,
    named,
    paths,
    trace,
)


def test_the_functions_that_the_page_names_exist() -> None:
    found = named(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 50
    assert set(found) <= set(functions().values())


def test_the_headings_are_those_of_the_trace() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [heading for heading in paths() if f"\n### {heading}\n" not in page] == []


def test_the_ways_are_traced_from_end_to_end() -> None:
    first, *_ = paths()[AT_THE_SERVER]
    assert first == ("http11/server_connection", "ServerConnection.receive_data")
    first, *_, last, idle = paths()[AT_THE_CLIENT]
    assert first == ("http11/client_connection", "ClientConnection.receive_data")
    assert last == ("base_client", "PendingResult._complete")
    assert idle == ("drivers/machine", "MachineDriver.on_idle")


def test_a_list_names_functions() -> None:
    text = "1. `a/b` `C.first`: is a step, and\n   goes on.\n2. `c` `f`: ends.\n"
    assert named(text) == [Function("a/b", "C.first"), Function("c", "f")]


def test_only_the_library_is_traced() -> None:
    assert trace(lambda: None) == ()
