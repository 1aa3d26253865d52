"""Calls with keys at the handshake revisions: a key does what resumption cannot."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import AppendResult, InputRequired, Limits, ServerCall
from sansmcp.effects import StoreAppend
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.reclaim import EXTENSION

from ..messages import notification
from .harness import LATEST, RawExchange, ServerHarness, initialize, request
from .pipe_harness import result
from .test_rounds import ACCEPTED, ALL, NAME

OLDER = ["2025-03-26", "2025-06-18", "2025-11-25"]
SECRET = "a-secret-of-the-call"


def keyed(
    id: int = 1,
    *,
    method: str = "tools/call",
    place: str = ".",
    secret: str = SECRET,
    **params: Any,
) -> dict[str, Any]:
    """A request with a key, which carries a progress token."""
    about = {EXTENSION: f"{place}.{secret}", "progressToken": id}
    message = request(id, method)
    message["params"] = {**params, "_meta": about}
    if method == "tools/call":
        message["params"]["name"] = "add"
    return message


def rest(id: int = 1, received: int = 0, place: str = ".") -> dict[str, Any]:
    return keyed(id, method=EXTENSION, place=place, received=received)


class Keyed(ServerHarness):
    """A server with a session, at one revision."""

    version = LATEST
    streams_at_once = False
    """True if calls report before they are cut."""

    def __init__(self, version: str = LATEST, **settings: Any) -> None:
        super().__init__(**settings)
        self.version = version
        self.session = self.open_session(version, ALL)

    def ask(self, message: Any) -> RawExchange:
        return self.post(message, self.session, self.version)

    def start(self, message: Any = None) -> tuple[RawExchange, ServerCall]:
        talk = self.ask(keyed() if message is None else message)
        return talk, self.last_call()

    @property
    def started(self) -> int:
        """The calls that were not taken with ``start()``."""
        return sum(isinstance(event, CallReceived) for event in self.events)


def progress(talk: RawExchange) -> list[float]:
    return [each["params"]["progress"] for each in talk.messages if "params" in each]


def cancel(harness: Keyed, id: int) -> None:
    harness.ask(notification("notifications/cancelled", requestId=id))


@pytest.mark.parametrize("version", OLDER)
def test_initialize_declares_the_extension(version: str) -> None:
    declared = ServerHarness().post(initialize(version)).json["result"]["capabilities"]
    assert declared["extensions"][EXTENSION]["timeoutSeconds"] == Limits().reclaim_timeout
    without = ServerHarness(reclaim=False).post(initialize(version)).json["result"]
    assert "extensions" not in without["capabilities"]


@pytest.mark.parametrize("reclaim", [True, False])
def test_the_handler_does_not_see_the_key(reclaim: bool) -> None:
    _, call = Keyed(reclaim=reclaim).start()
    assert call.request.params == {"name": "add", "_meta": {"progressToken": 1}}


def test_a_call_that_names_no_tool_has_a_key_as_well() -> None:
    """Its handler says what is missing, and that arrives once, too."""
    message = keyed()
    del message["params"]["name"]
    harness = Keyed()
    talk, call = harness.start(message)
    talk.lose_connection()
    harness.run_action(call.respond_error, -32602, "Name a tool")
    assert harness.ask(rest()).error["message"] == "Name a tool"
    assert harness.started == 0


@pytest.mark.parametrize("resumable", [True, False])
@pytest.mark.parametrize("version", OLDER)
def test_a_response_that_was_lost_as_json_is_sent_again(version: str, resumable: bool) -> None:
    harness = Keyed(version, resumable=resumable)
    talk, call = harness.start()
    talk.lose_connection()
    assert harness.run_action(call.respond, {"sum": 3})
    again = harness.ask(rest())
    assert again.json["result"] == {"sum": 3}
    assert harness.started == 0


@pytest.mark.parametrize("version", OLDER)
def test_before_the_first_id_the_rest_is_the_stream_from_its_beginning(version: str) -> None:
    """The client resumes it from then on."""
    harness = Keyed(version)
    talk, call = harness.start()
    harness.wait(0.1)
    talk.lose_connection()
    assert harness.run_action(call.progress, 1)
    again = harness.ask(rest())
    assert progress(again) == [1]
    resumed = harness.get(harness.session, again.last_id)
    harness.run_action(call.progress, 2)
    harness.run_action(call.respond, {"sum": 3})
    assert progress(resumed) == [2]
    assert resumed.messages[-1]["result"] == {"sum": 3}


@pytest.mark.parametrize("version", OLDER)
def test_where_nothing_is_stored_what_was_missed_is_kept(version: str) -> None:
    harness = Keyed(version, resumable=False)
    talk, call = harness.start()
    harness.run_action(call.progress, 1)
    assert progress(talk) == [1]
    talk.lose_connection()
    assert harness.run_action(call.progress, 2)
    again = harness.ask(rest(received=1))
    assert progress(again) == [2]
    harness.run_action(call.progress, 3)
    again.lose_connection()
    assert harness.run_action(call.respond, {"sum": 3})
    last = harness.ask(rest(received=3))
    assert last.json["result"] == {"sum": 3}
    assert harness.ask(rest(received=2)).messages[-1]["result"] == {"sum": 3}


def test_a_cut_before_the_response_begins_loses_no_report() -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    talk.lose_connection()
    assert harness.run_action(call.progress, 1)
    again = harness.ask(rest())
    assert progress(again) == [1]
    assert not again.is_over
    again.lose_connection()
    assert harness.run_action(call.respond, {"sum": 3})
    assert harness.get(harness.session, again.last_id).messages[-1]["result"] == {"sum": 3}


def test_a_newer_connection_replaces_the_older_one() -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    again = harness.ask(rest())
    assert talk.is_over
    harness.run_action(call.respond, {"sum": 3})
    assert again.json["result"] == {"sum": 3}


@pytest.mark.parametrize("resumable", [True, False])
def test_a_question_that_was_lost_comes_again(resumable: bool) -> None:
    harness = Keyed("2025-06-18", resumable=resumable)
    talk, call = harness.start()
    talk.lose_connection()
    required = InputRequired({"name": NAME}, None)
    assert harness.run_action(call.respond, required)
    again = harness.ask(rest())
    (question,) = again.messages
    assert harness.ask(result(question["id"], ACCEPTED)).status == 202
    going_on = harness.last_call()
    assert going_on.handler_input.input_responses == {"name": ACCEPTED}
    harness.run_action(going_on.respond, {"sum": 3})
    assert again.messages[-1]["result"] == {"sum": 3}


def test_also_if_it_was_lost_after_the_call_was_parked() -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    harness.run_action(call.respond, InputRequired({"name": NAME}, None))
    talk.lose_connection()
    again = harness.ask(rest())
    assert again.messages == talk.messages
    again.lose_connection()
    assert harness.ask(rest()).messages == talk.messages


@pytest.mark.parametrize("shared_store", [False, True])
@pytest.mark.parametrize("multi_turn", [False, True])
def test_of_a_parked_call_comes_what_was_missed(*, shared_store: bool, multi_turn: bool) -> None:
    harness = Keyed(shared_store=shared_store, assume_multi_turn=multi_turn)
    talk, call = harness.start()
    for number in (1, 2, 3):
        harness.run_action(call.progress, number)
    harness.run_action(call.respond, InputRequired({"name": NAME}, None))
    talk.lose_connection()
    for received, missed in ((2, [3]), (3, [])):
        again = harness.ask(rest(received=received))
        told = [each["params"].get("progress", "a question") for each in again.messages]
        assert told == [*missed, "a question"]
        again.lose_connection()
    again = harness.ask(rest(received=4))
    assert again.messages == []


def start_with_reports(harness: Keyed, count: int) -> tuple[RawExchange, ServerCall]:
    talk, call = harness.start()
    for number in range(1, count + 1):
        harness.wait(1)
        harness.run_action(call.progress, number)
    assert progress(talk) == [*range(1, count + 1)]
    return talk, call


@pytest.mark.parametrize("settings", [{}, {"shared_store": True}, {"resumable": False}])
@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("received", [1, 29, 30])
def test_what_was_sent_on_a_connection_that_was_cut_is_not_taken_for_received(
    version: str, settings: dict[str, Any], received: int
) -> None:
    """Messages on their way are lost with a connection, and the client may get no id by a GET."""
    harness = Keyed(version, **settings)
    talk, call = start_with_reports(harness, 30)
    talk.lose_connection()
    again = harness.ask(rest(received=received))
    assert progress(again) == [*range(received + 1, 31)]
    again.lose_connection()
    again = harness.ask(rest(received=received))
    harness.wait(1)
    harness.run_action(call.progress, 31)
    harness.run_action(call.respond, {"sum": 3})
    assert progress(again) == [*range(received + 1, 32)]
    assert again.messages[-1]["result"] == {"sum": 3}


@pytest.mark.parametrize("received", [1, 2, 199])
def test_where_messages_are_stored_any_number_comes_again(received: int) -> None:
    harness = Keyed()
    talk, _ = start_with_reports(harness, 200)
    talk.lose_connection()
    assert progress(harness.ask(rest(received=received))) == [*range(received + 1, 201)]


@pytest.mark.parametrize(("received", "first"), [(69, 70), (68, 69), (67, 68), (1, 68)])
def test_entries_without_a_message_are_not_counted(received: int, first: int) -> None:
    """The log of a call that takes long gets them, so that the store does not evict it.

    The store evicts messages before the server forgets where they are.
    """
    harness = Keyed(shared_store=True, limits=Limits(max_stored_age=30))
    talk, call = harness.start()
    for number in range(1, 71):
        harness.wait(15)
        harness.run_action(call.progress, number)
    talk.lose_connection()
    assert progress(harness.ask(rest(received=received))) == [*range(first, 71)]


@pytest.mark.parametrize("shared_store", [False, True])
@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize("received", [0, 1, 2, 3])
def test_what_was_reported_without_a_connection_can_be_lost_on_the_next_one(
    *, version: str, shared_store: bool, received: int
) -> None:
    harness = Keyed(version, shared_store=shared_store)
    talk, call = harness.start()
    talk.lose_connection()
    harness.run_action(call.progress, 1)
    harness.run_action(call.progress, 2)
    again = harness.ask(rest())
    harness.run_action(call.progress, 3)
    assert progress(again) == [1, 2, 3]
    again.lose_connection()
    assert progress(harness.ask(rest(received=received))) == [1, 2, 3][received:]


@pytest.mark.parametrize("shared_store", [False, True])
@pytest.mark.parametrize("is_cut_before", [False, True])
@pytest.mark.parametrize("received", [0, 1, 2, 3])
def test_of_a_parked_call_that_goes_on_comes_what_was_missed(
    *, shared_store: bool, is_cut_before: bool, received: int
) -> None:
    harness = Keyed(shared_store=shared_store)
    talk, call = harness.start()
    harness.run_action(call.progress, 1)
    harness.run_action(call.respond, InputRequired({"name": NAME}, None))
    question = talk.messages[-1]
    if is_cut_before:
        talk.lose_connection()
    harness.ask(result(question["id"], ACCEPTED))
    going_on = harness.last_call()
    harness.run_action(going_on.progress, 2)
    talk.lose_connection()
    again = harness.ask(rest(received=received))
    harness.run_action(going_on.respond, {"sum": 3})
    *told, response = again.messages
    names = [each["params"].get("progress", "a question") for each in told]
    assert names == [1, "a question", 2][received:]
    assert response["result"] == {"sum": 3}


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_parked_call_keeps_its_key_for_a_while(is_cut: bool) -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    if is_cut:
        harness.run_action(call.progress, 1)
        talk.lose_connection()
    harness.run_action(call.respond, InputRequired({"name": NAME}, None))
    if is_cut:
        talk = harness.get(harness.session, talk.last_id)
    harness.wait(Limits().reclaim_timeout)
    refused = harness.ask(rest())
    assert (refused.status, refused.error["data"]["reason"]) == (409, "unknown_key")
    (question,) = talk.messages
    harness.ask(result(question["id"], ACCEPTED))
    harness.run_action(harness.last_call().respond, {"sum": 3})
    assert talk.messages[-1]["result"] == {"sum": 3}


def test_a_store_that_fails_does_not_say_that_nothing_was_run() -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    harness.run_action(call.respond, InputRequired({"name": NAME}, None))
    talk.lose_connection()
    harness.store_works = False
    again = harness.ask(rest())
    harness.fail_store_for_good()
    assert (again.status, again.is_over) == (None, True)


def test_a_copy_runs_nothing() -> None:
    harness = Keyed("2025-06-18")
    _, call = harness.start()
    copy = harness.ask(keyed())
    harness.run_action(call.respond, {"sum": 3})
    assert copy.json["result"] == harness.ask(keyed()).json["result"] == {"sum": 3}
    assert harness.started == 0


def test_what_has_never_arrived_is_told() -> None:
    harness = Keyed("2025-06-18")
    place = harness.post(initialize("2025-06-18")).json["result"]["capabilities"]["extensions"]
    refused = harness.ask(rest(place=place[EXTENSION]["place"]))
    assert refused.status == 409
    assert refused.error["data"]["neverArrived"] is True
    assert harness.ask(rest()).error["data"]["neverArrived"] is False


def test_a_call_for_another_process_is_refused() -> None:
    harness = Keyed()
    refused = harness.ask(keyed(place="another-process.0"))
    assert (refused.status, refused.error["data"]["reason"]) == (409, "other_place")
    assert harness.started == 0


def test_a_key_is_of_a_call_only() -> None:
    harness = Keyed()
    assert harness.ask(keyed(method="ping")).status == 400
    bad = request(2)
    bad["params"]["_meta"] = {EXTENSION: "no key"}
    assert harness.ask(bad).status == 400
    assert harness.started == 0


def test_a_cancelled_call_has_no_response() -> None:
    harness = Keyed("2025-06-18", resumable=False)
    talk, _ = harness.start()
    talk.lose_connection()
    cancel(harness, 1)
    assert [event for event in harness.events if isinstance(event, CallCancelled)]
    assert harness.ask(rest()).error["data"]["reason"] == "unknown_key"


def test_a_client_that_does_not_come_back_cancels_nothing() -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    talk.lose_connection()
    harness.wait(10 * Limits().reclaim_timeout)
    assert harness.run_action(call.respond, {"sum": 3})


def start_and_cut(harness: Keyed, id: int) -> ServerCall:
    talk, call = harness.start(keyed(id, secret=f"a-secret-of-call-{id}"))
    if harness.streams_at_once:
        assert harness.run_action(call.progress, 1)
    talk.lose_connection()
    return call


_TOO_MANY_CUT = "too many calls run without a connection (max_cut_calls)"


def cancellations(harness: Keyed) -> list[tuple[ServerCall, str]]:
    found = [event for event in harness.events if isinstance(event, CallCancelled)]
    return [(event.call, event.reason) for event in found]


@pytest.mark.parametrize("settings", [{}, {"shared_store": True}, {"resumable": False}])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("version", OLDER)
def test_beyond_the_bound_the_call_that_was_cut_longest_ago_is_cancelled(
    version: str, *, streams: bool, settings: dict[str, Any]
) -> None:
    harness = Keyed(version, limits=Limits(max_cut_calls=2), **settings)
    harness.streams_at_once = streams
    first, second, third = (start_and_cut(harness, id) for id in (1, 2, 3))
    assert cancellations(harness) == [(first, _TOO_MANY_CUT)]
    assert second.is_running
    assert third.is_running
    again = harness.ask({**rest(1), **keyed(1, method=EXTENSION, secret="a-secret-of-call-1")})
    assert again.error["data"]["reason"] == "unknown_key"


@pytest.mark.parametrize("version", OLDER)
def test_a_client_that_resumes_a_call_that_was_cancelled_is_told(version: str) -> None:
    """It would poll for ever."""
    harness = Keyed(version, limits=Limits(max_cut_calls=1))
    harness.streams_at_once = True
    talk, call = harness.start()
    harness.run_action(call.progress, 1)
    talk.lose_connection()
    start_and_cut(harness, 2)
    assert cancellations(harness) == [(call, _TOO_MANY_CUT)]
    resumed = harness.get(harness.session, talk.last_id)
    (response,) = resumed.messages
    assert response["error"]["data"] == {"reason": "too_many_cut_calls"}
    assert resumed.ended


def test_a_call_without_room_whose_store_has_lost_entries_is_cancelled_once() -> None:
    """The loss of its reader ends its stream, which is being given up: nothing more is stored."""
    limits = Limits(max_reclaim_bytes=1000, max_unsent_bytes=200)
    harness = Keyed(limits=limits)
    harness.streams_at_once = True
    talk, call = harness.start()
    harness.run_action(call.progress, 1)
    talk.reads = False
    for number in range(2, 9):
        harness.run_action(call.progress, number, None, "x" * 100)
    harness.store_works = False
    harness.run_action(call.progress, 9)
    harness.wait(0.1)
    (append,) = (each for each in harness.waiting if isinstance(each, StoreAppend))
    harness.waiting.clear()
    harness.run_action(harness.server.append_completed, append, AppendResult.BEHIND)
    ((cancelled, reason),) = cancellations(harness)
    assert cancelled is call
    assert "max_reclaim_bytes" in reason
    assert not [each for each in harness.waiting if isinstance(each, StoreAppend)]


def test_a_call_whose_client_has_resumed_is_not_counted() -> None:
    """Until that connection is cut, too, or broken off."""
    harness = Keyed(limits=Limits(max_cut_calls=2))
    harness.streams_at_once = True
    talk, first = harness.start()
    harness.run_action(first.progress, 1)
    talk.lose_connection()
    resumed = harness.get(harness.session, talk.last_id)
    calls = [start_and_cut(harness, id) for id in (2, 3)]
    assert cancellations(harness) == []
    resumed.lose_connection()
    assert cancellations(harness) == [(calls[0], _TOO_MANY_CUT)]
    assert harness.run_action(first.respond, {"sum": 3})
    assert calls[1].is_running


def test_a_call_is_counted_if_its_client_resumes_in_vain() -> None:
    harness = Keyed(limits=Limits(max_cut_calls=1))
    harness.streams_at_once = True
    talk, first = harness.start()
    harness.run_action(first.progress, 1)
    talk.lose_connection()
    beyond = talk.last_id.rpartition(".")[0] + ".99"
    assert harness.get(harness.session, beyond).status == 400
    start_and_cut(harness, 2)
    assert cancellations(harness) == [(first, _TOO_MANY_CUT)]


def test_a_call_that_the_server_disconnects_is_not_counted() -> None:
    harness = Keyed(limits=Limits(max_cut_calls=1))
    harness.streams_at_once = True
    _, polled = harness.start()
    assert harness.run_action(polled.disconnect)
    start_and_cut(harness, 2)
    assert cancellations(harness) == []


def test_a_call_that_has_ended_is_not_counted() -> None:
    harness = Keyed(limits=Limits(max_cut_calls=1), store_works=False)
    harness.store_works = True
    talk, first = harness.start()
    harness.run_action(first.progress, 1)
    harness.store_works = False
    harness.run_action(first.respond, {"sum": 3})
    talk.lose_connection()
    harness.store_works = True
    harness.streams_at_once = False
    start_and_cut(harness, 2)
    assert cancellations(harness) == []


def test_the_requests_of_calls_that_were_cut_take_room() -> None:
    harness = Keyed(limits=Limits(max_reclaim_bytes=30_000))
    calls: list[ServerCall] = []
    for id in range(10):
        about = keyed(id, secret=f"a-secret-of-call-{id}", arguments={"text": "x" * 5000})
        talk, call = harness.start(about)
        talk.lose_connection()
        calls.append(call)
    assert [call.is_running for call in calls] == [False] * 6 + [True] * 4


def test_without_room_a_call_has_no_key() -> None:
    harness = Keyed("2025-06-18", limits=Limits(max_reclaim_bytes=1))
    harness.start(keyed(1, secret="a-secret-of-another"))
    for id, end in ((2, {"sum": 3}), (3, InputRequired({"name": NAME}, None))):
        talk, call = harness.start(keyed(id))
        assert harness.run_action(call.progress, 1)
        assert harness.run_action(call.respond, end)
        assert talk.messages[0]["params"]["progress"] == 1
        assert harness.ask(rest(id)).error["data"]["reason"] == "unknown_key"
    talk, call = harness.start(keyed(4))
    cancel(harness, 4)
    assert not call.is_running


def test_the_rest_is_sent_while_the_server_stops() -> None:
    harness = Keyed("2025-06-18")
    talk, call = harness.start()
    talk.lose_connection()
    harness.run_action(harness.server.drain)
    again = harness.ask(rest())
    harness.run_action(call.respond, {"sum": 3})
    assert again.json["result"] == {"sum": 3}
