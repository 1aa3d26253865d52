"""Messages that want no answer: each has a deadline, and few are POSTed at a time."""

from __future__ import annotations

import pytest

from sansmcp import Limits, LocalProtocolError, RequestTimeout
from sansmcp.events import CallFailed, MessageUndelivered, ServerRequestReceived
from sansmcp.messages import Notification
from sansmcp.revisions import HANDSHAKE_VERSIONS

from .harness import ClientHarness, request

requirement = pytest.mark.requirement

METHOD = "notifications/roots/list_changed"


def say(harness: ClientHarness, count: int) -> int:
    """Send notifications until the client takes no more; returns how many it took."""
    for number in range(count):
        try:
            harness.run_command(harness.client.notify, METHOD, {"n": number})
        except LocalProtocolError as error:
            assert "max_pending_calls" in str(error)
            return number
    return count


def open_posts(harness: ClientHarness) -> int:
    return sum(not asked.aborted for asked in harness.requests)


@requirement("SHTTP-C-005")
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS[2:])
def test_every_post_has_one_message(version: str) -> None:
    harness = ClientHarness(capabilities={"roots": {}})
    harness.run_command(harness.client.start)
    posts = [harness.take_initialize(version), harness.take()]
    posts[1].accept()
    _, asked = harness.call()
    asked.open_stream()
    asked.event(request("q", "roots/list"))
    asked.event(request("p", "ping"))
    harness.run_command(harness.client.respond, "q", {"roots": []})
    harness.run_command(harness.client.notify, METHOD)
    posts += [asked, *harness.requests]
    said = [post.json.get("method", post.json.get("id")) for post in posts]
    assert said == ["initialize", "notifications/initialized", "tools/call", "p", "q", METHOD]


def test_notifications_to_a_silent_server_are_bounded_and_all_end(harness: ClientHarness) -> None:
    """2,000 left 2,000 exchanges open, without any deadline."""
    limits = harness.client.limits
    taken = say(harness, 2000)
    assert taken == limits.max_pending_calls
    assert open_posts(harness) == limits.max_open_posts
    assert harness.client.next_deadline() == limits.post_timeout
    harness.wait(limits.post_timeout)
    lost = [event for event in harness.take_events() if isinstance(event, MessageUndelivered)]
    assert len(lost) == taken
    assert "post_timeout" in lost[0].reason
    assert open_posts(harness) == 0
    assert harness.client.next_deadline() is None
    assert say(harness, 1) == 1


def test_notifications_wait_for_their_turn_and_keep_their_order() -> None:
    harness = ClientHarness(limits=Limits(max_open_posts=2)).connect()
    say(harness, 5)
    seen: list[int] = []
    while harness.requests:
        assert open_posts(harness) <= 2
        post = harness.requests.pop(0)
        seen.append(post.json["params"]["n"])
        post.accept()
    assert seen == [0, 1, 2, 3, 4]
    assert harness.events == []
    assert harness.client.next_deadline() is None


def test_what_waits_for_its_turn_runs_out_of_time_and_the_others_go_on() -> None:
    harness = ClientHarness(limits=Limits(max_open_posts=1)).connect()
    say(harness, 2)
    harness.wait(10)
    harness.run_command(harness.client.notify, METHOD, {"n": "later"})
    first = harness.take()
    harness.wait(harness.client.limits.post_timeout - 10)
    assert first.aborted
    lost = [event for event in harness.take_events() if isinstance(event, MessageUndelivered)]
    assert [event.message for event in lost] == [Notification(METHOD, {"n": n}) for n in (0, 1)]
    (later,) = [asked for asked in harness.requests if not asked.aborted]
    assert later.json["params"] == {"n": "later"}
    harness.requests.clear()
    harness.wait(9)
    later.accept()
    assert harness.events == []
    assert harness.client.next_deadline() is None


def test_what_waits_may_run_out_of_time_before_what_is_open() -> None:
    """It can only where the clock was put back: else what came first has to go first."""
    harness = ClientHarness(limits=Limits(max_open_posts=1)).connect()
    limit = harness.client.limits.post_timeout
    harness.now = 10
    say(harness, 1)
    first = harness.take()
    harness.now = 5
    harness.run_command(harness.client.notify, METHOD, {"n": "early"})
    harness.wait(limit)
    (lost,) = harness.take_events()
    assert isinstance(lost, MessageUndelivered)
    assert lost.message == Notification(METHOD, {"n": "early"})
    assert not first.aborted
    harness.run_command(harness.client.notify, METHOD, {"n": "next"})
    assert harness.requests == []
    first.accept()
    following = harness.take()
    assert following.json["params"] == {"n": "next"}
    following.accept()
    assert harness.events == []


