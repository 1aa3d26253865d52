"""Refusals, and answers that are none: the call fails once, says why, and is not repeated."""

from __future__ import annotations

import pytest

from sansmcp import BodyData, CallError, Disconnected, InvalidResponse, Limits, RequestRefused

from .bench import Bench, only_failure
from .detection_bench import failure

# Refusals


@pytest.mark.parametrize("status", [400, 401, 403, 405, 406, 413, 429, 500, 503])
def test_refusals_end_the_call_and_are_not_repeated(bench: Bench, status: int) -> None:
    handle, asked = bench.call()
    asked.refuse(status, b"because")
    error = only_failure(bench, handle)
    assert isinstance(error, RequestRefused)
    assert (error.status, error.body) == (status, b"because")
    assert f"HTTP {status}: because" in str(error)
    bench.wait(100)
    assert bench.requests == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, 'the server requires authorization (Bearer realm="x", scope="a")'),
        (403, 'the server does not permit this (Bearer realm="x", scope="a")'),
    ],
)
def test_a_challenge_is_shown(bench: Bench, status: int, said: str) -> None:
    """Row E5 of the review."""
    challenge = 'Bearer realm="x", scope="a"'
    handle, asked = bench.call()
    asked.refuse(status, www_authenticate=challenge)
    error = only_failure(bench, handle)
    assert isinstance(error, RequestRefused)
    assert error.challenges == (challenge,)
    assert str(error).endswith(f"was answered with HTTP {status}: {said}")


def test_what_a_server_says_is_shown_on_one_line(bench: Bench) -> None:
    """Row B10 of the review."""
    handle, asked = bench.call()
    asked.refuse(403, b"a\x1b[31m\x9b b", www_authenticate="x\x80" + "y" * 1000)
    text = str(only_failure(bench, handle))
    assert "a\\u001b[31m" in text
    assert "\\u0080yyy" in text
    assert text.isprintable()
    assert len(text) < 600


def test_queries_are_not_shown() -> None:
    """Row B9 of the review: where to go, and where the server would have us go."""
    bench = Bench(url="http://user.example/mcp?key=hunter2")
    bench.do(bench.client.start)
    bench.take().refuse(307, location="http://other.example/mcp?key=hunter2")
    text = str(failure(bench))
    assert "hunter2" not in text
    assert "http://user.example/mcp?..." in text
    assert "'http://other.example/mcp?...'" in text


def test_a_long_refusal_is_cut(bench: Bench) -> None:
    handle, asked = bench.call()
    asked.head(500)
    for _ in range(100):
        asked.feed(BodyData(b"x" * 10_000))
    asked.cut()
    error = only_failure(bench, handle)
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
def test_json_that_is_no_answer(bench: Bench, body: bytes, kind: type[CallError]) -> None:
    handle, asked = bench.call()
    assert asked.id == 1
    asked.answer(body)
    assert isinstance(only_failure(bench, handle), kind)


@pytest.mark.parametrize(
    "data", [b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"result":1,"error":1}']
)
def test_an_event_that_should_have_been_the_answer(bench: Bench, data: bytes) -> None:
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(data)
    assert isinstance(only_failure(bench, handle), InvalidResponse)
    assert asked.aborted


def test_answers_that_are_too_large() -> None:
    bench = Bench(limits=Limits(max_message_bytes=1000)).connect()
    handle, asked = bench.call()
    asked.head(content_type="application/json")
    asked.feed(BodyData(b" " * 999))
    assert bench.events == []
    asked.feed(BodyData(b"  "))
    error = only_failure(bench, handle)
    assert isinstance(error, InvalidResponse)
    assert "1000 bytes" in str(error)
    assert asked.aborted
    handle, asked = bench.call()
    asked.open_stream()
    asked.event(b"x" * 1001, id="1")
    assert isinstance(only_failure(bench, handle), InvalidResponse)
    bench.wait(100)
    assert bench.requests == []


def test_parts_of_no_exchange_are_ignored(bench: Bench) -> None:
    bench.client.receive_part(999, BodyData(b"x"), now=0)
    _, asked = bench.call()
    asked.result()
    asked.feed(BodyData(b"x"))
    asked.cut()
    assert len(bench.events) == 1
