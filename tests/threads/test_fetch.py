"""The client around ``fetch``, where the published checks do not look.

The guide to embedding has a program whose ``fetch`` passes those.
"""

from __future__ import annotations

import http.client
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

import sansmcp_local
from sansmcp import Disconnected, JsonRpcError, LocalProtocolError, RequestTimeout, ServerRequest
from sansmcp_pytest._checks.fake_server import Exchange, FakeServer, accept, echo, event

LEGACY = ("2025-11-25",)
MOMENT = 20.0


def fetch(
    method: str, url: str, headers: list[tuple[str, str]], body: bytes | None
) -> tuple[int, list[tuple[str, str]], Iterator[bytes]]:
    """A connection for each request; it cannot be aborted."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc)
    connection.request(method, place.path, body, dict(headers))
    response = connection.getresponse()

    def pieces() -> Iterator[bytes]:
        with closing(connection), response:
            yield from iter(lambda: response.read1(65536), b"")

    return response.status, response.getheaders(), pieces()


def abortable(method: str, url: str, headers: list[tuple[str, str]], body: bytes | None) -> Any:
    """The same, but it can be."""
    place = urlsplit(url)
    with closing(http.client.HTTPConnection(place.netloc)) as connection:
        connection.connect()
        opened = connection.sock
        sansmcp_local.on_abort(lambda: opened.shutdown(socket.SHUT_RDWR))
        connection.request(method, place.path, body, dict(headers))
        with connection.getresponse() as response:
            sansmcp_local.on_abort(None)
            return response.status, response.getheaders(), [response.read()]


def call(client: sansmcp_local.FetchClient, **arguments: Any) -> Any:
    return client.call_tool("tool", arguments, timeout=MOMENT)


@pytest.mark.parametrize("interrupted", ["the thread that waits", "another thread"])
def test_an_interrupt_ends_the_wait_and_cancels_the_call(interrupted: str) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(exchange: Exchange) -> None:
        if exchange.message["params"]["arguments"]:
            echo(exchange)
        else:
            here = interrupted == "another thread"
            signal.pthread_kill(threading.get_ident() if here else main, signal.SIGINT)
            assert raised.wait(MOMENT)  # and not when the call has timed out
            exchange.wait_until_gone()

    raised = threading.Event()
    with (
        FakeServer({"tools/call": interrupt}) as server,
        sansmcp_local.connect_fetch(
            server.url, abortable, versions=LEGACY, standalone_stream=False
        ) as client,
    ):
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("tool", {}, timeout=2 * MOMENT)
        raised.set()
        server.wait_for("notifications/cancelled")
        assert call(client, a=1) == {"a": 1}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_threads_share_a_client() -> None:
    def call_with(number: int) -> Any:
        return call(client, n=number)

    with (
        FakeServer() as server,
        sansmcp_local.connect_fetch(
            server.url, fetch, versions=LEGACY, standalone_stream=False
        ) as client,
        ThreadPoolExecutor(20) as threads,
    ):
        results = list(threads.map(call_with, range(100)))
    assert results == [{"n": number} for number in range(100)]


def test_a_function_that_answers_the_server_holds_nothing_up() -> None:
    asked, may_answer = threading.Event(), threading.Event()
    answers: list[Any] = []

    def elicit(request: ServerRequest) -> Any:
        asked.set()
        assert may_answer.wait(MOMENT)
        if request.params["message"] == "fail":
            raise JsonRpcError(-9, "not now")
        return {"action": "accept"}

    def ask(exchange: Exchange) -> None:
        if not exchange.message["params"]["arguments"]:
            return echo(exchange)
        exchange.begin_stream()
        for id, message in enumerate(("name?", "fail")):
            params = {"message": message}
            method = "elicitation/create"
            exchange.chunk(event({"id": id, "method": method, "params": params}))
        exchange.chunk(event({"id": 2, "method": "roots/list"}))
        server.wait(lambda: len(answers) == 3, "all answers")
        exchange.end(exchange.answer({"done": True}))

    def take(exchange: Exchange) -> None:
        message = exchange.message
        answers.append(message.get("result") or message["error"]["code"])
        accept(exchange)

    with (
        FakeServer({"tools/call": ask, "answer": take}) as server,
        sansmcp_local.connect_fetch(
            server.url,
            fetch,
            request_handlers={"elicitation/create": elicit},
            versions=LEGACY,
            standalone_stream=False,
            capabilities={"elicitation": {}},
        ) as client,
    ):
        pending = client.start_call("tools/call", {"name": "tool", "arguments": {"asks": 1}})
        assert asked.wait(MOMENT)
        assert call(client) == {}
        with pytest.raises(TimeoutError):
            pending.result(0.01)
        may_answer.set()
        assert pending.result(MOMENT) == {"done": True}
    assert sorted(answers, key=str) == [-32601, -9, {"action": "accept"}]


def test_what_fetch_raises_is_told() -> None:
    def break_down(method: str, url: str, headers: Any, body: bytes | None) -> Any:
        if body is not None and b"tools/call" in body:
            raise ZeroDivisionError("a bug")
        return fetch(method, url, headers, body)

    with (
        FakeServer() as server,
        sansmcp_local.connect_fetch(
            server.url, break_down, versions=LEGACY, standalone_stream=False
        ) as client,
        pytest.raises(Disconnected, match="a bug"),
    ):
        call(client)


def test_what_cannot_be_aborted_keeps_nobody() -> None:
    """Its thread waits until the server says something, and nobody else does."""
    done = threading.Event()

    def hang(exchange: Exchange) -> None:
        assert done.wait(MOMENT)
        echo(exchange)

    with FakeServer({"tools/call": hang}) as server:
        before = threading.active_count()
        client = sansmcp_local.connect_fetch(
            server.url, fetch, versions=LEGACY, standalone_stream=False
        )
        with pytest.raises(RequestTimeout):
            client.call_tool("tool", timeout=0.05)
        begun = time.monotonic()
        for _ in range(50):  # only the first waits for the thread
            client.close()
        assert time.monotonic() - begun < MOMENT
        with pytest.raises(LocalProtocolError):
            call(client)
        done.set()
        released = time.monotonic()
        while threading.active_count() > before:  # the end of its thread notifies nothing
            assert time.monotonic() - released < MOMENT
            time.sleep(0.01)
