"""The blocking client: one request after the other, in the thread that waits."""

from __future__ import annotations

import errno
import json
import signal
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

import httpx
import pytest

from sansmcp import Disconnected, JsonRpcError, LocalProtocolError, RequestTimeout, ServerRequest
from sansmcp.events import ClientEvent, ServerNotified
from sansmcp.revisions import HANDSHAKE_VERSIONS, REVISIONS
from sansmcp_httpx import BlockingClient, connect_blocking

from ..blocking.conftest import PATIENCE, wait_for_event
from .conftest import FakeWebServer, Token

ASKING: dict[str, Any] = {"versions": HANDSHAKE_VERSIONS, "capabilities": {"elicitation": {}}}


@pytest.fixture
def http() -> Generator[httpx.Client, None, None]:
    with httpx.Client() as http:
        yield http


@pytest.mark.parametrize("version", REVISIONS)
def test_every_revision(http: httpx.Client, url: str, version: str) -> None:
    reports: list[float] = []
    with connect_blocking(url, http, versions=(version,)) as client:
        assert client.connected.version == version
        for number in range(3):
            result = client.call_tool("any", {"n": number})
            assert result["arguments"] == {"n": number}
        client.call_tool("steps", on_progress=lambda report: reports.append(report.progress))
    assert reports == [1, 2, 3]


def test_the_settings_of_httpx_hold(url: str, web: FakeWebServer) -> None:
    web.seen.clear()
    with httpx.Client(auth=Token(), headers={"x-tenant": "acme"}) as http:
        with connect_blocking(url, http) as client:
            client.call_tool("any")
        assert not http.is_closed
    for headers in web.seen:
        assert (headers["authorization"], headers["x-tenant"]) == ("Bearer token", "acme")


def test_answers_and_events(http: httpx.Client, url: str) -> None:
    events: list[ClientEvent] = []

    def elicit(request: ServerRequest) -> Any:
        client.ping()  # an answer may ask for something itself
        return {"action": "decline"}

    with connect_blocking(
        url, http, request_handlers={"elicitation/create": elicit}, on_event=events.append, **ASKING
    ) as client:
        assert client.call_tool("ask") == {"said": {"action": "decline"}}
        client.call_tool("tell")
        client.notify("notifications/roots/list_changed")
    told = [event for event in events if isinstance(event, ServerNotified)]
    assert [event.notification.method for event in told] == ["notifications/message"]


