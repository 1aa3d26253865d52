"""Checks of clients: calls that succeed, with every form of response."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from sansmcp.base_client import ServerRequest
from sansmcp.client.options import ClientSettings
from sansmcp.errors import CallError, JsonRpcError
from sansmcp.trace import Tracer

from .adapter_under_test import Answer, ClientUnderTest, Feature
from .check import client_check, expect, happened, raises, same
from .clients import LEGACY, MODERN, OLDEST, call, connected, notified, start, talking, until
from .fake_server import (
    Exchange,
    FakeServer,
    Script,
    accept,
    echo,
    encode,
    event,
    in_turn,
    progress,
    server_result,
)

_WORDS = {"text": "a\u2028ä😀"}


def by_stream(exchange: Exchange) -> None:
    """Respond to a call with an event stream that ends properly."""
    exchange.begin_stream()
    exchange.end(exchange.answer(exchange.message["params"]["arguments"]))


def _by_closing(exchange: Exchange) -> None:
    """Respond to a call with JSON that ends when the connection is closed."""
    body = encode({"id": exchange.id, "result": _WORDS})
    exchange.send(exchange.head(200, {"content-type": "application/json"}) + body)
    exchange.close()


def _as_chunks(exchange: Exchange) -> None:
    body = encode({"id": exchange.id, "result": _WORDS})
    headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
    exchange.send(exchange.head(200, headers))
    exchange.chunk(body[:20])
    exchange.end(body[20:])


@client_check()
def calls_with_a_session(subject: ClientUnderTest) -> None:
    """A client initializes a session, calls, and ends the session when it is closed (2025-11-25).

    Perform every OpenExchange effect, and feed its response to the machine until it is complete.
    """
    with FakeServer() as server:
        with connected(subject, server.url, versions=LEGACY) as client:
            same(client.connected.version, *LEGACY, "the version")
            same(call(client, _WORDS), _WORDS, "the result")
        same(
            server.asked,
            ["initialize", "notifications/initialized", "tools/call", "DELETE"],
            "the requests that the server received",
        )


@client_check()
def calls_that_stand_alone(subject: ClientUnderTest) -> None:
    """A client discovers the server and calls, without a session (2026-07-28)."""
    with FakeServer() as server:
        with connected(subject, server.url, versions=MODERN) as client:
            same(client.connected.version, *MODERN, "the version")
            same(call(client, _WORDS), _WORDS, "the result")
        same(
            server.asked, ["server/discover", "tools/call"], "the requests that the server received"
        )


@client_check()
def the_era_is_found_out(subject: ClientUnderTest) -> None:
    """A client with the default settings detects that a server needs a handshake.

    Pass the application's settings to sansmcp.Client unchanged, and set no defaults of your own.
    """

    def unknown(exchange: Exchange) -> None:
        exchange.reply(400)

    with (
        FakeServer({"server/discover": unknown}) as server,
        connected(subject, server.url) as client,
    ):
        same(client.connected.version, "2025-11-25", "the version")


@client_check(Feature.CONCURRENCY)
def calls_over_http_sse(subject: ClientUnderTest) -> None:
    """Over HTTP+SSE (2024-11-05) responses arrive on one stream that stays open.

    Read every response as it arrives, while other requests are sent.
    """
    call_over_http_sse(subject)


def call_over_http_sse(subject: ClientUnderTest, unix: str | None = None) -> None:
    """Connect over HTTP+SSE, at a port or a Unix socket, and make a call."""
    streams: list[Exchange] = []

    def stream(exchange: Exchange) -> None:
        exchange.begin_stream()
        streams.append(exchange)  # before the client knows where to POST
        exchange.chunk(b"event: endpoint\ndata: /messages?token=1\n\n")
        exchange.wait_until_gone()

    def post(exchange: Exchange) -> None:
        accept(exchange)
        is_call = exchange.key == "tools/call"
        streams[0].chunk(exchange.answer(_WORDS if is_call else server_result(*OLDEST)))

    scripts = {"GET": stream, "initialize": post, "tools/call": post}
    old: ClientSettings = {"transports": ("http+sse",), "versions": OLDEST}
    with talking(subject, scripts, unix=unix, **old) as (client, _):
        same(client.connected.transport, "http+sse", "the transport")
        same(call(client, _WORDS), _WORDS, "the result")


def _every_form(subject: ClientUnderTest, piece: int) -> None:
    forms: list[Script] = [echo, by_stream, _as_chunks, _by_closing]
    with talking(subject, {"tools/call": in_turn(*forms)}, piece=piece) as (client, _):
        for form in forms:
            same(call(client, _WORDS), _WORDS, f"the result {form.__name__}")


@client_check()
def every_form_of_answer(subject: ClientUnderTest) -> None:
    """Responses arrive as JSON with a length, in chunks, or until the close, and as event streams.

    When the server closes the connection, call receive_eof(): it may be the end of the response.
    """
    _every_form(subject, piece=0)


@client_check()
def answers_in_pieces(subject: ClientUnderTest) -> None:
    """A response may arrive byte by byte.

    Feed received bytes at once, and keep reading until the exchange is done.
    """
    _every_form(subject, piece=1)


@client_check()
def large_messages(subject: ClientUnderTest) -> None:
    """Messages of five megabytes are sent and received.

    Send all of the bytes, also if the socket accepts only a part at a time.
    """
    large = {"text": "x" * 5_000_000}
    forms: list[Script] = [echo, by_stream]
    with talking(subject, {"tools/call": in_turn(*forms)}) as (client, _):
        for form in forms:
            expect(call(client, large) == large, f"the result {form.__name__} differs")


@client_check(Feature.CONCURRENCY)
def many_calls_at_once(subject: ClientUnderTest) -> None:
    """Fifty calls run at the same time, and each gets its own result.

    Run each exchange on a connection of its own; no exchange waits for another.
    """
    waiting: list[Exchange] = []
    arrivals = itertools.count(1)

    def answer_all(exchange: Exchange) -> None:
        waiting.append(exchange)
        if next(arrivals) == 50:
            for each in reversed(waiting):
                echo(each)

    with talking(subject, {"tools/call": answer_all}) as (client, _):
        calls = [start(client, {"number": number}) for number in range(50)]
        results = [each.result() for each in calls]
        same(results, [{"number": number} for number in range(50)], "the results")


def _raise_if_planted(line: str) -> None:
    if "< " in line and "planted" in line:
        raise ZeroDivisionError("a bug")


@client_check()
def exceptions_that_no_one_expects(subject: ClientUnderTest) -> None:
    """An exception raised by a bug, in machine or adapter, ends its call with a CallError.

    Catch Exception around each exchange, log it, and feed ConnectionLost for that exchange. Other
    calls continue.
    """
    # The machine calls a Tracer while it works, so a Tracer that raises simulates a bug.
    scripts: dict[str, Script] = {"tools/call": _plant}
    with talking(subject, scripts, trace=Tracer("check", _raise_if_planted)) as (client, _):
        for _ in range(2):
            same(call(client, {"n": 1}), {"n": 1}, "the result before")
            raises(CallError, lambda: call(client, {"n": 2}), "a call that a bug interrupts")
            same(call(client, {"n": 3}), {"n": 3}, "the result afterwards")


def _plant(exchange: Exchange) -> None:
    arguments = exchange.message["params"]["arguments"]
    exchange.result({"text": "planted"} if arguments["n"] == 2 else arguments)


@client_check()
def errors_of_the_server(subject: ClientUnderTest) -> None:
    """A JSON-RPC error is raised as a JsonRpcError, not inside an exception group."""

    def fail(exchange: Exchange) -> None:
        exchange.json({"id": exchange.id, "error": {"code": -7, "message": "no", "data": [1]}})

    with talking(subject, {"tools/call": fail}) as (client, _):
        error = raises(JsonRpcError, lambda: call(client), "a call that gets an error")
        same((error.code, error.message, error.data), (-7, "no", [1]), "the error")


@client_check()
def progress_and_notifications(subject: ClientUnderTest) -> None:
    """Progress goes to the callback of its call, other notifications to the events, in order.

    Dispatch every event: sansmcp.ClientDriver does it.
    """

    def work(exchange: Exchange) -> None:
        exchange.begin_stream()
        for number in range(1, 4):
            exchange.chunk(event(progress(exchange, number)))
            exchange.chunk(event({"method": "notifications/x", "params": {"number": number}}))
        exchange.end(exchange.answer({}))

    reports: list[float] = []
    with talking(subject, {"tools/call": work}) as (client, _):
        events = client.events()
        call(client, on_progress=lambda report: reports.append(report.progress))
        same(reports, [1, 2, 3], "the progress reports")
        numbers = [each["number"] for each in notified(events, 3)]
        same(numbers, [1, 2, 3], "the notifications")


@client_check()
def notifications_to_the_server(subject: ClientUnderTest) -> None:
    """A notification of the application is sent."""
    with talking(subject, {"notifications/x": accept}) as (client, server):
        client.notify("notifications/x", {"a": 1})
        until(client, lambda: "notifications/x" in server.asked, "the notification")


def _hear(request: ServerRequest) -> dict[str, Any]:
    asks = None if request.call is None else [request.call.method, request.call.params["name"]]
    return {"heard": request.params["message"], "by": asks}


_HEARD = {"heard": "name?", "by": ["tools/call", "tool"]}


@client_check(Feature.CONCURRENCY)
def questions_during_a_call(subject: ClientUnderTest) -> None:
    """Server requests during a call get responses while the call continues (2025-11-25).

    For ServerRequestReceived, call the request handler with a ServerRequest that names the call.
    Then call respond(), respond_exception() or refuse_unsupported(): sansmcp.ClientDriver does it.
    """
    answers: dict[int, Any] = {}
    answered = threading.Event()

    def ask(exchange: Exchange) -> None:
        exchange.begin_stream()
        for id, method in enumerate(("elicitation/create", "roots/list", "sampling/createMessage")):
            exchange.chunk(event({"id": id, "method": method, "params": {"message": "name?"}}))
        happened(answered, "the server requests got no responses")
        exchange.end(exchange.answer({"answers": [answers[id] for id in range(3)]}))

    def take(exchange: Exchange) -> None:
        accept(exchange)
        message = exchange.message
        answers[exchange.id] = message.get("result") or message["error"]["code"]
        if len(answers) == 3:
            answered.set()

    def refuse(request: ServerRequest) -> Any:
        raise JsonRpcError(-9, "not now")

    functions: dict[str, Answer] = {"elicitation/create": _hear, "roots/list": refuse}
    able: ClientSettings = {"capabilities": {"elicitation": {}, "roots": {}}}
    with talking(subject, {"tools/call": ask, "answer": take}, functions, **able) as (client, _):
        result = call(client)
        same(result, {"answers": [_HEARD, -9, -32601]}, "the responses")


@client_check()
def questions_in_rounds(subject: ClientUnderTest) -> None:
    """Input requests of a result get responses, and the call is sent again (2026-07-28)."""

    def ask(exchange: Exchange) -> None:
        given = exchange.message["params"].get("inputResponses")
        if given is None:
            request = {"method": "elicitation/create", "params": {"message": "name?"}}
            wanted = {"inputRequests": {"n": request}, "requestState": "s"}
            exchange.result({"resultType": "input_required", **wanted})
        else:
            exchange.result({"resultType": "complete", "given": given})

    functions: dict[str, Answer] = {"elicitation/create": _hear}
    modern: ClientSettings = {"versions": MODERN, "capabilities": {"elicitation": {}}}
    with talking(subject, {"tools/call": ask}, functions, **modern) as (client, _):
        same(call(client)["given"], {"n": _HEARD}, "the responses")
