"""Asynchronous stores, on every adapter: they wait, and nothing else does."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from urllib.request import Request, urlopen

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp import Limits, StateSigner
from sansmcp.revisions import HANDSHAKE_VERSIONS
from sansmcp_local import ThreadCall

from ..server.harness import BOTH, JSON, LATEST, initialize, request
from ..slow_store import SlowStore, TellingStore
from .test_plain_handlers import PATIENCE, Serve, everywhere
from .test_plain_handlers import serve as serve

SIGNER = StateSigner(keys=(b"k" * 32,), clock=time.time)


def reporting_app() -> sansmcp.App:
    """A tool that reports progress so many times."""
    app = sansmcp.App("waiting", "1")

    @app.handler("tools/call")
    def call_tool(call: ThreadCall) -> Any:
        count = call.params["arguments"]["count"]
        for number in range(count):
            call.progress(number + 1)
        return {"counted": count}

    return app


def connect(url: str, **settings: Any) -> sansmcp_blocking.Client:
    return sansmcp_blocking.connect(url, versions=HANDSHAKE_VERSIONS, **settings)


def call(client: sansmcp_blocking.Client, count: int) -> list[float]:
    """Call the tool; returns the progress that was reported."""
    seen: list[float] = []
    result = client.call_tool(
        "count", {"count": count}, on_progress=lambda report: seen.append(report.progress)
    )
    assert result["counted"] == count
    return seen


@everywhere
def test_all_is_stored_in_order(serve: Serve) -> None:
    store = SlowStore()
    running = serve(reporting_app(), store=store)
    with connect(running.url) as client:
        assert call(client, 50) == list(range(1, 51))
    assert store.appended >= 51


@everywhere
def test_different_logs_overlap_and_nothing_waits_for_a_store_that_waits(serve: Serve) -> None:
    store = SlowStore()
    running = serve(reporting_app(), store=store)
    with ThreadPoolExecutor(10) as pool, ExitStack() as stack:
        *clients, other = [stack.enter_context(connect(running.url)) for _ in range(11)]
        store.hold()
        calls = [pool.submit(call, client, 3) for client in clients]
        assert store.wait_held(10, PATIENCE)
        other.ping()  # the server does other work
        assert not any(each.done() for each in calls)
        store.release()
        assert [each.result(PATIENCE) for each in calls] == [[1, 2, 3]] * 10
    assert store.most >= 10


@everywhere
@pytest.mark.parametrize("what", ["fail", "lose_replies"])
def test_what_fails_is_repeated_and_comes_once(serve: Serve, what: str) -> None:
    store = SlowStore()
    running = serve(reporting_app(), store=store)
    with connect(running.url) as client:
        getattr(store, what)(3)
        assert call(client, 3) == [1, 2, 3]
    assert store.appended == 4


@everywhere
def test_the_end_waits_for_the_store(serve: Serve) -> None:
    """The last messages of a call are stored before its server has ended."""
    store = SlowStore()
    before = set(threading.enumerate())
    running = serve(reporting_app(), store=store)
    with connect(running.url) as client:
        assert call(client, 1) == [1]
    running.stop()
    left = {each for each in threading.enumerate() if each.name == "sansmcp store"} - before
    assert not left


@everywhere
def test_a_server_that_stops_while_its_store_does_not_answer(serve: Serve) -> None:
    store = SlowStore()
    running = serve(reporting_app(), store=store, graceful_timeout=0.0)
    once = sansmcp.ReconnectPolicy(max_attempts=0)
    with ThreadPoolExecutor(1) as pool, connect(running.url, reconnect=once) as client:
        store.hold()
        under_way = pool.submit(call, client, 1)
        assert store.wait_held(1, PATIENCE)
        running.stop()
        under_way.exception(PATIENCE)  # it has ended
    assert not [each for each in threading.enumerate() if each.name == "sansmcp store"]


@everywhere
def test_an_instance_is_told_of_what_another_one_stores(serve: Serve) -> None:
    """Both poll once in ten minutes only, so what one waits for comes because the store tells."""
    store = TellingStore()
    limits = Limits(store_poll_interval=600, store_check_interval=600)
    app = sansmcp.App("asking", "1")

    @app.handler("tools/call")
    def call_tool(call: ThreadCall) -> Any:
        return call.ask("elicitation/create", {"message": "?"}, timeout=PATIENCE)

    settings: dict[str, Any] = {
        "store": store,
        "limits": limits,
        "shared_store": True,
        "state_signer": SIGNER,
    }
    first = serve(app, **settings)
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0), **settings) as second:
        opened = post(first.url, initialize(LATEST, {"elicitation": {}}))
        session = opened.headers["mcp-session-id"]
        asked = post(first.url, request(1), session)
        lines = (line for line in asked if line.startswith(b"data: {"))
        question = json.loads(next(lines)[6:])
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}
        assert post(second.url, answer, session).status == 202
        assert json.loads(next(lines)[6:])["result"] == {"action": "accept"}
    first.stop()
    wait_for_end(store)


def post(url: str, message: Any, session: str | None = None) -> Any:
    headers = {"accept": BOTH, "content-type": JSON}
    if session is not None:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": LATEST}
    body = json.dumps(message).encode()
    return urlopen(Request(url, body, headers, method="POST"), timeout=PATIENCE)


def wait_for_end(store: TellingStore) -> None:
    """All watches end with their servers."""
    assert store.watched == {}
