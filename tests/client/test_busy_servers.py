"""Servers that are too busy: a call of which nothing was run is sent again, within its times."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import JsonRpcError, ReconnectPolicy, RequestRefused, RequestTimeout
from sansmcp.client.http_heads import NOT_RUN
from sansmcp.events import CallCompleted, CallFailed, Closed, Connected, Reconnecting
from sansmcp.revisions import REVISIONS
from sansmcp.server import refusals
from sansmcp.server.refusals import RefusalTemplate

from .harness import Asked, ClientHarness, notification, only_failure, response
from .sse_harness import SseHarness

BUSY = [(429, "rate_limited"), (429, None), *((503, reason) for reason in sorted(NOT_RUN))]


def refuse(asked: Asked, status: int, reason: str | None, **headers: str) -> None:
    """Answer with a refusal; without a reason it has no JSON."""
    if reason is None:
        asked.refuse(status, b"", **headers)
        return
    error = {"code": -32600, "message": "busy", "data": {"reason": reason}}
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error}, status, **headers)


def last(harness: ClientHarness) -> Reconnecting:
    event = harness.events[-1]
    assert isinstance(event, Reconnecting)
    return event


def test_the_reasons_are_those_of_servers() -> None:
    """Every refusal with 503 that a server of ours sends says that nothing was run."""
    templates = [each for each in vars(refusals).values() if isinstance(each, RefusalTemplate)]
    assert {each.reason for each in templates if each.status == 503} == NOT_RUN


@pytest.mark.parametrize("version", [name for name in REVISIONS if name != "2024-11-05"])
@pytest.mark.parametrize(("status", "reason"), BUSY)
def test_a_call_that_was_not_run_is_sent_again(version: str, status: int, reason: str) -> None:
    harness = _connected(version)
    handle, asked = harness.call(params={"name": "t"})
    refuse(asked, status, reason, retry_after="3")
    assert (last(harness).call, last(harness).delay, last(harness).attempt) == (handle, 3.5, 1)
    harness.wait(3.4)
    assert harness.requests == []
    harness.wait(0.2)
    again = harness.take()
    assert again.json["method"] == "tools/call"
    assert again.json["params"]["name"] == "t"
    assert again.id != asked.id
    again.result({"content": []})
    event = harness.events[-1]
    assert isinstance(event, CallCompleted)
    assert event.call == handle
    harness.wait(3600)
    assert harness.requests == []


def _connected(version: str) -> ClientHarness:
    if version != "2026-07-28":
        return ClientHarness().connect(version)
    harness = ClientHarness(versions=("2026-07-28",))
    harness.run_command(harness.client.start)
    asked = harness.take()
    capabilities: dict[str, Any] = {"tools": {}}
    result = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": capabilities,
        "serverInfo": {"name": "s", "version": "1"},
    }
    asked.result(result)
    assert isinstance(harness.events.pop(), Connected)
    return harness


@pytest.mark.parametrize("version", list(REVISIONS))
@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
@pytest.mark.parametrize("status", [200, 502, 503, 504])
def test_a_proxy_that_has_lost_its_server_leaves_the_outcome_unknown(
    version: str, method: str, status: int
) -> None:
    """What reads is sent again, and a call that the application has declared harmless."""
    harness = SseHarness().connect() if version == "2024-11-05" else _connected(version)
    handle, asked = harness.call(method, idempotent=None if method == "tools/list" else True)
    asked.refuse(status, b"<html>Bad gateway</html>", retry_after="3", content_type="text/html")
    assert (last(harness).call, last(harness).delay, last(harness).attempt) == (handle, 3.5, 1)
    harness.wait(3.5)
    again = harness.take()
    assert again.id != asked.id
    if isinstance(harness, SseHarness):
        again.accept()
        harness.say(response(again.id))
    else:
        again.result({"tools": []})
    assert [event.call for event in harness.events if isinstance(event, CallCompleted)] == [handle]


def test_it_is_sent_again_only_within_its_times(harness: ClientHarness) -> None:
    handle, asked = harness.call("tools/list", timeout=3)
    asked.refuse(504, retry_after="3")
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert (error.status, "its outcome is unknown" in str(error)) == (504, True)


def test_a_lookup_of_tools_is_sent_again() -> None:
    harness = _connected("2026-07-28")
    _, asked = harness.call(params={"name": "echo"})
    error = {"code": -32020, "message": "headers differ"}
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error}, 400)
    harness.take().refuse(502)
    harness.wait(0.5)
    harness.take().result({"tools": []})
    assert harness.take().json["method"] == "tools/call"


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_call_that_may_have_run_is_not(harness: ClientHarness, status: int) -> None:
    handle, asked = harness.call()
    asked.refuse(status, retry_after="1")
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert error.status == status
    assert "got no response, and its outcome is unknown" in str(error)
    harness.wait(3600)
    assert harness.requests == []


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize(
    ("status", "reason"), [(503, "full"), (503, "rate_limited"), (500, "store_failed"), (500, None)]
)
def test_a_refusal_of_the_server_is_final(
    harness: ClientHarness, status: int, reason: str | None, *, idempotent: bool
) -> None:
    handle, asked = harness.call(idempotent=idempotent)
    refuse(asked, status, reason, retry_after="1")
    assert isinstance(only_failure(harness, handle), RequestRefused | JsonRpcError)
    harness.wait(3600)
    assert harness.requests == []


def test_delays_grow_until_the_attempts_are_used_up(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    delays: list[float] = []
    refuse(asked, 429, "rate_limited")
    while isinstance(event := harness.events.pop(), Reconnecting):
        delays.append(event.delay)
        harness.wait(event.delay)
        refuse(harness.take(), 429, "rate_limited")
    assert delays == [0.5, 1.0, 2.0, 4.0]
    assert isinstance(event, CallFailed)
    assert (event.call, str(event.error)) == (handle, "busy (code -32600)")
    harness.wait(3600)
    assert harness.requests == []


def test_attempts_are_counted_anew_after_progress(harness: ClientHarness) -> None:
    """Seed 492501532010 of the simulator: the session was lost while the call ran."""
    handle, asked = harness.call(idempotent=True)
    refuse(asked, 503, "shutting_down")
    assert (last(harness).call, last(harness).attempt) == (handle, 1)
    harness.wait(0.5)
    running = harness.take()
    running.open_stream()
    running.event(notification("notifications/message", level="info", data="running"), id="1")
    running.end()
    harness.wait(2)
    harness.take("GET").refuse(404)
    harness.initialize()
    refuse(harness.take(), 503, "shutting_down")
    assert (last(harness).call, last(harness).attempt) == (handle, 1)


def test_messages_are_no_progress_if_the_call_starts_from_the_beginning() -> None:
    """Otherwise a server that always breaks off would be asked for ever."""
    harness = _connected("2026-07-28")
    handle, asked = harness.call(idempotent=True)
    refuse(asked, 503, "shutting_down")
    harness.wait(0.5)
    running = harness.take()
    running.open_stream()
    running.event(notification("notifications/message", level="info", data="running"))
    running.cut()
    harness.wait(2)
    refuse(harness.take(), 503, "shutting_down")
    assert (last(harness).call, last(harness).attempt) == (handle, 2)


def test_nothing_is_repeated_that_could_not_end_in_time(harness: ClientHarness) -> None:
    """The application learns at once why, and not that the server was silent."""
    handle, asked = harness.call(timeout=10)
    harness.wait(5)
    refuse(asked, 429, None, retry_after="5")
    error = only_failure(harness, handle)
    assert isinstance(error, RequestRefused)
    assert error.status == 429


def test_the_times_of_the_call_go_on(harness: ClientHarness) -> None:
    handle, asked = harness.call(timeout=10)
    harness.wait(5)
    refuse(asked, 429, None, retry_after="4")
    harness.wait(4.5)
    harness.take()
    harness.wait(0.4)
    assert not any(isinstance(event, CallFailed) for event in harness.events)
    harness.wait(0.1)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_call_that_waits_can_be_ended(harness: ClientHarness, end: str) -> None:
    handle, asked = harness.call()
    refuse(asked, 429, None)
    if end == "cancel":
        assert harness.run_command(harness.client.cancel, handle)
        harness.wait(3600)
        assert harness.requests == []  # the server has nothing to cancel
    else:
        harness.run_command(harness.client.close)
        harness.take("DELETE").accept()
        assert isinstance(harness.events[-1], Closed)
    assert only_failure(harness, handle)


def test_a_call_that_waits_goes_on_in_a_new_session(harness: ClientHarness) -> None:
    handle, asked = harness.call()
    other, lost = harness.call()
    refuse(asked, 429, None, retry_after="1")
    lost.refuse(404)
    harness.initialize()
    again = harness.take()
    harness.wait(50)
    assert harness.requests == []
    again.result()
    assert handle in [event.call for event in harness.events if isinstance(event, CallCompleted)]
    assert other != handle


def test_it_can_be_turned_off() -> None:
    harness = ClientHarness(reconnect=ReconnectPolicy(max_attempts=0)).connect()
    handle, asked = harness.call()
    refuse(asked, 429, "rate_limited", retry_after="1")
    assert isinstance(only_failure(harness, handle), JsonRpcError)


def test_http_sse() -> None:
    harness = SseHarness().connect()
    handle, asked = harness.call()
    refuse(asked, 429, "rate_limited", retry_after="2")
    assert (last(harness).call, last(harness).delay) == (handle, 2.5)
    harness.wait(2.5)
    again = harness.take()
    assert (again.json["method"], again.id != asked.id) == ("tools/call", True)


@pytest.mark.parametrize(("status", "reason"), BUSY)
def test_the_opening_is_repeated(status: int, reason: str | None) -> None:
    harness = ClientHarness()
    harness.run_command(harness.client.start)
    refuse(harness.take(), status, reason, retry_after="2")
    assert last(harness).delay == 2.5
    harness.wait(2.5)
    harness.initialize()
    harness.call()


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2999, 12, 31)).map(
        lambda at: at.replace(microsecond=0)
    ),
    st.integers(-400, 400),
)
def test_dates(sent: datetime, seconds: int) -> None:
    """They count from the date of the response, and at most five minutes."""
    form = "%a, %d %b %Y %H:%M:%S GMT"
    since = sent.replace(tzinfo=timezone.utc)
    until = datetime.fromtimestamp(since.timestamp() + seconds, timezone.utc)
    harness = ClientHarness().connect()
    _, asked = harness.call(timeout=1000)
    refuse(asked, 429, None, date=since.strftime(form), retry_after=until.strftime(form))
    assert last(harness).delay == min(max(seconds, 0), 300) + 0.5


@pytest.mark.parametrize("date", ["", "yesterday", "Wed, 21 Foo 2026 07:28:00 GMT"])
def test_dates_that_are_none(harness: ClientHarness, date: str) -> None:
    _, asked = harness.call()
    refuse(asked, 429, None, date="Wed, 21 Oct 2026 07:28:00 GMT", retry_after=date)
    assert last(harness).delay == 0.5