def test_answers_that_there_are_not(
    http: httpx.Client, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(request: ServerRequest) -> Any:
        raise RuntimeError("secret")

    for answers in ({}, {"elicitation/create": broken}):
        with (
            connect_blocking(url, http, request_handlers=answers, **ASKING) as client,
            pytest.raises(JsonRpcError),
        ):
            client.call_tool("ask")
    assert "the handler of elicitation/create failed" in caplog.text


def test_timeouts_are_those_of_the_call(url: str) -> None:
    with (
        httpx.Client(timeout=httpx.Timeout(5, read=0.01)) as http,
        connect_blocking(url, http) as client,
    ):
        result = client.call_tool("slow", {"seconds": 0.2})
        assert result["arguments"] == {"seconds": 0.2}
        with pytest.raises(RequestTimeout):
            client.call_tool("slow", {"seconds": 60}, timeout=0.05)
        assert client.call_tool("any", {"a": 1})["arguments"] == {"a": 1}


def test_nobody_is_there(http: httpx.Client) -> None:
    with pytest.raises(Disconnected, match="ConnectError"):
        connect_blocking("http://127.0.0.1:1/mcp", http, connect_timeout=1.0)


def test_an_interrupt_cancels_the_call(http: httpx.Client, url: str) -> None:
    def interrupt(request: ServerRequest) -> Any:
        signal.raise_signal(signal.SIGINT)

    answers = {"elicitation/create": interrupt}
    with connect_blocking(url, http, request_handlers=answers, **ASKING) as client:
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("ask")
        assert client.call_tool("any", {"a": 1})["arguments"] == {"a": 1}


def test_another_thread_has_to_wait(http: httpx.Client, url: str) -> None:
    asked, go_on = threading.Event(), threading.Event()
    results: list[Any] = []

    def answer(request: ServerRequest) -> Any:
        asked.set()
        wait_for_event(go_on)
        return {"action": "decline"}

    def call(client: BlockingClient) -> None:
        results.append(client.call_tool("ask"))

    answers = {"elicitation/create": answer}
    with connect_blocking(url, http, request_handlers=answers, **ASKING) as client:
        thread = threading.Thread(target=call, args=(client,))
        thread.start()
        wait_for_event(asked)
        with pytest.raises(LocalProtocolError, match="thread"):
            client.call_tool("any")
        go_on.set()
        thread.join()
    assert results == [{"said": {"action": "decline"}}]


def test_closing_twice(http: httpx.Client, url: str) -> None:
    client = connect_blocking(url, http)
    client.close()
    client.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        client.call_tool("any")


class Endless(httpx.SyncByteStream):
    """An event stream that says nothing, again and again."""

    is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        end = time.monotonic() + 2 * PATIENCE
        while time.monotonic() < end:
            yield b": nothing\n\n"

    def close(self) -> None:
        self.is_closed = True


def test_a_stream_that_never_ends_is_broken_off() -> None:
    stream = Endless()

    def answer(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content or b"{}")
        match message.get("method"):
            case "initialize":
                result: Any = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "serverInfo": {},
                }
                answered = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                return httpx.Response(200, json=answered)
            case "tools/call":
                headers = {"content-type": "text/event-stream"}
                return httpx.Response(200, headers=headers, stream=stream)
            case _:
                return httpx.Response(202)

    began = time.monotonic()
    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as http,
        connect_blocking("http://localhost/mcp", http, versions=HANDSHAKE_VERSIONS) as client,
        pytest.raises(RequestTimeout),
    ):
        client.call_tool("any", timeout=0.05)
    assert stream.is_closed
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize(
    ("url", "http", "said"),
    [
        (["python", "server.py"], httpx.Client(), "httpx starts no processes"),
        (
            "http://127.0.0.1/",
            httpx.AsyncClient(),
            "http must be an httpx.Client or httpx2.Client, got ",
        ),
        ("http://127.0.0.1/", None, "http must be an httpx.Client or httpx2.Client, got None"),
    ],
)
def test_arguments_of_other_kinds(url: Any, http: Any, said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        connect_blocking(url, http)


def test_async_functions_are_refused(url: str, http: httpx.Client) -> None:
    """Nothing would ever await them."""

    async def waits(event: Any) -> Any:
        raise NotImplementedError

    functions: Any = waits
    with pytest.raises(LocalProtocolError, match="on_event is an async function"):
        connect_blocking(url, http, on_event=functions)
    match = r"request_handlers\['roots/list'\] is an async function"
    with pytest.raises(LocalProtocolError, match=match):
        connect_blocking(url, http, request_handlers={"roots/list": functions})
    with (
        connect_blocking(url, http) as client,
        pytest.raises(LocalProtocolError, match="on_progress is an async function"),
    ):
        client.call_tool("steps", on_progress=functions)


class ResetStream:
    """A connection that the server has reset; what it had sent before can be read."""

    def get_extra_info(self, info: str) -> Any:
        assert info == "server_addr"
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")


def test_a_response_is_read_after_its_connection_was_reset() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        message = json.loads(request.content)
        result = {
            "protocolVersion": HANDSHAKE_VERSIONS[-1],
            "capabilities": {},
            "serverInfo": {"name": "s", "version": "1"},
        }
        response = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        extensions = {"network_stream": ResetStream()}
        if "id" not in message:
            return httpx.Response(202, extensions=extensions)
        return httpx.Response(200, json=response, extensions=extensions)

    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as http,
        connect_blocking("http://mcp.test/mcp", http, versions=HANDSHAKE_VERSIONS) as client,
    ):
        assert client.connected.version == HANDSHAKE_VERSIONS[-1]
