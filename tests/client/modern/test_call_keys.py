"""Keys of calls: after a cut the client asks for the rest, and nothing runs again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    BodyData,
    Client,
    ClientSettings,
    ConnectionLost,
    Disconnected,
    RequestCancelled,
)
from sansmcp.client.http_heads import NOT_RUN
from sansmcp.errors import JsonRpcError
from sansmcp.events import CallCompleted, CallFailed, ProgressReceived, Reconnecting
from sansmcp.http import BodyEnd, ResponseHead, Unsent
from sansmcp.reclaim import CANCEL, EXTENSION
from sansmcp.trace import Tracer

from ..harness import (
    ONCE,
    Asked,
    client_with_keys,
    initialized,
    notification,
    only_failure,
    response,
)
from .harness import (
    MODERN,
    ModernClientHarness,
    discovered,
    ends,
    failed,
    input_required,
    refused_version,
)

FIRST = "first-process.0"


class KeyedHarness(ModernClientHarness):
    """A client that can make keys, and a server that takes them."""

    def make_client(self, url: str, jitter: float, options: ClientSettings) -> Client:
        return client_with_keys(url, jitter, options)

    def connect(
        self,
        version: str = MODERN,
        session: str | None = None,
        *,
        place: Any = FIRST,
        seconds: Any = 60.0,
    ) -> KeyedHarness:
        declared = {"tools": {}, "extensions": {EXTENSION: declaration(place, seconds)}}
        asked = self.start()
        asked.answer(discovered(asked.id, version, capabilities=declared))
        self.events.clear()
        return self

    def repeated(self) -> Asked:
        """The next request, after its delay."""
        for _ in range(100):
            if self.requests:
                return self.take()
            self.wait(0.5)
        raise AssertionError("nothing was sent")


def declaration(place: Any, seconds: Any = 60.0) -> dict[str, Any]:
    return {"place": place, "timeoutSeconds": seconds}


def secret(number: int) -> str:
    return f"{number:032x}"


def key_of(asked: Asked) -> Any:
    return asked.json["params"]["_meta"].get(EXTENSION)


def refuse(asked: Asked, reason: str, place: str, **data: Any) -> None:
    refusal = failed(asked.id, -32600, "no", {"reason": reason, "place": place, **data})
    asked.answer(refusal, 409)


def unknown(asked: Asked, place: str = FIRST, never: bool = False) -> None:
    refuse(asked, "unknown_key", place, neverArrived=never)


def report(asked: Asked, progress: float, id: Any = None) -> None:
    token = asked.id if id is None else id
    asked.event(notification("notifications/progress", progressToken=token, progress=progress))


def check_rest(asked: Asked, call: Asked, received: int = 0) -> None:
    """It asks for the rest of a call, with its id and key."""
    assert asked.json["method"] == EXTENSION
    assert asked.header("mcp-method") == EXTENSION
    assert asked.header("mcp-name") is None
    assert asked.json["params"]["received"] == received
    assert key_of(asked) == key_of(call)
    assert asked.id == call.id
    assert asked.header("connection") == "close"


@pytest.fixture
def harness() -> KeyedHarness:
    return KeyedHarness().connect()


# Keys


def test_each_call_of_a_tool_has_a_key(harness: KeyedHarness) -> None:
    _, first = harness.call(params={"name": "add"})
    _, second = harness.call(params={"name": "add"})
    _, other = harness.call("tools/list")
    assert key_of(first) == f"{FIRST}.{secret(1)}"
    assert key_of(second) == f"{FIRST}.{secret(2)}"
    assert key_of(other) is None


@pytest.mark.parametrize("settings", [{"reclaim": False}, {"reconnect": ONCE}])
def test_without_the_setting_there_are_no_keys(settings: Any) -> None:
    _, asked = KeyedHarness(**settings).connect().call()
    assert key_of(asked) is None


@pytest.mark.parametrize(
    ("place", "seconds"), [(None, 60), ("x", 60), ("..", 60), (FIRST, "60"), (FIRST, None)]
)
def test_the_declaration_must_be_one(place: Any, seconds: Any) -> None:
    _, asked = KeyedHarness().connect(place=place, seconds=seconds).call()
    assert key_of(asked) is None


def test_a_response_that_has_arrived_is_confirmed_by_the_next_call(harness: KeyedHarness) -> None:
    _, first = harness.call()
    first.result()
    _, second = harness.call()
    assert key_of(second) == f"{FIRST}.{secret(2)},{secret(1)}"
    _, third = harness.call()
    assert key_of(third) == f"{FIRST}.{secret(3)}"


def test_a_key_confirms_only_so_many(harness: KeyedHarness) -> None:
    for asked in [harness.call()[1] for _ in range(40)]:
        asked.result()
    assert key_of(harness.call()[1]).count(",") == 32


@pytest.mark.parametrize("is_full", [False, True])
def test_a_trace_does_not_show_the_key(is_full: bool) -> None:
    lines: list[str] = []
    harness = KeyedHarness(trace=Tracer("client", lines.append, is_full)).connect()
    harness.call()
    assert any(EXTENSION in line for line in lines) is is_full
    assert not any(secret(1) in line for line in lines)


# Cuts


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    "how", ["cut", "cut in the stream", "end", "another answer", "502", "page", "409"]
)
def test_after_a_cut_the_client_asks_for_the_rest(
    harness: KeyedHarness, how: str, idempotent: bool
) -> None:
    handle, call = harness.call(idempotent=idempotent)
    match how:
        case "cut":
            call.cut()
        case "cut in the stream":
            call.open_stream()
            call.cut()
        case "end":
            call.open_stream()
            call.end()
        case "another answer":
            call.answer(response(77))
        case "page":
            call.refuse(200, b"<html>", content_type="text/html")
        case _:
            call.refuse(int(how), b"", content_type="text/html")
    (event,) = harness.take_events()[-1:]
    assert isinstance(event, Reconnecting)
    assert (event.call, event.attempt, event.delay) == (handle, 1, 0.5)
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result({"content": []})
    assert ends(harness) == [CallCompleted(handle, {"content": []})]


def test_the_reports_that_have_arrived_are_counted(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.open_stream()
    report(call, 1)
    report(call, 2)
    call.cut()
    rest = harness.repeated()
    check_rest(rest, call, received=2)
    rest.open_stream()
    report(rest, 3)
    rest.cut()
    again = harness.repeated()
    check_rest(again, call, received=3)
    again.result()
    told = [event.progress for event in harness.events if isinstance(event, ProgressReceived)]
    assert told == [1, 2, 3]
    assert ends(harness) == [CallCompleted(handle, {})]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_request_for_the_rest_is_repeated(harness: KeyedHarness, status: int) -> None:
    handle, call = harness.call()
    call.cut()
    harness.repeated().refuse(status)
    rest = harness.repeated()
    check_rest(rest, call)
    rest.answer(failed(rest.id, -32600, "no", {"reason": "rate_limited"}), 429, retry_after="7")
    (event,) = harness.take_events()[-1:]
    assert isinstance(event, Reconnecting)
    assert event.delay >= 7
    harness.repeated().result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_also_if_nothing_of_it_could_be_sent(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    for _ in range(8):
        harness.repeated().feed(ConnectionLost("refused", Unsent.UNREACHABLE))
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_process_of_this_machine_that_listens_no_more_has_ended(harness: KeyedHarness) -> None:
    """Its keys were in its memory."""
    handle, call = harness.call(timeout=600)
    call.cut()
    started = harness.now
    while not ends(harness):
        harness.repeated().feed(ConnectionLost("connection refused", Unsent.REFUSED))
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert error.was_sent
    assert "connection refused" in str(error)
    assert 5 <= harness.now - started <= 12


def test_what_would_fail_again_is_not_repeated(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    harness.repeated().feed(ConnectionLost("not trusted", Unsent.PERMANENT))
    assert "not trusted" in str(only_failure(harness, handle))


def test_the_client_gives_up_when_the_server_has(harness: KeyedHarness) -> None:
    handle, call = harness.call(timeout=600)
    call.cut()
    started = harness.now
    while not ends(harness):
        harness.wait(0.5)
        for rest in harness.requests:
            rest.cut()
        harness.requests.clear()
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert "the rest could not be had within 60 s" in str(error)
    assert 55 <= harness.now - started <= 61


def test_silence_is_a_cut(harness: KeyedHarness) -> None:
    handle, call = harness.call(timeout=600)
    call.open_stream()
    harness.wait(44)
    call.feed(BodyData(b": alive\n\n"))
    harness.wait(44)
    assert not call.aborted
    harness.wait(1)
    assert call.aborted
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


@pytest.mark.parametrize(("timeout", "limit"), [(600, 45), (20, 15)])
def test_so_is_silence_before_the_response_begins(
    harness: KeyedHarness, timeout: float, limit: float
) -> None:
    handle, call = harness.call(timeout=timeout)
    harness.wait(limit - 1)
    assert not call.aborted
    harness.wait(1)
    assert call.aborted
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_proxy_that_holds_the_response_back_ends_no_call(harness: KeyedHarness) -> None:
    handle, call = harness.call(timeout=600)
    for _ in range(10):
        harness.wait(45)
        assert call.aborted
        call = harness.repeated()
    call.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_response_that_comes_slowly_is_not_silent(harness: KeyedHarness) -> None:
    handle, call = harness.call(timeout=600)
    harness.wait(40)
    body = json.dumps(response(call.id)).encode()
    call.feed(ResponseHead(status=200, headers=((b"content-type", b"application/json"),)))
    for piece in (body[:10], body[10:20], body[20:]):
        harness.wait(40)
        assert not call.aborted
        call.feed(BodyData(piece))
    call.feed(BodyEnd())
    assert ends(harness) == [CallCompleted(handle, {})]


def test_one_that_stops_is(harness: KeyedHarness) -> None:
    _, call = harness.call(timeout=600)
    harness.wait(40)
    call.feed(ResponseHead(status=200, headers=((b"content-type", b"application/json"),)))
    harness.wait(44)
    assert not call.aborted
    harness.wait(1)
    assert call.aborted
    check_rest(harness.repeated(), call)


def test_a_call_that_waits_to_be_sent_again_is_not_silent(harness: KeyedHarness) -> None:
    handle, call = harness.call(timeout=600)
    busy = failed(call.id, -32600, "no", {"reason": "rate_limited"})
    call.answer(busy, 429, retry_after="60")
    harness.wait(59)
    assert harness.requests == []
    harness.wait(1)
    harness.repeated().result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_response_that_is_an_error_ends_the_call(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    rest = harness.repeated()
    rest.answer(failed(rest.id, -32001, "a bad tool"))
    error = only_failure(harness, handle)
    assert isinstance(error, JsonRpcError)
    assert error.code == -32001


def test_a_server_that_was_busy_has_not_run_it(harness: KeyedHarness) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    rest = harness.repeated()
    rest.answer(failed(rest.id, -32603, "busy", {"reason": "busy"}), 503)
    again = harness.repeated()
    assert again.json["method"] == "tools/call"
    assert key_of(again) != key_of(call)
    assert key_of(again) == f"{FIRST}.{secret(2)},{secret(1)}"
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


# Refusals of a call of which the server has run nothing: a proxy may hold a copy of the request


def refuse_at_first(call: Asked, how: str) -> Asked:
    """Refuse a call; returns the next request, which the client makes after a delay."""
    match how:
        case "unsent":
            call.feed(ConnectionLost("refused", Unsent.UNREACHABLE))
        case "429":
            call.refuse(429)
        case "rate_limited":
            call.answer(failed(call.id, -32600, "no", {"reason": how}), 429)
        case reason:
            call.answer(failed(call.id, -32603, "no", {"reason": reason}), 503)
    harness = call.harness
    assert isinstance(harness, KeyedHarness)
    return harness.repeated()


REFUSALS = ("unsent", "429", "rate_limited", *sorted(NOT_RUN - {"busy"}))


@pytest.mark.parametrize("how", REFUSALS)
def test_a_refused_call_keeps_its_key_so_that_a_late_copy_is_recognised(
    harness: KeyedHarness, how: str
) -> None:
    handle, call = harness.call(params={"name": "add"})
    for _ in range(2):
        refused, call = call, refuse_at_first(call, how)
        assert call.effect.body == refused.effect.body
        assert call.effect.head.headers == refused.effect.head.headers
    call.cut()
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_the_busy_application_has_answered_so_the_next_call_has_another_key(
    harness: KeyedHarness,
) -> None:
    """The server keeps the answer, and a late copy gets it."""
    handle, call = harness.call(params={"name": "add"})
    again = refuse_at_first(call, "busy")
    assert again.json["method"] == "tools/call"
    assert again.id != call.id
    assert key_of(again) == f"{FIRST}.{secret(2)},{secret(1)}"
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_refused_call_is_for_another_process_if_that_says_so(harness: KeyedHarness) -> None:
    """The one that has refused it has forgotten keys since, or was started again."""
    handle, call = harness.call(params={"name": "add"})
    refuse(refuse_at_first(call, "shutting_down"), "other_place", "second-process.0")
    again = harness.take()
    assert again.id != call.id
    assert key_of(again) == f"second-process.0.{secret(2)}"
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


@pytest.mark.parametrize("reason", ["other_place", "unknown_key"])
@pytest.mark.parametrize("status", [200, 400, 404])
def test_an_error_of_a_handler_says_nothing_about_keys(
    harness: KeyedHarness, status: int, reason: str
) -> None:
    """A bridge passes on the errors of other servers, with what these have written into them."""
    handle, call = harness.call(params={"name": "add"})
    data = {"reason": reason, "place": "second-process.7", "neverArrived": True}
    call.answer(failed(call.id, -32601, "no", data), status)
    (end,) = ends(harness)
    assert isinstance(end, CallFailed)
    assert end.call == handle
    assert isinstance(end.error, JsonRpcError)
    _, call = harness.call(params={"name": "add"})
    assert key_of(call).startswith(FIRST)


@pytest.mark.both_eras
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_refused_call_whose_server_was_replaced_meanwhile(has_keys: bool) -> None:
    """By one that has no keys, or only knows the handshake revisions."""
    harness = KeyedHarness(versions=("2025-11-25", MODERN)).connect()
    handle, call = harness.call()
    call.answer(failed(call.id, -32603, "no", {"reason": "shutting_down"}), 503)
    other, second = harness.call()
    second.answer(refused_version(second.id, MODERN if has_keys else "2025-11-25"), 400)
    asked = harness.take()
    if has_keys:
        declared = {"tools": {}, "extensions": {EXTENSION: declaration(FIRST)}}
        asked.answer(discovered(asked.id, capabilities=declared))
    else:
        asked.answer(failed(asked.id, -32601, "no such method"), 404)
        asked = harness.take()
        asked.answer(initialized(asked.id), mcp_session_id="a-session")
        harness.take().accept()
    calls = [each for each in harness.requests if each.effect.body]
    assert [each.json["method"] for each in calls] == ["tools/call", "tools/call"]
    again = calls[0]
    key = again.json["params"].get("_meta", {}).get(EXTENSION)
    assert (key == key_of(call), key is None) == (has_keys, not has_keys)
    assert (again.id == call.id) is has_keys
    for each in calls:
        each.result()
    assert {each.call for each in ends(harness)} == {handle, other}
    assert all(isinstance(each, CallCompleted) for each in ends(harness))


def test_each_round_has_a_key_of_its_own(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    rest = harness.repeated()
    rest.result(input_required(state="s"))
    again = harness.repeated()
    assert again.json["method"] == "tools/call"
    assert key_of(again) == f"{FIRST}.{secret(2)},{secret(1)}"
    again.cut()
    last = harness.repeated()
    check_rest(last, again)
    last.result()
    assert ends(harness) == [CallCompleted(handle, {})]


# Processes


def test_what_has_never_arrived_is_sent_anew_with_the_same_key(harness: KeyedHarness) -> None:
    handle, call = harness.call(params={"name": "add"})
    call.cut()
    unknown(harness.repeated(), never=True)
    copy = harness.take()
    assert copy.effect.body == call.effect.body
    assert copy.header("mcp-name") == "add"
    assert (call.header("connection"), copy.header("connection")) == (None, "close")
    copy.cut()
    check_rest(harness.repeated(), call)
    harness.run_command(harness.client.cancel, handle)


def test_copies_are_bounded_and_delayed(harness: KeyedHarness) -> None:
    """The server says again and again that the call has never arrived."""
    handle, call = harness.call(params={"name": "add"}, timeout=600)
    call.cut("cable cut")
    unknown(harness.repeated(), never=True)
    copy = harness.take()
    delays: list[float] = []
    for _ in range(7):
        unknown(copy, never=True)
        (event,) = harness.take_events()[-1:]
        assert isinstance(event, Reconnecting)
        delays.append(event.delay)
        copy = harness.repeated()
        assert copy.json["method"] == "tools/call"
        assert key_of(copy) == key_of(call)
    assert delays == [0.5, 1, 2, 4, 4, 4, 4]
    unknown(copy, never=True)
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert "cable cut; the call was sent 9 times, and never arrived" in str(error)


def test_a_copy_that_reaches_another_process_is_not_run_there(harness: KeyedHarness) -> None:
    """The call itself may still arrive at the process for which it is."""
    handle, call = harness.call()
    call.cut()
    unknown(harness.repeated(), never=True)
    refuse(harness.take(), "other_place", "second-process.0")
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_copy_that_is_refused_for_a_while_keeps_its_key(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    unknown(harness.repeated(), never=True)
    copy = harness.take()
    copy.answer(failed(copy.id, -32600, "no", {"reason": "rate_limited"}), 429)
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_call_whose_response_is_gone_before_it_was_cut(harness: KeyedHarness) -> None:
    """A proxy has sent it twice, and the answer to the second one comes first."""
    handle, call = harness.call()
    unknown(call)
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert "the server no longer has its response" in str(error)


def test_a_server_that_has_answered_is_asked_for_as_long_again(harness: KeyedHarness) -> None:
    """Without reports, it is an open stream that shows that the server knows of the client."""
    handle, call = harness.call(timeout=600)
    call.cut()
    for _ in range(3):
        rest = harness.repeated()
        rest.open_stream()
        for _ in range(3):
            harness.wait(40)
            rest.feed(BodyData(b": alive\n\n"))
        rest.cut()
    assert ends(harness) == []
    harness.repeated().result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_what_the_process_no_longer_has_is_lost(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut("cable cut")
    unknown(harness.repeated())
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert "cable cut; the server no longer has its response" in str(error)
    assert "reclaim_timeout" in str(error)


def test_a_server_without_keys_says_so(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    rest = harness.repeated()
    rest.answer(failed(rest.id, -32601, "no such method"), 404)
    assert "no longer takes keys" in str(only_failure(harness, handle))


@pytest.mark.parametrize("has_begun", [False, True])
def test_an_idempotent_call_is_then_made_again(harness: KeyedHarness, has_begun: bool) -> None:
    """Without a key.

    A load balancer could lead each call to a process that has ended, and each request for the rest
    to the only one that lives.
    """
    handle, call = harness.call(idempotent=True)
    if has_begun:
        call.open_stream()
    call.cut()
    rest = harness.repeated()
    if has_begun:
        rest.open_stream()
        rest.cut()
        rest = harness.repeated()
    unknown(rest, "second-process.0")
    again = harness.take()
    for _ in range(4):
        assert again.json["method"] == "tools/call"
        assert EXTENSION not in again.json["params"]["_meta"]
        again.cut()
        again = harness.repeated()
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_process_that_has_ended_is_told_from_one_that_is_not_reached(
    harness: KeyedHarness,
) -> None:
    handle, call = harness.call(timeout=600)
    call.cut()
    for _ in range(7):
        unknown(harness.repeated(), "second-process.0")
    check_rest(rest := harness.repeated(), call)
    unknown(rest, "second-process.0")
    error = only_failure(harness, handle)
    assert isinstance(error, Disconnected)
    assert "other processes of the server answer" in str(error)
    assert key_of(harness.call()[1]).startswith("second-process.0.")


def test_the_right_process_may_be_reached_later(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    call.cut()
    unknown(harness.repeated(), "second-process.0")
    rest = harness.repeated()
    check_rest(rest, call)
    rest.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_call_that_another_process_refuses_is_sent_for_that_one(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    refuse(call, "other_place", "second-process.5")
    again = harness.take()
    assert key_of(again) == f"second-process.5.{secret(2)}"
    assert again.id != call.id
    again.result()
    assert ends(harness) == [CallCompleted(handle, {})]


def test_a_newer_place_of_the_same_process_is_taken(harness: KeyedHarness) -> None:
    _, call = harness.call()
    refuse(call, "other_place", "first-process.77")
    assert key_of(harness.take()) == f"first-process.77.{secret(2)}"


def test_if_a_process_comes_back_calls_are_for_any(harness: KeyedHarness) -> None:
    _, call = harness.call()
    refuse(call, "other_place", "second-process.5")
    refuse(harness.take(), "other_place", FIRST)
    again = harness.repeated()
    assert key_of(again) == f"..{secret(3)}"
    again.cut()
    unknown(harness.repeated(), "third-process.0")
    harness.repeated().result()
    assert key_of(harness.call()[1]).startswith("..")


def test_the_rest_is_asked_for_as_often_as_it_takes_to_reach_each_process(
    harness: KeyedHarness,
) -> None:
    handle, call = harness.call()
    refuse(call, "other_place", "second-process.5")
    refuse(harness.take(), "other_place", FIRST)
    harness.repeated().cut()
    for _ in range(15):
        unknown(harness.repeated(), "second-process.5")
    assert ends(harness) == []
    unknown(harness.repeated(), "second-process.5")
    assert "other processes of the server answer" in str(only_failure(harness, handle))


def test_a_call_for_any_process_cannot_be_for_another(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    for number in range(5):
        refuse(call, "other_place", f"process-{number}.0")
        call = harness.repeated() if number < 4 else call
    error = only_failure(harness, handle)
    assert isinstance(error, JsonRpcError)
    assert harness.requests == []


def test_a_call_that_is_refused_again_and_again_is_for_any(harness: KeyedHarness) -> None:
    _, call = harness.call()
    refuse(call, "other_place", "process-0.0")
    call = harness.take()
    for number in range(1, 4):
        refuse(call, "other_place", f"process-{number}.0")
        (event,) = harness.take_events()
        assert isinstance(event, Reconnecting)
        assert (event.attempt, event.delay) == (number, 0.5 * 2 ** (number - 1))
        call = harness.repeated()
        assert call.json["method"] == "tools/call"
    assert key_of(call).startswith("..")
    assert key_of(harness.call()[1]).startswith("process-3.0.")


def test_the_processes_that_are_remembered_are_bounded(harness: KeyedHarness) -> None:
    for number in range(70):
        _, call = harness.call()
        refuse(call, "other_place", f"process-{number}.0")
        harness.take().result()
    _, call = harness.call()
    refuse(call, "other_place", FIRST)  # which was forgotten
    assert key_of(harness.take()).startswith(f"{FIRST}.")


def test_a_session_that_is_opened_again_keeps_its_calls(harness: KeyedHarness) -> None:
    handle, call = harness.call()
    other, second = harness.call()
    waiting, third = harness.call()
    third.cut()
    second.answer(refused_version(second.id, "2026-07-28"), 400)
    asked = harness.take()
    assert call.aborted
    place = "second-process.0"
    declared = {"tools": {}, "extensions": {EXTENSION: declaration(place)}}
    asked.answer(discovered(asked.id, capabilities=declared))
    first, again, last = harness.requests
    harness.requests.clear()
    check_rest(first, call)
    assert key_of(again).startswith(place)
    check_rest(last, third)
    for each in (first, again, last):
        each.result()
    assert {event.call for event in ends(harness)} == {handle, other, waiting}


@pytest.mark.both_eras
def test_a_session_of_an_older_revision_knows_no_keys() -> None:
    """The server was replaced by one that has no more than the handshake revisions."""
    harness = KeyedHarness(versions=("2025-11-25", MODERN)).connect()
    handle, _ = harness.call()
    other, second = harness.call()
    second.answer(refused_version(second.id, "2025-11-25"), 400)
    asked = harness.take()
    asked.answer(failed(asked.id, -32601, "no such method"), 404)
    asked = harness.take()
    asked.answer(initialized(asked.id), mcp_session_id="a-session")
    harness.take().accept()
    (again,) = [each for each in harness.requests if each.effect.body]
    assert again.json["method"] == "tools/call"
    again.result()
    first, last = ends(harness)
    assert isinstance(first, CallFailed)
    assert first.call == handle
    assert "no longer takes keys" in str(first.error)
    assert last == CallCompleted(other, {})


# Cancelling


@pytest.mark.parametrize("how", ["cancel", "timeout", "close"])
@pytest.mark.parametrize("state", ["running", "cut"])
def test_a_call_is_cancelled_by_its_key(harness: KeyedHarness, how: str, state: str) -> None:
    handle, call = harness.call(timeout=0.4)
    if state == "cut":
        call.cut()
    match how:
        case "cancel":
            harness.run_command(harness.client.cancel, handle)
        case "timeout":
            harness.wait(0.4)
        case _:
            harness.run_command(harness.client.close)
    asked = harness.take()
    assert asked.json["method"] == CANCEL
    assert key_of(asked) == f"{FIRST}.{secret(1)}"
    assert "id" not in asked.json
    assert asked.header("connection") == "close"
    asked.refuse(503)
    again = harness.repeated()
    assert again.json == asked.json
    again.accept()
    assert call.is_over
    error = only_failure(harness, handle)
    assert isinstance(error, RequestCancelled) is (how != "timeout")
