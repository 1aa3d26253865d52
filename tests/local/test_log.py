"""What whoever runs a server finds in its log."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import json
import logging
import math
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp.events import ClocksDiffer, RefusalSent, ServerEvent, StoreFailed
from sansmcp.server import refusals
from sansmcp.server.challenges import not_authenticated
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
    monkeypatch.setattr(_log, "_refused", set[str]())


@pytest.mark.usefixtures("nothing_said")
def test_a_refused_host_is_told_once_with_the_setting_that_allows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = sansmcp.App("teller", "1")
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0)) as serving:
        for host in ("mcp.example.com", "mcp.example.com:443", "[::ffff:1]:80", "a\u009b", None):
            request = urllib.request.Request(serving.url, headers={"Host": host or ""})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(request, timeout=30)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    named, address, control, empty = warned
    assert "allowed_hosts=('mcp.example.com',)" in named
    assert "--allow-host mcp.example.com" in named
    assert "'[::ffff:1]'" in address
    assert "\u009b" not in control
    assert "status 403" in empty


@pytest.mark.usefixtures("nothing_said")
def test_a_refused_origin_is_told_once_with_the_setting_that_allows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = sansmcp.App("teller", "1")
    with sansmcp_blocking.serve(app, http=("127.0.0.1", 0)) as serving:
        for origin in (
            "https://a.example:8443",
            "https://a.example:8443",
            "null",
            "http://a/'\u009b",
        ):
            request = urllib.request.Request(serving.url, headers={"Origin": origin})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(request, timeout=30)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    named, unnamed, odd = warned
    assert "allowed_origins=('https://a.example:8443',) and cors=True" in named
    assert named.endswith("--cors https://a.example:8443")
    assert unnamed.endswith("the origin 'null' was refused with status 403")
    assert odd.endswith("refused with status 403")
    assert "\u009b" not in odd


@pytest.mark.usefixtures("nothing_said")
def test_the_number_of_warnings_of_hosts_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1000):
        log_event(RefusalSent(refusals.BAD_HOST(data={"host": f"host{number}.example"})))
    log_event(RefusalSent(refusals.BAD_HOST(data={"host": None})))
    assert len(caplog.records) == 100


UNKNOWN = RefusalSent(sansmcp.RemoteProtocolError("who?", reason="session_not_found"))


@pytest.mark.usefixtures("nothing_said")
def test_the_first_unknown_session_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Several processes without a store, and nothing names the cause."""
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
    """The refusal and the log name the cause and the cure."""
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
    """A locked file is said once, not for each stream."""
    with caplog.at_level(logging.DEBUG, logger="sansmcp"):
        log_event(StoreFailed("locked", lost=False))
        log_event(StoreFailed("locked", lost=False, again=True))
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG"]


@pytest.mark.parametrize(("seconds", "text"), [(61.2, "61 s or more ahead"), (-7.0, "7 s or more")])
def test_clocks_that_differ_are_a_warning(
    caplog: pytest.LogCaptureFixture, seconds: float, text: str
) -> None:
    log_event(ClocksDiffer(seconds))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert text in record.getMessage()
    assert ("ahead" in record.getMessage()) is (seconds > 0)


def test_tokens_that_static_tokens_refuse_are_told_once_in_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the token, and not for requests without one, by which clients begin."""
    monkeypatch.setattr(_log, "_tokens_warned_at", -math.inf)
    times = iter([100.0, 159.0, 160.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    verify = sansmcp.StaticTokens({"one": "alice"})
    with caplog.at_level(logging.DEBUG, logger="sansmcp"):
        for token in (b"Bearer hunter2", b"Bearer hunter3", b"", b"Bearer hunter4"):
            headers = ((b"authorization", token),) if token else ()
            head = sansmcp.RequestHead(method=b"POST", target=b"/", headers=headers)
            refusal = verify(head, sansmcp.ConnectionInfo())
            assert isinstance(refusal, sansmcp.Refusal)
            log_event(RefusalSent(not_authenticated(None, head, refusal)))
    assert [record.levelname for record in caplog.records] == [
        "WARNING",
        "DEBUG",
        "DEBUG",
        "WARNING",
    ]
    assert "its token is none of the StaticTokens" in caplog.records[0].getMessage()
    assert "hunter" not in caplog.text
