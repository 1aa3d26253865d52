"""Lines of stdio: cut anywhere, mixed with noise, or more than the application takes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import InvalidResponse, Limits
from sansmcp.events import CallCompleted, InvalidLine, ProtocolViolation, ServerNotified
from sansmcp.process import StdoutClosed, StdoutData

from .harness import ClientHarness, initialized, notification, only_failure, request, response
from .process_harness import ProcessHarness, line

requirement = pytest.mark.requirement
ABLE: dict[str, Any] = {"elicitation": {}}


@pytest.fixture
def harness() -> ProcessHarness:
    return ProcessHarness(capabilities=ABLE).connect()


# What is no message


@requirement("STDIO-B-001", "STDIO-B-002")
@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        (b"Server listening ...", "malformed_json"),
        (b"\xff\xfe", None),
        (b'{"jsonrpc":"2.0","id":1,"resu', "malformed_json"),
        (b'"hello"', "invalid_message"),
        (b'{"level":"info"}', "invalid_message"),
        (b'{"jsonrpc":"2.0","id":"1","result":1,"error":1}', "invalid_message"),
        (b"[" * 1000, None),
    ],
)
def test_noise_is_shown_and_skipped(
    harness: ProcessHarness, noise: bytes, reason: str | None
) -> None:
    handle, id = harness.make()
    harness.say(noise, response(id))
    shown, completed = harness.events
    assert isinstance(shown, InvalidLine)
    assert shown.line == noise[:200]
    assert reason in (None, shown.error.reason)
    assert completed == CallCompleted(handle, {})


def test_a_line_that_is_too_long_is_skipped() -> None:
    harness = ProcessHarness(limits=Limits(max_message_bytes=300)).connect()
    handle, id = harness.make()
    harness.say(b"x" * 301, response(id))
    shown, completed = harness.events
    assert isinstance(shown, InvalidLine)
    assert (shown.line, shown.error.reason) == (b"", "message_too_large")
    assert completed == CallCompleted(handle, {})


def test_blank_lines_and_windows_line_ends_are_no_noise(harness: ProcessHarness) -> None:
    handle, id = harness.make()
    harness.feed(StdoutData(b"\n \r\n\r\n" + line(response(id)).replace(b"\n", b"\r\n")))
    assert harness.events == [CallCompleted(handle, {})]


@pytest.mark.parametrize("answer", [{}, {"result": 1, "error": {}}, {"error": "x"}])
def test_an_invalid_answer_fails_its_call(harness: ProcessHarness, answer: Any) -> None:
    other, id1 = harness.make()
    handle, id2 = harness.make()
    harness.say({"jsonrpc": "2.0", "id": id2, **answer})
    failure = only_failure(harness, handle)
    assert isinstance(failure, InvalidResponse)
    assert failure.__cause__ is not None
    harness.say(response(id1))
    assert harness.events == [CallCompleted(other, {})]


def test_an_invalid_request_of_the_server_fails_no_call(harness: ProcessHarness) -> None:
    handle, id = harness.make()
    bad: Any = {"jsonrpc": "2.0", "id": id, "method": "roots/list", "params": []}
    harness.say(bad, [bad], response(id))
    assert [type(event) for event in harness.events] == [
        InvalidLine,
        ProtocolViolation,
        CallCompleted,
    ]
    assert harness.events[-1] == CallCompleted(handle, {})


def test_nor_does_it_on_the_stream_of_a_call() -> None:
    harness = ClientHarness().connect()
    handle, asked = harness.call()
    asked.open_stream()
    asked.event({"jsonrpc": "2.0", "id": asked.id, "method": "roots/list", "params": []})
    asked.event(response(asked.id))
    assert [type(event) for event in harness.events] == [ProtocolViolation, CallCompleted]
    assert harness.events[-1] == CallCompleted(handle, {})


# Any chunking, and an application that is slow

OUTPUT = b"".join(
    (
        line(initialized(0)),
        b"starting\r\n\n",
        line(notification("n1", text="\u2028ä")),
        line([response(1, "a"), notification("n2")]),
        line({"jsonrpc": "2.0", "id": 2}),
        line(request("q", "elicitation/create")),
        b"\xff" * 400 + b"\n",
        line(response(3, "c")),
    )
)


def converse(pieces: list[bytes]) -> tuple[list[str], bytes]:
    harness = ProcessHarness(capabilities=ABLE, limits=Limits(max_message_bytes=300)).start()
    for _ in range(3):
        harness.run_command(harness.client.call, "tools/call")
    for piece in pieces:
        harness.feed(StdoutData(piece))
    harness.feed(StdoutClosed())
    return [repr(event) for event in harness.events], harness.input


@given(st.lists(st.integers(0, len(OUTPUT)), max_size=30))
def test_any_chunking_gives_the_same_conversation(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(OUTPUT)]
    pieces = [OUTPUT[start:end] for start, end in itertools.pairwise(edges)]
    assert converse(pieces) == converse([OUTPUT])


def test_an_application_that_takes_no_events_stops_the_reading() -> None:
    harness = ProcessHarness(limits=Limits(max_queued_events=3)).connect()
    handle, id = harness.make()
    harness.takes_events = False
    lines = [notification(f"n{number}") for number in range(10)]
    harness.say(*lines[:5], b"noise", *lines[5:], response(id))
    harness.exit(1)
    assert harness.is_paused
    assert harness.events == []
    harness.wait(50)
    assert harness.done == ["StartProcess"]  # what it has written is not read yet
    harness.takes_events = True
    harness.run_pending()
    assert not harness.is_paused
    names = [e.notification.method for e in harness.events if isinstance(e, ServerNotified)]
    assert names == [f"n{number}" for number in range(10)]
    assert CallCompleted(handle, {}) in harness.events
    assert harness.closed() is not None
