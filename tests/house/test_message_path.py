"""ARCHITECTURE.md follows a message through the modules that it does pass through."""

from __future__ import annotations

import pytest

from .message_path import (
    AT_THE_CLIENT,
    AT_THE_SERVER,
    PAGE,
    UNKNOWN,
    Function,
    clauses,
    items,
    paths,
    render,
    renewed,
    section,
    trace,
)

PATH = [
    Function("b", "C.first"),
    Function("a", "f"),
    Function("b", "C.last"),
    Function("types", "x"),
]


@pytest.mark.parametrize("heading", paths())
def test_the_page_lists_what_a_message_passes_through(heading: str) -> None:
    text = section(PAGE.read_text(), heading)
    how = "python -m tests.house.message_path writes the lists of ARCHITECTURE.md anew"
    assert items(text) == render(paths()[heading], clauses(text)), how


def test_the_page_says_what_each_step_does() -> None:
    assert UNKNOWN not in PAGE.read_text()


def test_a_page_that_is_right_stays_as_it_is() -> None:
    assert renewed(PAGE.read_text()) == PAGE.read_text()


def test_the_ways_are_traced_from_end_to_end() -> None:
    first, *_ = paths()[AT_THE_SERVER]
    assert first == ("http11/server_connection", "ServerConnection.receive_data")
    first, *_, last = paths()[AT_THE_CLIENT]
    assert first == ("http11/client_connection", "ClientConnection.receive_data")
    assert last == ("base_client", "PendingResult._complete")


def test_steps_are_in_the_order_in_which_they_are_entered() -> None:
    known = {PATH[2]: "comes back.", PATH[1]: "works."}
    assert render(PATH, known) == "1. `a` `f`: works.\n2. `b` `C.last`: comes back.\n"


def test_a_module_that_is_left_out_is_seen() -> None:
    assert render(PATH, {PATH[1]: "works."}).startswith(f"1. `b` `C.first`: {UNKNOWN}\n")


def test_a_step_that_is_not_taken_is_seen() -> None:
    assert "gone" not in render(PATH, {PATH[1]: "works.", Function("b", "gone"): "was here."})


def test_items_are_read_as_they_were_written() -> None:
    known = {
        PATH[0]: "is a step. " * 20 + "It ends.",
        PATH[1]: "is another.",
        PATH[2]: "is one more.",
    }
    text = render(PATH, known)
    assert max(map(len, text.splitlines())) <= 100
    assert clauses(text) == known
    assert items(f"Before.\n\n{text}\nAfter.\n") == text


def test_only_the_library_is_traced() -> None:
    assert trace(lambda: None) == ()
