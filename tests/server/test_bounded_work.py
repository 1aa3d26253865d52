"""What one request may cost a server: its bytes, its values, and whether it is read at all."""

from __future__ import annotations

import json

import pytest

from sansmcp import Limits
from sansmcp.effects import StoreRead
from sansmcp.http import BodyData, BodyEnd, RequestHead

from .harness import BOTH, JSON, PING, RawExchange, ServerHarness, expect, initialize, request
from .instances import Instances
from .pipe_harness import Pipe

MODERN = "2026-07-28"


def head(session: str | None, *headers: tuple[str, str], principal: str = "") -> RequestHead:
    """Of a POST whose length is not known."""
    pairs = (("host", "localhost"), ("accept", BOTH), ("content-type", JSON), *headers)
    if session is not None:
        pairs = (*pairs, ("mcp-session-id", session))
    fields = tuple((name.encode(), value.encode()) for name, value in pairs)
    return RequestHead(method=b"POST", target=b"/mcp", headers=fields, principal=principal)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(), 4 * 1024 * 1024),
        (Limits(max_request_bytes=2000), 2000),
        (Limits(max_message_bytes=1000), 1000),
    ],
)
def test_requests_have_a_bound_of_their_own(limits: Limits, most: int) -> None:
    """Requests had the bound of answers, 32 MiB."""
    harness = ServerHarness(limits=limits)
    expect(harness.post(b"[" + b" " * (most - 1)), 400, "malformed_json", -32700)
    expect(harness.post(b"[" + b" " * most), 413, "message_too_large")
    talk = RawExchange(harness).feed(head(None)).feed(BodyData(b" " * most))
    assert not talk.ended
    expect(talk.feed(BodyData(b" ")), 413, "message_too_large")


def test_lines_of_stdio_have_the_same_bound() -> None:
    pipe = Pipe(limits=Limits(max_request_bytes=300))
    (answer,) = pipe.say(request(1, "ping", x="y" * 300)).said
    assert answer["error"]["data"] == {"reason": "message_too_large", "limit": 300}


@pytest.mark.parametrize("filling", [b"1,", b"[],", b'"",', b'{"":1},'])
def test_values_are_bounded(filling: bytes) -> None:
    """32 MiB of nested arrays took 10 s and 1.6 GiB."""
    harness = ServerHarness(limits=Limits(max_values=1000))
    expect(harness.post(b"[" + filling * 1000 + b"1]"), 400, "too_many_values", -32700)
    in_a_string = harness.post(b'["' + b"[1,2]," * 1000 + b'"]')
    assert in_a_string.error["data"]["reason"] != "too_many_values"


@pytest.mark.parametrize("length", [None, "70000"])
def test_an_unknown_session_is_refused_from_the_head(length: str | None) -> None:
    """The whole body was read and decoded before the session was found."""
    harness = ServerHarness()
    session = harness.open_session(principal="alice")
    headers = () if length is None else (("content-length", length),)
    for unknown, principal in (("nope", "alice"), (session, "eve")):
        talk = RawExchange(harness).feed(head(unknown, *headers, principal=principal))
        expect(talk, 404, "session_not_found")
        talk.feed(BodyData(b"x" * 1000)).feed(BodyEnd())
    assert not RawExchange(harness).feed(head(session, *headers, principal="alice")).ended
    modern = ("mcp-protocol-version", MODERN)
    assert not RawExchange(harness).feed(head("nope", modern, *headers)).ended


def test_an_initialize_is_no_request_of_an_unknown_session() -> None:
    """Nor is it where instances share a store, and its body is long."""
    for harness in (ServerHarness(), *Instances()):
        talk = RawExchange(harness).feed(head(None)).feed(BodyData(b" " * 100_000))
        talk.feed(BodyData(json.dumps(initialize("2025-11-25", {})).encode())).feed(BodyEnd())
        assert talk.status == 200


def test_a_store_is_asked_for_a_session_before_a_long_body_has_come() -> None:
    """Instances that share a store look there first."""
    first, second = Instances()
    session = first.open_session()
    known = RawExchange(second).feed(head(session)).feed(BodyData(b" " * 100_000))
    assert not known.ended
    expect(RawExchange(second).feed(head("nope")), 404, "session_not_found")


def test_a_slow_store_holds_no_body_up() -> None:
    """What is complete before the store has told is looked up as ever."""
    _, second = Instances()
    second.store_works = False
    short = RawExchange(second).feed(head("nope")).feed(BodyData(PING)).feed(BodyEnd())
    for _ in range(2):
        assert not short.ended
        assert isinstance(second.use_store_once(), StoreRead)
    expect(short, 404, "session_not_found", id=7)
    unsure = RawExchange(second).feed(head("nope"))
    second.fail_store_once()
    assert not unsure.ended
