"""Calls with keys on HTTP+SSE: they outlive the event stream, which is their session."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import InputRequired, Limits, ServerCall
from sansmcp.events import CallCancelled, CallReceived, ResponseUndelivered
from sansmcp.reclaim import CANCEL, EXTENSION

from ..messages import notification
from .harness import RawExchange, ServerHarness, initialize, request
from .pipe_harness import result
from .sse_harness import SseClient
from .test_keys_in_sessions import SECRET, keyed, progress, rest
from .test_rounds import ACCEPTED, ALL, NAME
from .test_shared_keys_in_sessions import Fleet

OLDEST = "2024-11-05"
LOST = "the client has closed its stream"


def cancellation(secret: str = SECRET, place: str = ".") -> dict[str, Any]:
    return notification(CANCEL, _meta={EXTENSION: f"{place}.{secret}"})


class Keyed:
    """A server with one client, which may open a session again."""

    def __init__(self, harness: ServerHarness | None = None, **settings: Any) -> None:
        self.harness = harness or ServerHarness(http_sse="/sse", **settings)
        self.client = self.next_session()

    def next_session(self, principal: str = "") -> SseClient:
        self.client = SseClient(self.harness, principal=principal).open(OLDEST, ALL)
        return self.client

    def start(self, message: Any = None) -> tuple[RawExchange, ServerCall]:
        talk = self.client.post(keyed() if message is None else message)
        return talk, self.harness.last_call()

    def lose(self, *talks: RawExchange) -> None:
        """The connections of the session break: those of the POSTs, and of its stream."""
        for talk in (*talks, self.client.stream):
            talk.lose_connection()

    @property
    def started(self) -> int:
        """The calls that were not taken with ``start()``."""
        return sum(isinstance(event, CallReceived) for event in self.harness.events)

    @property
    def cancelled(self) -> list[str]:
        return [each.reason for each in self.harness.events if isinstance(each, CallCancelled)]


def refused(talk: RawExchange, status: int, reason: str) -> None:
    assert (talk.status, talk.json["error"]["data"]["reason"]) == (status, reason)


@pytest.fixture
def keys() -> Keyed:
    return Keyed()


@pytest.mark.parametrize("reclaim", [True, False])
def test_initialize_declares_the_extension(reclaim: bool) -> None:
    client = SseClient(ServerHarness(http_sse="/sse", reclaim=reclaim))
    (answer,) = client.say(initialize(OLDEST)).said
    extensions = answer["result"]["capabilities"].get("extensions", {})
    assert [each["timeoutSeconds"] for each in extensions.values()] == [60.0] * reclaim


def test_the_response_is_that_to_the_post(keys: Keyed) -> None:
    """The handler does not see the key."""
    talk, call = keys.start()
    assert call.request.params == {"name": "add", "_meta": {"progressToken": 1}}
    keys.harness.run_action(call.progress, 1)
    keys.harness.run_action(call.respond, {"sum": 3})
    assert progress(talk) == [1]
    assert talk.messages[-1] == result(1, {"sum": 3})
    assert talk.ended
    assert keys.client.said == []


def test_a_call_without_a_key_is_answered_on_the_stream(keys: Keyed) -> None:
    call = keys.client.call()
    keys.harness.run_action(call.respond, {"sum": 3})
    assert keys.client.said == [result(1, {"sum": 3})]


@pytest.mark.parametrize("settings", [{}, {"reclaim": False}])
def test_a_request_without_a_key_that_the_server_takes_is_a_message(
    settings: dict[str, Any],
) -> None:
    keys = Keyed(**settings)
    keys.client.say(request(2, "nope"), cancellation() if settings else request(3, "nope"))
    assert all(each["error"]["code"] == -32601 for each in keys.client.said)


def test_the_next_session_gets_the_rest(keys: Keyed) -> None:
    talk, call = keys.start()
    keys.harness.run_action(call.progress, 1)
    keys.lose(talk)
    assert keys.cancelled == []
    assert not call.is_connected
    keys.harness.run_action(call.progress, 2)
    keys.next_session()
    again = keys.client.post(rest(received=1))
    assert call.is_connected
    assert call.peer is keys.client.session
    keys.harness.run_action(call.respond, {"sum": 3})
    assert progress(again) == [2]
    assert again.messages[-1] == result(1, {"sum": 3})
    assert keys.started == 0


def test_also_a_response_that_came_meanwhile(keys: Keyed) -> None:
    talk, call = keys.start()
    keys.lose(talk)
    assert keys.harness.run_action(call.respond, {"sum": 3})
    assert not any(isinstance(event, ResponseUndelivered) for event in keys.harness.events)
    keys.next_session()
    assert keys.client.post(rest()).json == result(1, {"sum": 3})


def test_the_post_of_a_call_survives_the_stream(keys: Keyed) -> None:
    talk, call = keys.start()
    keys.client.stream.lose_connection()
    keys.harness.run_action(call.respond, {"sum": 3})
    assert talk.json == result(1, {"sum": 3})


def test_and_the_stream_the_post(keys: Keyed) -> None:
    talk, call = keys.start()
    talk.lose_connection()
    again = keys.client.post(rest())
    keys.harness.run_action(call.respond, {"sum": 3})
    assert again.json == result(1, {"sum": 3})


def test_a_new_session_while_the_server_has_not_noticed_the_end_of_the_old_one(
    keys: Keyed,
) -> None:
    talk, call = keys.start()
    old = keys.client
    SseClient(keys.harness).open(OLDEST, ALL)
    new = keys.client = SseClient(keys.harness).open(OLDEST, ALL)
    again = new.post(rest())
    assert talk.aborted
    old.stream.lose_connection()
    assert keys.cancelled == []
    keys.harness.run_action(call.respond, {"sum": 3})
    assert again.json == result(1, {"sum": 3})


@pytest.mark.parametrize("was_received", [False, True])
def test_an_open_question_comes_again_in_the_next_session(
    keys: Keyed, *, was_received: bool
) -> None:
    """The one that the client has received has ended with the old session."""
    talk, call = keys.start()
    keys.harness.run_action(call.notify, "notifications/message", {"level": "info", "data": "x"})
    keys.harness.run_action(call.ask, "elicitation/create", {"message": "?"}, timeout=60)
    keys.lose(talk)
    keys.next_session()
    again = keys.client.post(rest(received=1 + was_received))
    (question,) = again.messages
    assert question == talk.messages[-1]
    again.lose_connection()
    once_more = keys.client.post(rest(received=1 + was_received))
    assert once_more.messages == [question], "it was kept as a new message"
    assert keys.client.post(result(question["id"], ACCEPTED)).status == 202
    assert keys.client.post(result(question["id"], ACCEPTED)).status == 202
    keys.harness.run_action(call.respond, {"sum": 3})
    assert once_more.messages[-1] == result(1, {"sum": 3})


def test_an_answered_question_does_not_come_again(keys: Keyed) -> None:
    talk, call = keys.start()
    keys.harness.run_action(call.respond, InputRequired({"name": NAME}, None))
    (question,) = talk.messages
    keys.client.post(result(question["id"], ACCEPTED))
    going_on = keys.harness.last_call()
    keys.lose(talk)
    keys.next_session()
    again = keys.client.post(rest(received=1))
    keys.harness.run_action(going_on.respond, {"sum": 3})
    assert again.json == result(1, {"sum": 3})


def test_a_question_times_out_in_the_next_session_as_well(keys: Keyed) -> None:
    """The old session, of which the server has not seen the end, no longer has it."""
    _, call = keys.start()
    id = keys.harness.run_action(call.ask, "elicitation/create", {"message": "?"}, timeout=30)
    old = keys.client
    new = SseClient(keys.harness).open(OLDEST, ALL)
    new.post(rest())
    keys.harness.wait(31)
    assert old.post(result(id, ACCEPTED)).status == 202
    assert new.post(result(id, ACCEPTED)).status == 202
    keys.harness.run_action(call.respond, {})


def test_sessions_number_their_questions_differently(keys: Keyed) -> None:
    talk, call = keys.start()
    id = keys.harness.run_action(call.ask, "elicitation/create", {"message": "?"}, timeout=60)
    keys.lose(talk)
    keys.next_session()
    _, other = keys.start(keyed(2, secret="another-secret-of-a-call"))
    ids = id, keys.harness.run_action(other.ask, "roots/list", timeout=60)
    assert len({number >> 20 for number in ids}) == 2


def test_a_client_that_does_not_come_back(keys: Keyed) -> None:
    talk, _ = keys.start()
    keys.lose(talk)
    keys.harness.wait(Limits().reclaim_timeout)
    (why,) = keys.cancelled
    assert "reclaim_timeout" in why


def test_a_call_without_room_for_its_key_ends_with_its_post() -> None:
    keys = Keyed(limits=Limits(max_reclaim_bytes=1))
    keys.start()
    talk, _ = keys.start(keyed(2, secret="another-secret-of-a-call"))
    talk.lose_connection()
    assert keys.cancelled == ["the client has closed the response"]
    _, _ = keys.start(keyed(3, secret="a-third-secret-of-a-call"))
    keys.client.stream.lose_connection()
    assert keys.cancelled[1:] == [LOST]


def test_the_status_of_an_error_does_not_end_the_session(keys: Keyed) -> None:
    talk, call = keys.start()
    keys.harness.run_action(call.respond_error, -32601, "no such tool")
    assert talk.status == 200
    talk, call = keys.start(keyed(2, secret="another-secret-of-a-call"))
    keys.harness.run_action(call.refuse_busy)
    assert talk.status == 503


def test_what_is_refused(keys: Keyed) -> None:
    refused(keys.client.post(rest()), 409, "unknown_key")
    keys.start()
    refused(keys.client.post(rest(2)), 409, "key_in_use")
    other = keyed(3, method="resources/read", secret="another-secret-of-a-call")
    refused(keys.client.post(other), 400, "bad_key")
    same_id = keyed(1, secret="another-secret-of-a-call")
    refused(keys.client.post(same_id), 400, "duplicate_request_id")
    new = SseClient(keys.harness)
    refused(new.post(keyed(4)), 400, "not_initialized")


def test_the_key_is_that_of_a_principal() -> None:
    keys = Keyed()
    keys.next_session("alice")
    keys.start()
    keys.next_session("bob")
    refused(keys.client.post(rest()), 409, "unknown_key")
    assert keys.client.post(cancellation(place="elsewhere.0")).status == 503
    assert keys.cancelled == []


def test_a_session_takes_so_many_calls_and_no_more() -> None:
    keys = Keyed(limits=Limits(max_calls_per_session=1))
    talk, _ = keys.start()
    keys.lose(talk)
    keys.next_session()
    keys.client.call(2)
    refused(keys.client.post(rest()), 429, "too_many_requests")


@pytest.mark.parametrize("where", ["in its session", "in the next one", "in none", "too long"])
def test_cancelling(keys: Keyed, where: str) -> None:
    talk, call = keys.start()
    if where != "in its session":
        keys.lose(talk)
    if where == "in the next one":
        keys.next_session()
    if where == "too long":
        headers = {"content-length": str(1 << 20)}
        refused(keys.client.post(cancellation(), headers), 404, "session_not_found")
        return
    headers = {"content-length": "150"}  # so that the body is read although there is no session
    assert keys.client.post(cancellation(), headers).status == 202
    assert keys.cancelled == ["cancelled by the client"]
    assert not call.is_running
    assert talk.aborted == (where == "in its session")


def test_nothing_else_works_without_a_session(keys: Keyed) -> None:
    talk, _ = keys.start()
    keys.lose(talk)
    for message in (rest(), keyed(2), notification("notifications/cancelled", requestId=1), b"?"):
        for headers in ({}, {"content-length": "150"}):
            refused(keys.client.post(message, headers), 404, "session_not_found")


def test_a_session_that_the_application_ends_takes_its_calls_along(keys: Keyed) -> None:
    talk, _ = keys.start()
    keys.harness.run_action(keys.harness.server.end_session, keys.client.session, "no credit")
    assert keys.cancelled == ["no credit"]
    assert talk.aborted


def test_a_server_that_shuts_down_answers_calls_without_a_session(keys: Keyed) -> None:
    talk, _ = keys.start()
    keys.client.stream.lose_connection()
    keys.harness.run_action(keys.harness.server.drain)
    assert keys.harness.server.is_busy
    keys.harness.run_action(keys.harness.server.shut_down)
    assert talk.json["error"]["data"]["reason"] == "shutting_down"


# Keys in a shared store, before the store has the claim of a call


def shared(**settings: Any) -> tuple[Fleet, Keyed]:
    fleet = Fleet(http_sse="/sse", **settings)
    return fleet, Keyed(fleet[0])


def test_a_call_starts_in_the_session_that_asks_for_it_meanwhile() -> None:
    fleet, keys = shared()
    talk = fleet.while_claims_wait(lambda: keys.client.post(keyed()))
    keys.client = SseClient(keys.harness).open(OLDEST, ALL)
    again = fleet.while_claims_wait(lambda: keys.client.post(rest()))
    assert talk.aborted
    fleet.claims_are_stored()
    call = keys.harness.last_call()
    assert call.peer in keys.harness.server.sessions
    keys.harness.run_action(call.respond, {"sum": 3})
    assert again.messages[-1] == result(1, {"sum": 3})


def test_a_call_without_room_for_its_key_does_not_start_if_its_post_is_cut() -> None:
    fleet, keys = shared(limits=Limits(max_reclaim_bytes=1))
    fleet.while_claims_wait(lambda: keys.client.post(keyed()))
    other = keyed(2, secret="another-secret-of-a-call")
    fleet.while_claims_wait(lambda: keys.client.post(other)).lose_connection()
    fleet.claims_are_stored()
    assert keys.started == 1


def test_a_call_whose_session_ends_meanwhile_does_not_start() -> None:
    """The client sends it again."""
    fleet, keys = shared()
    talk = fleet.while_claims_wait(lambda: keys.client.post(keyed()))
    keys.lose(talk)
    fleet.claims_are_stored()
    assert keys.started == 0
    keys.next_session()
    refused(keys.client.post(rest(place=place_of(fleet))), 409, "unknown_key")
    talk, call = keys.start(keyed(place=place_of(fleet)))
    keys.harness.run_action(call.respond, {"sum": 3})
    assert talk.messages[-1] == result(1, {"sum": 3})


def place_of(fleet: Fleet) -> str:
    answer = fleet[1].post(initialize()).json["result"]["capabilities"]["extensions"][EXTENSION]
    place: str = answer["place"]
    return place