def test_a_redirect_gives_a_notification_no_more_time(harness: ClientHarness) -> None:
    limit = harness.client.limits.post_timeout
    say(harness, 1)
    harness.wait(limit - 1)
    first = harness.take()
    first.refuse(307, location="/elsewhere")
    followed = harness.take()
    assert followed.effect.url == "http://localhost:8000/elsewhere"
    assert followed.json == first.json
    harness.wait(0.9)
    assert not followed.aborted
    assert harness.events == []
    harness.wait(0.1)
    assert followed.aborted
    (lost,) = harness.take_events()
    assert isinstance(lost, MessageUndelivered)
    assert "post_timeout" in lost.reason
    assert harness.client.next_deadline() is None


def test_the_cancellations_of_calls_that_time_out_are_bounded(harness: ClientHarness) -> None:
    """Every call that timed out left one exchange more."""
    for _ in range(300):
        harness.run_command(harness.client.call, "tools/call", timeout=5)
    assert len(harness.requests) == 300
    harness.wait(5)
    failures = [event for event in harness.events if isinstance(event, CallFailed)]
    assert all(isinstance(failure.error, RequestTimeout) for failure in failures)
    assert len(failures) == 300
    assert open_posts(harness) == harness.client.limits.max_open_posts
    harness.wait(harness.client.limits.post_timeout)
    assert sum(isinstance(event, MessageUndelivered) for event in harness.events) == 300
    assert open_posts(harness) == 0
    assert harness.client.next_deadline() is None


def test_a_cancellation_for_which_there_is_no_room_is_reported() -> None:
    harness = ClientHarness(limits=Limits(max_pending_calls=2)).connect()
    handle, _ = harness.call()
    say(harness, 3)
    harness.run_command(harness.client.cancel, handle)
    lost, _ = harness.take_events()
    assert isinstance(lost, MessageUndelivered)
    assert "max_pending_calls" in lost.reason
    assert len(harness.requests) == 2


def test_an_answer_that_a_silent_server_does_not_take_is_sent_again_and_given_up() -> None:
    harness = ClientHarness(capabilities={"elicitation": {}}).connect()
    _, asked = harness.call(timeout=10_000)
    asked.open_stream()
    asked.event(request("q", "elicitation/create"))
    harness.run_command(harness.client.respond, "q", {})
    harness.wait(1000)
    assert [post.id for post in harness.requests] == ["q"] * 5
    assert open_posts(harness) == 0
    kinds = [type(event) for event in harness.events]
    assert kinds == [ServerRequestReceived, MessageUndelivered]


def test_an_answer_waits_for_its_turn_again_after_a_failure() -> None:
    limits = Limits(max_open_posts=1)
    harness = ClientHarness(capabilities={"elicitation": {}}, limits=limits).connect()
    _, asked = harness.call(timeout=10_000)
    asked.open_stream()
    asked.event(request("q", "elicitation/create"))
    harness.run_command(harness.client.respond, "q", {})
    first = harness.take()
    say(harness, 1)
    assert harness.requests == []
    first.cut()
    notified = harness.take()
    harness.wait(5)
    assert harness.requests == []
    notified.accept()
    again = harness.take()
    assert again.id == "q"
    again.accept()


@pytest.mark.parametrize("closes", [True, False])
def test_closing_and_a_lost_session_leave_no_post(closes: bool) -> None:
    harness = ClientHarness(limits=Limits(max_open_posts=2)).connect()
    harness.call()[1].result()
    harness.take_events()
    say(harness, 5)
    if closes:
        harness.run_command(harness.client.close)
        harness.wait(100)
    else:
        harness.requests.pop(0).refuse(404)
        assert [asked.json["method"] for asked in harness.requests[1:]] == ["initialize"]
        harness.wait(100)
    assert open_posts(harness) == 0
    assert harness.client.next_deadline() is None


# All exchanges


def silent_after(stage: str) -> ClientHarness:
    """A client whose server falls silent at a stage of the conversation."""
    versions = ("2026-07-28",) if stage == "discover" else HANDSHAKE_VERSIONS
    transports = ("http+sse",) if stage == "http+sse" else ("streamable-http",)
    harness = ClientHarness(
        versions=versions, transports=transports, standalone_stream=stage == "standalone stream"
    )
    harness.run_command(harness.client.start)
    if stage in ("discover", "http+sse", "initialize"):
        return harness
    harness.take_initialize()
    if stage == "initialized":
        return harness
    harness.take().accept()
    match stage:
        case "call":
            harness.run_command(harness.client.call, "tools/call")
        case "close":
            harness.run_command(harness.client.close)
        case "notification":
            say(harness, 1)
        case _:
            assert stage == "standalone stream"
    return harness


@pytest.mark.parametrize(
    "stage",
    [
        "discover",
        "initialize",
        "initialized",
        "call",
        "close",
        "http+sse",
        "notification",
        "standalone stream",
    ],
)
def test_every_exchange_with_a_silent_server_ends(stage: str) -> None:
    """Each exchange has a deadline, for each kind of message."""
    harness = silent_after(stage)
    assert open_posts(harness) == 1
    assert harness.client.next_deadline() is not None
    harness.wait(3600)
    assert open_posts(harness) == 0
    assert harness.client.next_deadline() is None
