"""What whoever runs a server finds in its log."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp.events import RefusalSent, ServerEvent, StoreFailed
from sansmcp_local import _log, log_event

BAD_REQUEST = RefusalSent(sansmcp.RemoteProtocolError("no", reason="no"))


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (StoreFailed("disk full", lost=True), "WARNING", "messages are lost: disk full"),
        (StoreFailed("disk full", lost=False), "WARNING", "unable to resume: disk full"),
        (BAD_REQUEST, "DEBUG", "RefusalSent"),
    ],
)
def test_what_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture, event: ServerEvent, level: str, text: str
) -> None:
    with caplog.at_level(logging.DEBUG, logger="sansmcp"):
        log_event(event)
    (record,) = caplog.records
    assert record.levelname == level
    assert text in record.getMessage()


class FullDisk(sansmcp.MemoryStore):
    """Keeps nothing."""

    def append(
        self,
        key: sansmcp.StreamKey,
        entries: tuple[sansmcp.Entry, ...],
        *,
        token: str,
        now: float,
    ) -> sansmcp.AppendResult:
        raise OSError("disk full")


def test_a_server_whose_store_fails(caplog: pytest.LogCaptureFixture) -> None:
    app = sansmcp.App("teller", "1")

    @app.handler("tools/call")
    def call_tool(call: sansmcp_blocking.Call) -> dict[str, object]:
        call.progress(1)
        return {"content": []}

    limits = sansmcp.Limits(store_retry_timeout=0.01)
    with (
        sansmcp_blocking.serve(
            app, http=("127.0.0.1", 0), store=FullDisk(), limits=limits
        ) as serving,
        sansmcp_blocking.connect(serving.url, versions=("2025-11-25",)) as client,
    ):
        assert client.call_tool("any") == {"content": []}
    assert "the store has failed" in caplog.text


@pytest.fixture
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just started."""
    monkeypatch.setattr(_log, "_said", set[str]())


UNKNOWN = RefusalSent(sansmcp.RemoteProtocolError("who?", reason="session_not_found"))


@pytest.mark.usefixtures("nothing_said")
def test_the_first_unknown_session_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Row E8 of the review: several processes without a store, and nothing names the cause."""
    with caplog.at_level(logging.DEBUG, logger="sansmcp"):
        log_event(UNKNOWN)  # instances share a store, so that is not the cause
        for _ in range(3):
            log_event(UNKNOWN, shared_store=False)
    assert [record.levelname for record in caplog.records] == ["DEBUG", "WARNING", "DEBUG", "DEBUG"]
    assert "another process opened it" in caplog.text
    assert "shared_store=True" in caplog.text


@pytest.mark.usefixtures("nothing_said")
@pytest.mark.parametrize("shared", [False, True])
def test_a_server_that_does_not_know_a_session(
    caplog: pytest.LogCaptureFixture, shared: bool
) -> None:
    """Row E8 of the review: the refusal and the log name the cause and the cure."""
    settings: dict[str, Any] = {}
    if shared:
        seal = sansmcp.StateSigner(keys=(bytes(16),), clock=time.time)
        settings = {"store": sansmcp.MemoryStore(), "shared_store": True, "state_signer": seal}
    app = sansmcp.App("teller", "1")
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0), **settings) as serving:
        request = urllib.request.Request(serving.url, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        request.add_header("content-type", "application/json")
        request.add_header("accept", "application/json, text/event-stream")
        request.add_header("mcp-session-id", "of-another-process")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
    with refused.value as response:
        message = json.loads(response.read())["error"]["message"]
    assert response.status == 404
    assert "send initialize" in message
    assert ("share a store (store and shared_store)" in message) is not shared
    assert ("another process opened it" in caplog.text) is not shared


def test_what_fails_again_and_again_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Row A16 of the review: a locked file is said once, not for each stream."""
    with caplog.at_level(logging.DEBUG, logger="sansmcp"):
        log_event(StoreFailed("locked", lost=False))
        log_event(StoreFailed("locked", lost=False, again=True))
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG"]
