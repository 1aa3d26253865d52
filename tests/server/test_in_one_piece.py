"""Bodies that are fed whole, and responses that are taken whole, beside those in parts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import BodyData, BodyEnd, Idle, Limits, RequestHead
from sansmcp.effects import ExchangeEffect, SendBody, SendEnd, SendHead
from sansmcp.http import ConnectionLost, RequestPart, ResponseHead
from sansmcp.observer import Observer
from sansmcp.server.exchange import ServerExchange

from .harness import BOTH, JSON, ServerHarness, initialize

BODY = json.dumps(initialize("2025-11-25", {})).encode()


class Recorder(Observer):
    """Keeps the parts of each exchange."""

    def __init__(self) -> None:
        self.parts: dict[int, list[RequestPart | ExchangeEffect]] = {}

    def part_received(self, exchange: int, part: Any) -> None:
        self.parts.setdefault(exchange, []).append(part)

    def part_sent(self, exchange: int, effect: ExchangeEffect) -> None:
        self.part_received(exchange, effect)


def head(method: bytes = b"POST", length: int | None = None) -> RequestHead:
    fields = [
        (b"host", b"localhost"),
        (b"accept", BOTH.encode()),
        (b"content-type", JSON.encode()),
    ]
    if length is not None:
        fields.append((b"content-length", b"%d" % length))
    return RequestHead(method=method, target=b"/mcp", headers=tuple(fields))


def begun(harness: ServerHarness, first: RequestHead) -> ServerExchange:
    exchange = harness.server.open_exchange()
    harness.server.receive_part(exchange, first, now=0.0)
    return exchange


def effects_of(harness: ServerHarness, exchange: ServerExchange) -> list[ExchangeEffect]:
    found: list[ExchangeEffect] = []
    while not isinstance(effect := harness.server.next_effect_of(exchange), Idle):
        found.append(effect)
    return found


@pytest.mark.parametrize(("method", "body"), [(b"POST", BODY), (b"POST", b"{"), (b"DELETE", b"")])
@pytest.mark.parametrize("is_watched", [True, False])
def test_whole_and_in_parts(method: bytes, body: bytes, is_watched: bool) -> None:
    recorder = Recorder()
    harness = ServerHarness(sessions=False, observer=recorder if is_watched else None)
    in_parts, whole = begun(harness, head(method)), begun(harness, head(method))
    for part in [BodyData(body)] * bool(body):
        harness.server.receive_part(in_parts, part, now=0.0)
    harness.server.receive_part(in_parts, BodyEnd(), now=0.0)
    harness.server.receive_body(whole, body, now=0.0)
    response = harness.server.next_response_of(whole)
    assert response is not None
    expected = [SendHead(response[0]), *[SendBody(response[1])] * bool(response[1]), SendEnd()]
    assert effects_of(harness, in_parts) == expected
    assert harness.server.next_response_of(whole) is None
    assert harness.server.next_effect_of(whole) is Idle.NEED_DATA
    assert recorder.parts.get(whole.id) == recorder.parts.get(in_parts.id)
    assert bool(recorder.parts) is is_watched


def test_a_response_without_a_body_is_taken_whole() -> None:
    harness = ServerHarness(sessions=False, observer=(recorder := Recorder()))
    exchange = begun(harness, head())
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    harness.server.receive_body(exchange, json.dumps(note).encode(), now=0.0)
    sent = ResponseHead(status=202, headers=((b"content-length", b"0"),))
    assert harness.server.next_response_of(exchange) == (sent, b"")
    assert recorder.parts[exchange.id][-2:] == [SendHead(sent), SendEnd()]


def test_what_is_begun_or_given_up_is_not_taken_whole(harness: ServerHarness) -> None:
    session = harness.open_session()
    talk, call = harness.call(session)
    assert harness.server.next_response_of(talk.exchange) is None
    talk.reads = False
    harness.run_action(call.respond, {"a": 1})
    assert isinstance(harness.server.next_effect_of(talk.exchange), SendHead)
    assert harness.server.next_response_of(talk.exchange) is None
    assert [type(each) for each in effects_of(harness, talk.exchange)] == [SendBody, SendEnd]
    talk, call = harness.call(session, 2)
    talk.lose_connection()
    assert harness.server.next_response_of(talk.exchange) is None


def test_a_whole_body_that_is_too_large_is_refused() -> None:
    harness = ServerHarness(limits=Limits(max_request_bytes=10))
    exchange = begun(harness, head())
    harness.server.receive_body(exchange, BODY, now=0.0)
    response = harness.server.next_response_of(exchange)
    assert response is not None
    assert response[0].status == 413


def test_a_whole_body_after_the_end_is_ignored(harness: ServerHarness) -> None:
    exchange = begun(harness, head())
    harness.server.receive_part(exchange, ConnectionLost(), now=0.0)
    harness.server.receive_body(exchange, BODY, now=0.0)
    assert exchange.is_done
    assert harness.server.sessions == ()


def test_a_whole_body_waits_for_the_principal() -> None:
    harness = ServerHarness(authentication=True)
    exchange = begun(harness, head())
    harness.server.receive_body(exchange, BODY, now=0.0)
    assert harness.server.next_response_of(exchange) is None
    harness.run_pending()
    harness.server.authenticated(harness.asked[0], "me", now=0.0)
    response = harness.server.next_response_of(exchange)
    assert response is not None
    assert response[0].status == 200
    (session,) = harness.server.sessions
    assert session.principal == "me"
