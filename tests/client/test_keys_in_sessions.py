"""Keys of calls at the handshake revisions: they do what resumption cannot."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Client, ClientSettings, Disconnected, SessionLost
from sansmcp.events import CallCompleted
from sansmcp.reclaim import EXTENSION

from .harness import (
    LATEST,
    SESSION,
    Asked,
    ClientHarness,
    client_with_keys,
    initialized,
    notification,
    only_failure,
    request,
)

OLDER = ["2025-03-26", "2025-06-18", "2025-11-25"]
PLACE = "first-process.0"


class Keyed(ClientHarness):
    """A client in a session with a server that takes keys."""

    def make_client(self, url: str, jitter: float, options: ClientSettings) -> Client:
        return client_with_keys(url, jitter, options)

    def take_initialize(self, version: str = LATEST, session: str | None = SESSION) -> Asked:
        asked = self.take()
        declared = {EXTENSION: {"place": PLACE, "timeoutSeconds": 60.0}}
        answer = initialized(asked.id, version)
        answer["result"]["capabilities"] = {"tools": {}, "extensions": declared}
        asked.answer(answer, mcp_session_id=str(session))
        return asked

    def repeated(self, method: str = "POST") -> Asked:
        """The next request, after its delay."""
        for _ in range(100):
            if self.requests:
                return self.take(method)
            self.wait(0.5)
        raise AssertionError("nothing was sent")


def connected(version: str = LATEST) -> Keyed:
    harness = Keyed()
    harness.connect(version)
    return harness


def key_of(asked: Asked) -> Any:
    return asked.json["params"]["_meta"].get(EXTENSION)


def check_rest(asked: Asked, call: Asked, received: int = 0) -> None:
    """It asks for the rest of a call, with its id and key, in its session."""
    assert asked.json["method"] == EXTENSION
    assert asked.header("mcp-session-id") == SESSION
    assert asked.json["params"]["received"] == received
    assert (asked.id, key_of(asked)) == (call.id, key_of(call))


def refused(call: Asked, reason: str, **data: Any) -> dict[str, Any]:
    error = {"code": -32600, "message": "no", "data": {"reason": reason, "place": PLACE, **data}}
    return {"jsonrpc": "2.0", "id": call.id, "error": error}


@pytest.fixture
def harness() -> Keyed:
    return connected()


@pytest.mark.parametrize("version", OLDER)
def test_before_the_first_event_id_the_client_asks_for_the_rest(version: str) -> None:
    harness = connected(version)
    handle, call = harness.call(params={"name": "add"})
    assert key_of(call).startswith(f"{PLACE}.")
    call.open_stream()
    call.cut()
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result({"sum": 3})
    assert harness.take_events()[-1] == CallCompleted(handle, {"sum": 3})


def test_requests_of_the_server_are_counted_as_well(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event(request("q", "elicitation/create", message="Which?"))
    call.event(notification("notifications/message", level="info", data="x"))
    assert harness.take().json["id"] == "q"  # the client declines it
    call.cut()
    check_rest(harness.repeated(), call, received=2)


def test_with_an_event_id_the_client_resumes(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event(id="e1")
    call.cut()
    get = harness.repeated("GET")
    assert get.header("last-event-id") == "e1"
    get.open_stream()
    get.event({"jsonrpc": "2.0", "id": call.id, "result": {"sum": 3}})
    assert harness.take_events()[-1] == CallCompleted(handle, {"sum": 3})


def test_also_after_a_silence(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event(id="e1")
    harness.wait(50)
    assert call.aborted
    assert harness.repeated("GET").header("last-event-id") == "e1"


def test_a_silence_before_the_first_id_is_a_cut(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    harness.wait(50)
    assert call.aborted
    check_rest(harness.repeated(), call)


def test_what_cannot_be_resumed_is_asked_for(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event(notification("notifications/message", level="info", data="x"), id="e1")
    call.cut()
    harness.repeated("GET").refuse(400)
    check_rest(harness.repeated(), call, received=1)


def test_the_rest_is_resumed_after_its_first_id(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    call.cut()
    rest = harness.repeated()
    rest.open_stream()
    rest.event(id="e1")
    rest.cut()
    assert harness.repeated("GET").header("last-event-id") == "e1"


def test_what_has_never_arrived_is_sent_again(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    rest = harness.repeated()
    rest.answer(refused(call, "unknown_key", neverArrived=True), 409)
    again = harness.repeated()
    assert again.json == call.json
    again.result({"sum": 3})
    assert harness.take_events()[-1] == CallCompleted(handle, {"sum": 3})


def test_a_refused_call_keeps_its_key_so_that_a_late_copy_is_recognised(harness: Keyed) -> None:
    """A proxy may hold a copy of the request."""
    handle, call = harness.call(params={"name": "add"})
    error = {"code": -32603, "message": "no", "data": {"reason": "store_failed"}}
    call.answer({"jsonrpc": "2.0", "error": error}, 503)
    again = harness.repeated()
    assert again.json == call.json
    again.result({"sum": 3})
    assert harness.take_events()[-1] == CallCompleted(handle, {"sum": 3})


def test_what_the_server_no_longer_has_is_unknown(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    harness.repeated().answer(refused(call, "unknown_key", neverArrived=False), 409)
    assert isinstance(only_failure(harness, handle), Disconnected)


@pytest.mark.parametrize("waits", [True, False])
def test_a_call_ends_with_its_session(harness: Keyed, waits: bool) -> None:
    """It may have run: it is not sent again, also if nothing of it was under way just then."""
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    if waits:
        harness.run_command(harness.client.call, "ping")
        harness.take().refuse(404)
    else:
        harness.repeated().refuse(404)
    error = only_failure(harness, handle)
    assert isinstance(error, SessionLost)
    assert not error.was_not_run
    harness.initialize()
    assert not [asked for asked in harness.requests if asked.json["method"] != "ping"]


def test_an_idempotent_call_is_made_anew_in_the_next_session(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"}, idempotent=True)
    call.cut()
    harness.repeated().refuse(404)
    harness.initialize()
    again = harness.repeated()
    assert again.json["method"] == "tools/call"
    assert key_of(again) != key_of(call)
    again.result({"sum": 3})
    assert CallCompleted(handle, {"sum": 3}) in harness.take_events()


def test_a_call_is_cancelled_by_its_id(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    harness.run_command(harness.client.cancel, handle)
    cancellation = harness.take()
    assert cancellation.json["method"] == "notifications/cancelled"
    assert cancellation.json["params"]["requestId"] == call.id


def test_closing_ends_the_session_alone(harness: Keyed) -> None:
    harness.call(params={"name": "add"})
    harness.run_command(harness.client.close)
    harness.take("DELETE")
    assert not harness.requests


def test_without_the_setting_there_are_no_keys() -> None:
    harness = Keyed(versions=("2025-06-18",), reclaim=False).connect("2025-06-18")
    _, call = harness.call(params={"name": "add"})
    assert key_of(call) is None
