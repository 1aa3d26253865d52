"""Refusals, and answers that are none: the call fails once, says why, and is not repeated."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, CallError, Disconnected, InvalidResponse, Limits, RequestRefused
from sansmcp.events import CallCompleted

from .detection_harness import failure
from .harness import ClientHarness, only_failure

# Refusals


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 413, 500, 503])
def test_refusals_end_the_call_and_are_not_repeated(harness: ClientHarness, status: int) -> None:
    handle, asked = harness.call()
    asked.refuse(status, b"because")
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.body) == (status, b"because")
    assert f"HTTP {status}: because" in str(error)
    harness.wait(100)
    assert harness.requests == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, 'the server requires authorization (Bearer realm="x", scope="a")'),
        (403, 'the server does not permit this (Bearer realm="x", scope="a")'),
    ],
)
def test_a_challenge_is_shown(harness: ClientHarness, status: int, said: str) -> None:
    challenge = 'Bearer realm="x", scope="a"'
    handle, asked = harness.call()
    asked.refuse(status, www_authenticate=challenge)
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert error.challenges == (challenge,)
    assert str(error).endswith(f"was answered with HTTP {status}: {said}")


def test_what_a_server_says_is_shown_on_one_line(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.refuse(403, b"a\x1b[31m\x9b b", www_authenticate="x\x80" + "y" * 1000)
    text = str(only_failure(harness, handle))
    assert "a\\u001b[31m" in text
    assert "\\u0080yyy" in text
    assert text.isprintable()
    assert len(text) < 600


def test_queries_are_not_shown() -> None:
    """Where to go, and where the server would have us go."""
    harness = ClientHarness(url="http://user.example/mcp?key=hunter2")
    harness.run_command(harness.client.start)
    harness.take().refuse(307, location="http://other.example/mcp?key=hunter2")
    text = str(failure(harness))
    assert "hunter2" not in text
    assert "http://user.example/mcp?..." in text
    assert "'http://other.example/mcp?...'" in text


def test_a_long_refusal_is_cut(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.head(500)
    for _ in range(100):
        asked.feed(BodyData(b"x" * 10_000))
    asked.cut()
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert len(error.body) == 64 * 1024
    assert len(str(error)) < 500


# What is no answer


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", InvalidResponse),
        (b"{", InvalidResponse),
        (b'"x"', InvalidResponse),
        (b'{"jsonrpc":"2.0","id":1}', InvalidResponse),
        (b'{"jsonrpc":"2.0","method":"a"}', Disconnected),
        (b"[]", Disconnected),
        (b'[{"jsonrpc":"2.0","id":1}]', InvalidResponse),
    ],
)
def test_json_that_is_no_answer(harness: ClientHarness, body: bytes, kind: type[CallError]) -> None:
    handle, asked = harness.call()
    assert asked.id == 1
    asked.answer(body)
    assert isinstance(only_failure(harness, handle), kind)


@pytest.mark.parametrize(
    "data", [b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"result":1,"error":1}']
)
def test_an_event_that_should_have_been_the_answer(harness: ClientHarness, data: bytes) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(data)
    assert isinstance(only_failure(harness, handle), InvalidResponse)
    assert asked.aborted


def test_an_event_with_an_empty_batch_is_no_answer(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(b"[]")
    assert harness.events == []
    asked.event(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    (completed,) = harness.take_events()
    assert isinstance(completed, CallCompleted)
    assert completed.call == handle


def test_answers_that_are_too_large() -> None:
    harness = ClientHarness(limits=Limits(max_message_bytes=1000)).connect()
    handle, asked = harness.call()
    asked.head(content_type="application/json")
    asked.feed(BodyData(b" " * 999))
    assert harness.events == []
    asked.feed(BodyData(b"  "))
    error = only_failure(harness, handle)
    assert isinstance(error, InvalidResponse)
    assert "1000 bytes" in str(error)
    assert asked.aborted
    handle, asked = harness.call()
    asked.open_stream()
    asked.event(b"x" * 1001, id="1")
    assert isinstance(only_failure(harness, handle), InvalidResponse)
    harness.wait(100)
    assert harness.requests == []


def test_parts_of_no_exchange_are_ignored(harness: ClientHarness) -> None:
    harness.client.receive_part(999, BodyData(b"x"), now=0)
    _, asked = harness.call()
    asked.result()
    asked.feed(BodyData(b"x"))
    asked.cut()
    assert len(harness.events) == 1
