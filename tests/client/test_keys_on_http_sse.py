"""Keys of calls on HTTP+SSE: the loss of the event stream, which is the session, costs no call."""

from __future__ import annotations

import json

import pytest

from sansmcp import Client, ClientSettings, Disconnected, RequestCancelled
from sansmcp.events import (
    CallCompleted,
    ProgressReceived,
    ServerRequestCancelled,
    ServerRequestReceived,
    SessionExpired,
)
from sansmcp.reclaim import CANCEL, EXTENSION
from sansmcp.states import ClientState

from .harness import (
    POLICY,
    Asked,
    client_with_keys,
    initialized,
    notification,
    only_failure,
    request,
    response,
)
from .sse_harness import ENDPOINT, SseHarness
from .test_keys_in_sessions import PLACE, key_of, refused

OLDEST = "2024-11-05"
NEW = "/messages?s=second"
DONE = {"sum": 3}


class Keyed(SseHarness):
    """A client in a session of HTTP+SSE with a server that takes keys."""

    takes_keys = True

    def make_client(self, url: str, jitter: float, options: ClientSettings) -> Client:
        return client_with_keys(url, jitter, options)

    def take_initialize(self, version: str = OLDEST, session: str | None = None) -> Asked:
        return self.answer_initialize(self.locate())

    def answer_initialize(self, asked: Asked, place: str = PLACE) -> Asked:
        asked.accept()
        answer = initialized(asked.id, OLDEST)
        declared = {EXTENSION: {"place": place, "timeoutSeconds": 60.0}}
        if self.takes_keys:
            answer["result"]["capabilities"] = {"tools": {}, "extensions": declared}
        self.say(answer)
        return asked

    def reopen(self, place: str = PLACE) -> None:
        """Open the next session, after its delay."""
        self.wait(0.5)
        self.answer_initialize(self.locate(NEW), place)
        (confirmation,) = [each for each in self.requests if is_about(each, "initialized")]
        self.requests.remove(confirmation)
        confirmation.accept()

    def repeated(self) -> Asked:
        """The next request of a call, after its delay."""
        for _ in range(100):
            if self.requests:
                return self.take()
            self.wait(0.5)
        raise AssertionError("nothing was sent")


def is_about(asked: Asked, what: str) -> bool:
    return asked.method == "POST" and str(asked.json.get("method", "")).endswith(what)


def check_rest(asked: Asked, call: Asked, received: int = 0, endpoint: str = NEW) -> None:
    """It asks for the rest of a call, with its id and key."""
    assert asked.effect.url == "http://localhost:8000" + endpoint
    assert asked.json["method"] == EXTENSION
    assert asked.json["params"]["received"] == received
    assert (asked.id, key_of(asked)) == (call.id, key_of(call))


@pytest.fixture
def harness() -> Keyed:
    harness = Keyed(capabilities={"elicitation": {}})
    harness.connect(OLDEST)
    return harness


