"""Requests that the server refuses wait for authorization, and are sent again."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import Client, Limits, LocalProtocolError, RequestTimeout, Url
from sansmcp.auth.flow import Flow
from sansmcp.auth.options import Authorization
from sansmcp.client.authorizing import Authorizing, SendNow
from sansmcp.client.exchange import Exchange, ForDelete
from sansmcp.client.http_heads import HttpRequest
from sansmcp.client.message_decoder import MessageDecoder
from sansmcp.client.reader import ResponseReader
from sansmcp.effects import LoadCredentials, LockCredentials, SignJwt
from sansmcp.errors import AuthorizationFailed, RequestRefused
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Closed,
    Connected,
    MessageUndelivered,
    StandaloneStreamClosed,
)
from sansmcp.http import ResponseHead
from sansmcp.reclaim import EXTENSION
from sansmcp.revisions import REVISIONS
from sansmcp.states import ClientState
from sansmcp.trace import Tracer

from ..auth.bench import SERVER, World
from .auth_harness import ASM, PRM, AuthHarness, deny
from .harness import SESSION, URL, Asked, ClientHarness, initialized, only_failure, request
from .modern.harness import MODERN, TASKS, discovered, failed
from .modern.task_harness import ID, handle_of, state
from .sse_harness import SseHarness

TOKEN = "Bearer token-1"
STEP_UP = 'Bearer error="insufficient_scope", scope="more"'


def started(**settings: Any) -> AuthHarness:
    harness = AuthHarness(**settings)
    harness.run_command(harness.client.start)
    return harness


def connected(**settings: Any) -> AuthHarness:
    """A client whose session needs no token."""
    harness = started(**settings)
    harness.initialize()
    return harness


def tokens_of(harness: AuthHarness, asked: Asked) -> str | None:
    return asked.header("authorization")


@pytest.mark.requirement("AUTH-C-001", "AUTH-C-026")
def test_a_refused_handshake_is_sent_again_with_the_token() -> None:
    harness = started()
    first = harness.take()
    assert first.header("authorization") is None
    deny(first)
    again = harness.take()
    assert again.effect.body == first.effect.body
    assert again.header("authorization") == TOKEN
    assert len(harness.world.asked) == 4


@pytest.mark.requirement("AUTH-C-026")
def test_a_refused_probe_is_no_evidence_for_an_era() -> None:
    harness = AuthHarness(versions=tuple(REVISIONS))
    harness.run_command(harness.client.start)
    probe = harness.take()
    assert probe.json["method"] == "server/discover"
    deny(probe)
    again = harness.take()
    assert again.json["method"] == "server/discover"
    assert again.header("authorization") == TOKEN


@pytest.mark.requirement("AUTH-C-002", "AUTH-C-003")
def test_every_request_of_a_session_has_the_token() -> None:
    harness = AuthHarness(standalone_stream=True)
    harness.run_command(harness.client.start)
    deny(harness.take())
    harness.take_initialize()
    harness.take().accept()
    seen = harness.requests
    stream = harness.take("GET")
    _, call = harness.call()
    call.open_stream()
    call.event(id="e1")
    call.end()
    harness.wait(20)
    resumed = harness.take("GET")
    harness.run_command(harness.client.notify, "notifications/x")
    note = harness.take()
    harness.run_command(harness.client.close)
    delete = harness.take("DELETE")
    for asked in (stream, call, resumed, note, delete):
        assert asked.header("authorization") == TOKEN
        assert "token" not in asked.effect.url
    assert seen == []


def test_a_call_that_is_refused_waits_and_completes() -> None:
    harness = connected()
    handle, asked = harness.call()
    deny(asked)
    again = harness.take()
    assert again.header("authorization") == TOKEN
    again.result({"x": 1})
    assert harness.take_events() == [CallCompleted(handle, {"x": 1})]


def test_stored_credentials_are_sent_at_once() -> None:
    harness = started()
    deny(harness.take())
    harness.take()
    again = started(world=harness.world)
    assert again.take().header("authorization") == TOKEN


def test_an_older_request_is_only_sent_again() -> None:
    harness = connected()
    _, first = harness.call()
    _, second = harness.call()
    deny(first)
    assert harness.take().header("authorization") == TOKEN
    deny(second)
    assert harness.take().header("authorization") == TOKEN
    assert len(harness.world.opened) == 1


def test_other_requests_wait_for_the_same_flow() -> None:
    harness = connected()
    harness.asks_person = False
    _, first = harness.call()
    deny(first)
    for _ in range(2):
        harness.run_command(harness.client.call, "tools/call")
    harness.run_command(harness.client.notify, "notifications/x")
    assert harness.requests == []
    harness.log_in(harness.needed())
    assert [asked.header("authorization") for asked in harness.requests] == [TOKEN] * 4
    assert len({asked.effect.exchange for asked in harness.requests}) == 4


@pytest.mark.requirement("AUTH-C-016")
def test_a_step_up_repeats_the_same_message() -> None:
    harness = connected()
    _, asked = harness.call(params={"name": "echo"})
    deny(asked)
    second = harness.take()
    deny(second, STEP_UP, 403)
    third = harness.take()
    assert third.header("authorization") == "Bearer token-2"
    assert third.effect.body == asked.effect.body


@pytest.mark.requirement("AUTH-C-019")
def test_a_step_up_that_never_ends_is_an_error() -> None:
    harness = connected()
    handle, asked = harness.call(params={"name": "echo"})
    deny(asked)
    deny(harness.take(), STEP_UP, 403)
    deny(harness.take(), STEP_UP, 403)
    error = only_failure(harness, handle)
    assert isinstance(error, AuthorizationFailed)
    assert len(harness.world.opened) == 2


def test_a_refusal_that_is_not_about_scopes_is_reported_as_before() -> None:
    harness = connected()
    handle, asked = harness.call()
    deny(asked, "Bearer", 403)
    assert isinstance(only_failure(harness, handle), RequestRefused)


def test_without_the_setting_nothing_changes() -> None:
    harness = ClientHarness().connect()
    handle, asked = harness.call()
    deny(asked)
    assert isinstance(only_failure(harness, handle), RequestRefused)
    assert not harness.client.redirected("x", now=0.0)
    harness.client.login_failed("x", now=0.0)
    assert harness.client.authorization is None


# Failures


def failing() -> World:
    world = World()
    world.answers[ASM] = lambda asked: (503, b"")
    return world


def test_a_failed_flow_fails_the_calls_that_wait_and_each_names_itself() -> None:
    harness = connected()
    harness.asks_person = False
    handle, asked = harness.call(params={"name": "echo"})
    deny(asked)
    other = harness.run_command(harness.client.call, "tools/list")
    harness.run_command(harness.client.notify, "notifications/x")
    harness.run_command(harness.client.login_failed, "no")
    events = harness.take_events()
    errors = {event.call: event.error for event in events if isinstance(event, CallFailed)}
    assert errors.keys() == {handle, other}
    assert str(errors[handle]).startswith("tools/call was not completed: Authorization failed")
    assert errors[other].method == "tools/list"
    assert isinstance(errors[other].__cause__, AuthorizationFailed)
    assert any(isinstance(event, MessageUndelivered) for event in events)
    assert harness.client.state is ClientState.READY


@pytest.mark.parametrize("probes", [True, False])
def test_a_failed_flow_of_the_opening_closes_the_client(probes: bool) -> None:
    versions = tuple(REVISIONS) if probes else ("2025-11-25",)
    harness = AuthHarness(failing(), versions=versions)
    harness.run_command(harness.client.start)
    deny(harness.take())
    (event,) = harness.take_events()
    assert isinstance(event, Closed)
    assert isinstance(event.error, AuthorizationFailed)
    assert "HTTP 503" in str(event.error)
    assert harness.client.next_deadline() is None


def test_a_confirmation_that_gets_no_authorization() -> None:
    harness = AuthHarness(failing())
    harness.run_command(harness.client.start)
    harness.take_initialize()
    deny(harness.take())
    assert any(isinstance(event, MessageUndelivered) for event in harness.take_events())


def test_a_standalone_stream_that_gets_no_authorization() -> None:
    harness = AuthHarness(failing(), standalone_stream=True)
    harness.run_command(harness.client.start)
    harness.take_initialize()
    harness.take().accept()
    harness.events.clear()
    deny(harness.take("GET"))
    assert [type(event) for event in harness.take_events()] == [StandaloneStreamClosed]


def test_the_event_stream_of_http_sse() -> None:
    harness = AuthHarness(transports=("http+sse",))
    harness.run_command(harness.client.start)
    deny(harness.take("GET"))
    stream = harness.take("GET")
    assert stream.header("authorization") == TOKEN
    broken = AuthHarness(failing(), transports=("http+sse",))
    broken.run_command(broken.client.start)
    deny(broken.take("GET"))
    (event,) = broken.take_events()
    assert isinstance(event, Closed)
    assert isinstance(event.error, AuthorizationFailed)


def test_stored_credentials_that_cannot_be_read_close_the_client() -> None:
    world = World(storage_fails={LoadCredentials})
    harness = started(world=world)
    assert harness.requests == []
    (event,) = harness.take_events()
    assert isinstance(event, Closed)
    assert "cannot be read: it burns" in str(event.error)


# Time


def waiting(**settings: Any) -> tuple[AuthHarness, int]:
    harness = connected(**settings)
    harness.asks_person = False
    handle, asked = harness.call(timeout=5.0, total_timeout=8.0)
    harness.wait(2)
    deny(asked)
    return harness, handle


def test_the_timeouts_of_a_call_stand_still_while_a_person_logs_in() -> None:
    harness, handle = waiting()
    harness.wait(100)
    harness.log_in(harness.needed())
    harness.wait(4.9)
    assert harness.take_events() == []
    harness.wait(0.2)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


def test_the_total_timeout_goes_on_afterwards() -> None:
    harness, handle = waiting()
    harness.wait(100)
    harness.log_in(harness.needed())
    asked = harness.take()
    asked.open_stream()
    harness.wait(4)
    assert harness.take_events() == []
    harness.wait(2.1)
    assert isinstance(only_failure(harness, handle), RequestTimeout)


def test_a_login_that_nobody_completes_ends() -> None:
    harness, handle = waiting(authorization=Authorization(login_timeout=50.0))
    harness.needed()
    harness.wait(51)
    assert isinstance(only_failure(harness, handle), AuthorizationFailed)
    assert harness.client.next_deadline() is None


def test_a_call_is_cancelled_while_a_person_logs_in() -> None:
    harness, handle = waiting()
    needed = harness.needed()
    harness.run_command(harness.client.cancel, handle)
    assert [type(event) for event in harness.take_events()][-1] is CallFailed
    harness.requests.clear()
    harness.log_in(needed)
    sent = [asked.json["method"] for asked in harness.requests]
    assert "tools/call" not in sent


def test_the_opening_stands_still_while_a_person_logs_in() -> None:
    harness = started(connect_timeout=10.0)
    harness.asks_person = False
    harness.wait(4)
    deny(harness.take())
    harness.wait(100)
    assert [event for event in harness.events if isinstance(event, Closed)] == []
    harness.log_in(harness.needed())
    asked = harness.take()
    harness.wait(5.9)
    assert harness.events == []
    asked.answer({"jsonrpc": "2.0", "id": asked.id, "result": {}})
    assert asked.is_over


def test_the_opening_ends_after_its_rest() -> None:
    harness = started(connect_timeout=10.0)
    harness.asks_person = False
    harness.wait(4)
    deny(harness.take())
    harness.wait(100)
    harness.log_in(harness.needed())
    harness.wait(6.1)
    assert isinstance(harness.events[-1], Closed)


def test_the_opening_stands_still_from_the_first_message_that_waits() -> None:
    harness = started(connect_timeout=10.0)
    harness.asks_person = False
    initialize = harness.take()
    initialize.open_stream()
    harness.wait(4)
    initialize.event(request("a", "ping"))
    deny(harness.take())
    harness.wait(50)
    initialize.event(request("b", "ping"))
    harness.wait(50)
    harness.log_in(harness.needed())
    assert [asked.json["id"] for asked in harness.requests] == ["a", "b"]
    harness.wait(5.9)
    assert [event for event in harness.events if isinstance(event, Closed)] == []
    harness.wait(0.2)
    assert isinstance(harness.events[-1], Closed)


def test_a_notification_gets_its_full_time_afterwards() -> None:
    harness = connected()
    harness.asks_person = False
    harness.run_command(harness.client.notify, "notifications/x")
    deny(harness.take())
    harness.wait(100)
    assert [event for event in harness.events if isinstance(event, MessageUndelivered)] == []
    harness.log_in(harness.needed())
    harness.wait(harness.client.limits.post_timeout + 1)
    assert isinstance(harness.events[-1], MessageUndelivered)


def test_a_resumed_stream_waits_too() -> None:
    harness = connected()
    _, asked = harness.call(timeout=1000.0)
    asked.open_stream()
    asked.event(id="e1")
    harness.asks_person = False
    asked.cut()
    harness.wait(5)
    deny(harness.take("GET"))
    needed = harness.needed()
    harness.wait(harness.client.limits.stream_idle_timeout + 1)
    harness.events.clear()
    assert harness.requests == []
    harness.log_in(needed)
    resumed = harness.take("GET")
    assert resumed.header("last-event-id") == "e1"
    assert resumed.header("authorization") == TOKEN


def test_closing_while_a_person_logs_in() -> None:
    harness, _ = waiting()
    harness.run_command(harness.client.close)
    delete = harness.take("DELETE")
    delete.refuse(401, www_authenticate="Bearer")
    kinds = [type(event) for event in harness.take_events()]
    assert kinds[-2:] == [CallFailed, Closed]
    assert harness.client.next_deadline() is None


def test_closing_while_the_flow_makes_a_request() -> None:
    harness = connected()
    harness.holds = True
    _, asked = harness.call()
    deny(asked)
    assert len(harness.exchanges) == 1
    harness.run_command(harness.client.close)
    harness.take("DELETE").accept()
    late = ResponseHead(status=200)
    harness.client.receive_part(harness.exchanges[0].exchange, late, now=harness.now)
    assert harness.client.state is ClientState.CLOSED


def test_a_request_of_the_flow_times_out() -> None:
    harness = connected()
    harness.holds = True
    handle, asked = harness.call()
    deny(asked)
    harness.wait(10.1)
    error = only_failure(harness, handle)
    assert isinstance(error, AuthorizationFailed)
    assert error.reason == "no_response"
    assert harness.client.next_deadline() is None


def test_an_expired_token_is_refreshed_before_a_call() -> None:
    world = World(lifetime=100.0, gives_refresh=True)
    harness = connected(world=world)
    _, asked = harness.call()
    deny(asked)
    harness.take().result()
    world.wall_time += 200
    _, asked = harness.call()
    assert asked.header("authorization") == "Bearer token-2"
    assert world.locked == set()


# Origins


@pytest.mark.requirement("AUTH-C-004")
def test_no_token_follows_a_redirect_to_another_origin() -> None:
    harness = connected()
    handle, asked = harness.call()
    deny(asked)
    harness.take().refuse(307, location="http://localhost:9000/mcp")
    assert isinstance(only_failure(harness, handle), RequestRefused)
    assert harness.requests == []


def test_a_redirect_within_the_origin_keeps_the_token() -> None:
    harness = connected()
    _, asked = harness.call()
    deny(asked)
    harness.take().refuse(307, location="/other")
    moved = harness.take()
    assert moved.effect.url == "http://localhost:8000/other"
    assert moved.header("authorization") == TOKEN


@pytest.mark.requirement("AUTH-C-004")
def test_a_message_url_of_another_origin_gets_no_token() -> None:
    harness = AuthHarness(transports=("http+sse",))
    harness.run_command(harness.client.start)
    deny(harness.take("GET"))
    stream = harness.take("GET")
    stream.open_stream()
    stream.feed(*endpoint_event("http://localhost:9000/messages"))
    for asked in harness.requests:
        assert asked.header("authorization") is None


def endpoint_event(url: str) -> list[Any]:
    from sansmcp import BodyData

    return [BodyData(f"event: endpoint\ndata: {url}\n\n".encode())]


# DPoP


def dpop(**settings: Any) -> AuthHarness:
    world = World(token_type="DPoP")
    world.documents[ASM] = {**SERVER, "dpop_signing_alg_values_supported": ["ES256"]}
    return connected(world=world, authorization=Authorization(dpop=True), **settings)


def test_each_request_has_a_proof_of_its_own() -> None:
    harness = dpop()
    _, asked = harness.call()
    deny(asked)
    first = harness.take()
    assert first.header("authorization") == "DPoP token-1"
    assert first.header("dpop") == "jwt-2"
    first.result()
    _, second = harness.call()
    assert second.header("dpop") == "jwt-3"
    assert harness.world.signed[-1].claims["htm"] == "POST"


def test_a_nonce_of_the_server() -> None:
    harness = dpop()
    _, asked = harness.call()
    deny(asked)
    harness.take().refuse(401, www_authenticate='DPoP error="use_dpop_nonce"', dpop_nonce="n1")
    again = harness.take()
    assert again.header("authorization") == "DPoP token-1"
    assert harness.world.signed[-1].claims["nonce"] == "n1"
    assert len(harness.world.opened) == 1


def test_a_call_that_is_cancelled_before_its_effects_are_pulled_is_not_sent() -> None:
    harness = connected()
    harness.requests.clear()
    client = harness.client
    handle = client.call("tools/call", now=harness.now)
    assert client.next_deadline() == harness.now
    assert client.cancel(handle, now=harness.now)
    harness.run_pending()
    assert harness.requests == []
    assert [type(event) for event in harness.take_events()] == [CallFailed]


def test_a_call_that_is_cancelled_while_its_proof_is_signed() -> None:
    harness = dpop()
    _, asked = harness.call()
    deny(asked)
    harness.take().result()
    harness.signs = False
    handle = harness.run_command(harness.client.call, "tools/call")
    (effect,) = harness.unsigned
    harness.signs = True
    harness.run_command(harness.client.cancel, handle)
    harness.requests.clear()
    harness.client.auth_completed(effect, "late", now=harness.now)
    harness.run_pending()
    assert harness.requests == []


def test_a_proof_that_cannot_be_signed() -> None:
    harness = dpop()
    _, asked = harness.call()
    deny(asked)
    harness.take().result()
    harness.events.clear()
    harness.world.storage_fails.add(SignJwt)
    handle = harness.run_command(harness.client.call, "tools/call")
    assert "a JWT cannot be signed: it burns" in str(only_failure(harness, handle))


# Misuse


def test_authorization_is_not_for_unix_sockets() -> None:
    with pytest.raises(LocalProtocolError, match="is for http and https URLs"):
        Client(
            "http+unix://%2Frun%2Fs/mcp",
            jitter=lambda: 0.5,
            authorization=Authorization(redirect_uri="http://127.0.0.1/callback"),
        )


def test_authorization_needs_a_clock_and_random_bytes() -> None:
    with pytest.raises(LocalProtocolError, match="needs random_bytes and wall_clock"):
        Client(URL, jitter=lambda: 0.5, authorization=Authorization())


def test_a_process_needs_no_authorization() -> None:
    client = Client(["server"], jitter=lambda: 0.5, authorization=Authorization())
    client.start(now=0.0)


def test_authorization_and_the_header_exclude_each_other() -> None:
    with pytest.raises(LocalProtocolError, match="either authorization or the header"):
        AuthHarness(headers={"Authorization": "Bearer x"})


def test_a_trace_shows_no_secret() -> None:
    lines: list[str] = []
    harness = connected(world=World(gives_refresh=True), trace=Tracer("client", lines.append))
    _, asked = harness.call()
    deny(asked)
    harness.take().result()
    text = "\n".join(lines)
    assert "a request of the authorization, not shown" in text
    for secret in ("token-1", "refresh-1", "code-1", "client-of-as.example"):
        assert secret not in text


def test_locks_that_others_hold_do_not_block_the_client() -> None:
    world = World(lifetime=100.0, gives_refresh=True)
    harness = connected(world=world)
    _, asked = harness.call()
    deny(asked)
    harness.take().result()
    harness.events.clear()
    world.storage_fails = {LockCredentials}
    world.wall_time += 200
    handle = harness.run_command(harness.client.call, "tools/call")
    assert "cannot be locked" in str(only_failure(harness, handle))


def test_connected_is_reported_once() -> None:
    harness = started()
    deny(harness.take())
    harness.take_initialize()
    harness.take().accept()
    assert [type(event) for event in harness.take_events()] == [Connected]
    assert PRM in [asked.url for asked in harness.world.asked]


def test_a_list_of_tools_that_gets_no_authorization() -> None:
    """The call that needs the headers of its tool is made again without them."""
    harness = AuthHarness(failing(), versions=(MODERN,))
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id))
    _, call = harness.call(params={"name": "echo"})
    call.answer(failed(call.id, -32020, "headers differ"), 400)
    listing = harness.take()
    assert listing.json["method"] == "tools/list"
    deny(listing)
    assert harness.take().json["method"] == "tools/call"


def test_a_renewal_that_gets_no_authorization_leaves_the_subscription() -> None:
    harness = AuthHarness(failing(), versions=(MODERN,))
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id))
    _, first = harness.call("subscriptions/listen", params={"notifications": {}})
    first.open_stream()
    harness.wait(harness.client.limits.stream_idle_timeout)
    deny(harness.take())
    assert not first.aborted
    assert [event for event in harness.events if isinstance(event, CallFailed | Closed)] == []


def test_a_poll_of_a_task_that_gets_no_authorization_ends_the_call_of_the_task() -> None:
    harness = AuthHarness(failing(), versions=(MODERN,), tasks=True)
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id, capabilities={"tools": {}, "extensions": {TASKS: {}}}))
    call, first = harness.call(params={"name": "echo"})
    other, running = harness.call("prompts/list")
    first.result(handle_of())
    harness.wait(2)
    poll = harness.take()
    assert poll.json["method"] == "tasks/get"
    deny(poll)
    (failure,) = [event for event in harness.events if isinstance(event, CallFailed | Closed)]
    assert isinstance(failure, CallFailed)
    assert failure.call == call
    assert isinstance(failure.error, AuthorizationFailed)
    assert failure.error.task_id == ID
    harness.take_events()
    running.result({"prompts": []})
    assert [event.call for event in harness.take_events() if isinstance(event, CallCompleted)] == [
        other
    ]


def test_a_subscription_to_a_task_that_gets_no_authorization_leaves_its_polls() -> None:
    harness = AuthHarness(failing(), versions=(MODERN,), tasks=True)
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id, capabilities={"tools": {}, "extensions": {TASKS: {}}}))
    _, first = harness.call(params={"name": "echo"})
    first.result(handle_of())
    listening: list[Asked] = []
    while not listening:
        harness.wait(2)
        for each in harness.requests:
            if each.json["method"] == "tasks/get":
                each.result(state())
            else:
                listening.append(each)
        harness.requests.clear()
    deny(listening[0])
    assert [event for event in harness.events if isinstance(event, CallFailed | Closed)] == []


def test_a_list_of_tools_that_waits_stops_the_clock_of_its_call() -> None:
    harness = AuthHarness(versions=(MODERN,))
    harness.asks_person = False
    harness.run_command(harness.client.start)
    asked = harness.take()
    asked.answer(discovered(asked.id))
    _, call = harness.call(params={"name": "echo"}, timeout=5.0)
    call.answer(failed(call.id, -32020, "headers differ"), 400)
    deny(harness.take())
    needed = harness.needed()
    harness.wait(100)
    harness.events.clear()
    harness.log_in(needed)
    assert harness.take().json["method"] == "tools/list"


def test_a_call_that_is_cancelled_before_its_proof_fails() -> None:
    harness = dpop()
    _, asked = harness.call()
    deny(asked)
    harness.take().result()
    harness.signs = False
    handle = harness.run_command(harness.client.call, "tools/call")
    (effect,) = harness.unsigned
    harness.run_command(harness.client.cancel, handle)
    harness.events.clear()
    harness.client.auth_failed(effect, "late", now=harness.now)
    harness.run_pending()
    assert harness.events == []


def test_another_origin_is_never_authorized() -> None:
    """The client sends no such request; this is the last line of defence."""
    flow = Flow(URL, Authorization(), bytes, lambda: 0.0, False)
    request = HttpRequest(Url.parse("http://localhost:9000/mcp"), b"POST", ())
    reader = ResponseReader(request, MessageDecoder(Limits(), is_strict=False))
    exchange = Exchange(ForDelete(), request, reader, None, 0)
    assert Authorizing(flow).admit(1, exchange, 0.0) == SendNow(())


class SseAuthHarness(AuthHarness, SseHarness):
    """On HTTP+SSE all responses share one stream."""


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_call_whose_rest_waits_is_cancelled_and_one_that_waits_itself_is_not(
    is_cut: bool,
) -> None:
    """Only of the first one the server knows, which may run."""
    harness = started()
    asked = harness.take()
    answer = initialized(asked.id)
    declared = {EXTENSION: {"place": "process.0", "timeoutSeconds": 60.0}}
    answer["result"]["capabilities"] = {"tools": {}, "extensions": declared}
    asked.answer(answer, mcp_session_id=SESSION)
    harness.take().accept()
    harness.asks_person = False
    handle, call = harness.call(timeout=200)
    if is_cut:
        call.open_stream()
        call.cut()
        harness.wait(5)
        rest = harness.take()
        assert rest.json["method"] == EXTENSION
        deny(rest)
    else:
        deny(call)
    harness.run_command(harness.client.cancel, handle)
    harness.log_in(harness.needed())
    sent = [(each.json["method"], each.json["params"]["requestId"]) for each in harness.requests]
    assert sent == ([("notifications/cancelled", call.id)] if is_cut else [])
    harness.requests.clear()


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_no_cancellation_by_its_key_of_a_call_that_was_never_sent(how: str) -> None:
    harness = started(versions=(MODERN,))
    declared = {EXTENSION: {"place": "process.0", "timeoutSeconds": 60.0}}
    asked = harness.take()
    asked.answer(discovered(asked.id, capabilities={"tools": {}, "extensions": declared}))
    harness.asks_person = False
    handle, call = harness.call(timeout=200)
    assert EXTENSION in call.json["params"]["_meta"]
    deny(call)
    needed = harness.needed()
    if how == "cancel":
        harness.run_command(harness.client.cancel, handle)
        harness.log_in(needed)
    else:
        harness.run_command(harness.client.close)
        assert harness.client.state is ClientState.CLOSED, "it waits for nothing"
    assert harness.requests == []
    harness.take_events()


def test_on_http_sse_a_cancelled_call_that_waits_is_not_sent() -> None:
    harness = SseAuthHarness()
    harness.connect()
    harness.asks_person = False
    handle, asked = harness.call()
    deny(asked)
    waiting = harness.run_command(harness.client.call, "tools/call")
    harness.run_command(harness.client.cancel, waiting)
    harness.log_in(harness.needed())
    assert handle != waiting
    sent = [each.json["method"] for each in harness.requests]
    assert sent == ["tools/call"], "nor is a cancellation of what the server has never seen"
    harness.requests.clear()


def test_a_ping_that_gets_no_authorization_says_nothing_about_the_event_stream() -> None:
    harness = SseAuthHarness(failing())
    harness.connect()
    harness.wait(harness.client.limits.stream_idle_timeout)
    deny(harness.take())
    assert not harness.stream.aborted
    harness.wait(harness.client.limits.stream_idle_timeout)
    assert harness.take().json["method"] == "ping"
    assert [event for event in harness.events if isinstance(event, Closed)] == []