def test_the_response_is_that_to_the_post(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    assert key_of(call).startswith(f"{PLACE}.")
    call.open_stream()
    call.event(notification("notifications/progress", progressToken=call.id, progress=1))
    call.event(response(call.id, DONE))
    progress = ProgressReceived(call=handle, progress=1, total=None, message=None)
    assert harness.take_events() == [progress, CallCompleted(handle, DONE)]


def test_other_requests_are_answered_on_the_stream(harness: Keyed) -> None:
    handle, asked = harness.call("resources/read", params={"uri": "a"})
    assert EXTENSION not in asked.json["params"].get("_meta", {})
    asked.accept()
    harness.say(response(asked.id, DONE))
    assert harness.take_events() == [CallCompleted(handle, DONE)]


def test_a_call_outlives_its_session(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event(notification("notifications/progress", progressToken=call.id, progress=1))
    harness.stream.cut()
    assert call.aborted
    assert SessionExpired(()) in harness.take_events()
    harness.reopen()
    rest = harness.repeated()
    check_rest(rest, call, received=1)
    rest.result(DONE)
    assert harness.take_events()[-1] == CallCompleted(handle, DONE)


def test_and_its_post(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    rest = harness.repeated()
    check_rest(rest, call, endpoint=ENDPOINT)
    rest.result(DONE)
    assert harness.take_events()[-1] == CallCompleted(handle, DONE)


def test_a_call_that_waits_to_be_sent_again_goes_on_in_the_next_session(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    harness.stream.cut()
    harness.reopen()
    rest = harness.repeated()
    check_rest(rest, call)
    rest.answer(refused(call, "unknown_key", neverArrived=True), 409)
    copy = harness.repeated()
    assert copy.json == call.json
    copy.result(DONE)
    assert harness.take_events()[-1] == CallCompleted(handle, DONE)


def test_a_silent_post_is_a_cut_although_the_stream_lives(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    harness.keep_alive(50)
    assert call.aborted
    check_rest(harness.repeated(), call, endpoint=ENDPOINT)


def test_a_call_that_was_refused_with_the_session_is_made_anew(harness: Keyed) -> None:
    _, call = harness.call(params={"name": "add"})
    call.refuse(404)
    harness.answer_initialize(harness.locate(NEW))
    harness.take().accept()
    again = harness.take()
    assert again.json["method"] == "tools/call"
    assert key_of(again) != key_of(call)


def test_another_process_does_not_have_it(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    harness.stream.cut()
    harness.reopen("another-process.0")
    for _ in range(8):
        rest = harness.repeated()
        check_rest(rest, call)
        rest.answer(refused(call, "unknown_key", place="another-process.0"), 409)
    assert isinstance(only_failure(harness, handle), Disconnected)


def test_a_server_without_keys_in_its_place(harness: Keyed) -> None:
    handle, _ = harness.call(params={"name": "add"})
    harness.stream.cut()
    harness.takes_keys = False
    harness.reopen()
    assert isinstance(only_failure(harness, handle), Disconnected)


def test_an_open_question_is_withdrawn_and_asked_again(harness: Keyed) -> None:
    question = request(7 << 20, "elicitation/create", message="Which?")
    _, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event(question)
    assert isinstance(harness.take_events()[0], ServerRequestReceived)
    harness.stream.cut()
    assert isinstance(harness.take_events()[0], ServerRequestCancelled)
    harness.reopen()
    rest = harness.repeated()
    check_rest(rest, call, received=1)
    rest.open_stream()
    harness.take_events()
    rest.event(question)
    assert isinstance(harness.take_events()[0], ServerRequestReceived)
    harness.run_command(harness.client.respond, question["id"], {"action": "accept"})
    assert harness.take().effect.url.endswith(NEW)


# Cancelling


def test_a_call_is_cancelled_by_its_key(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    harness.run_command(harness.client.cancel, handle)
    assert call.aborted
    check_cancellation(harness.take(), call)


def check_cancellation(asked: Asked, call: Asked, endpoint: str = ENDPOINT) -> None:
    assert asked.json["method"] == CANCEL
    assert asked.json["params"]["_meta"] == {EXTENSION: key_of(call)}
    assert asked.effect.url == "http://localhost:8000" + endpoint


def test_between_two_sessions_nothing_is_sent(harness: Keyed) -> None:
    """The server cancels it when the client does not come back."""
    handle, _ = harness.call(params={"name": "add"})
    harness.stream.cut()
    harness.run_command(harness.client.cancel, handle)
    assert harness.requests == []
    assert isinstance(only_failure(harness, handle), RequestCancelled)


@pytest.mark.parametrize("is_known", [True, False])
def test_closing_cancels_calls_by_their_keys(harness: Keyed, *, is_known: bool) -> None:
    """The session ends first, and the server takes the cancellation without it."""
    _, call = harness.call(params={"name": "add"})
    harness.call("resources/read", params={"uri": "a"})[1].accept()
    harness.run_command(harness.client.close)
    assert harness.stream.aborted
    cancellation = harness.take()
    check_cancellation(cancellation, call)
    cancellation.accept() if is_known else cancellation.refuse(404)
    assert harness.closed() is None


def test_closing_without_calls_sends_nothing(harness: Keyed) -> None:
    harness.run_command(harness.client.close)
    assert harness.closed() is None
    assert harness.requests == []


def test_without_the_setting_there_are_no_keys() -> None:
    harness = Keyed(reclaim=False)
    harness.connect(OLDEST)
    _, call = harness.call(params={"name": "add"})
    assert key_of(call) is None


def test_an_invalid_response_ends_the_call_and_its_post(harness: Keyed) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.open_stream()
    call.event({"jsonrpc": "2.0", "id": call.id, "result": DONE, "error": {}})
    assert call.aborted
    only_failure(harness, handle)
    assert not harness.stream.aborted


def test_a_stream_that_ends_before_initialize_arrives_is_opened_again(harness: Keyed) -> None:
    """The server has seen its end, and the client has not."""
    handle, call = harness.call(params={"name": "add"})
    for endpoint in (NEW, "/messages?s=third"):
        harness.stream.cut()
        harness.wait(2)
        harness.locate(endpoint).refuse(404)
    harness.wait(10)
    harness.answer_initialize(harness.locate(NEW))
    harness.take().accept()
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result(DONE)
    assert harness.take_events()[-1] == CallCompleted(handle, DONE)


def test_the_first_stream_may_end_before_initialize_arrives() -> None:
    """The server says so; from a proxy that adds a path, 404 has no reason (test_field)."""
    harness = Keyed()
    harness.start()
    data = {"reason": "session_not_found"}
    error = {"code": -32600, "message": "The event stream has ended", "data": data}
    body = json.dumps({"jsonrpc": "2.0", "error": error}).encode()
    harness.locate(NEW).refuse(404, body, content_type="application/json")
    harness.wait(2)
    harness.answer_initialize(harness.locate(NEW))
    harness.take().accept()
    assert harness.client.state is ClientState.READY


def test_a_stream_may_end_before_initialize_after_a_session_that_was_discarded(
    harness: Keyed,
) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.refuse(404)
    harness.locate("/messages?s=third").refuse(404)
    harness.reopen()
    harness.repeated().result(DONE)
    assert harness.take_events()[-1] == CallCompleted(handle, DONE)


def test_a_server_that_never_knows_the_stream_is_given_up() -> None:
    harness = Keyed(connect_timeout=600).connect()
    harness.stream.cut()
    for _ in range(POLICY.max_attempts):
        harness.events.clear()
        harness.wait(POLICY.max_delay)
        harness.locate(NEW).refuse(404)
    error = str(harness.closed())
    assert f"given up after {POLICY.max_attempts} attempts" in error
    assert "POST http://localhost:8000/messages?" in error
