"""Messages that want no answer: each has a deadline, and few are POSTed at a time."""

from __future__ import annotations

import pytest

from sansmcp import Limits, LocalProtocolError, RequestTimeout
from sansmcp.events import CallFailed, MessageUndelivered, ServerRequestReceived
from sansmcp.messages import Notification
from sansmcp.revisions import HANDSHAKE_VERSIONS

from .bench import Bench, request

requirement = pytest.mark.requirement

METHOD = "notifications/roots/list_changed"


def say(bench: Bench, count: int) -> int:
    """Send notifications until the client takes no more; returns how many it took."""
    for number in range(count):
        try:
            bench.do(bench.client.notify, METHOD, {"n": number})
        except LocalProtocolError as error:
            assert "max_pending_calls" in str(error)
            return number
    return count


def open_posts(bench: Bench) -> int:
    return sum(not asked.aborted for asked in bench.requests)


@requirement("SHTTP-C-005")
@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS[2:])
def test_every_post_has_one_message(version: str) -> None:
    bench = Bench(capabilities={"roots": {}})
    bench.do(bench.client.start)
    posts = [bench.take_initialize(version), bench.take()]
    posts[1].accept()
    _, asked = bench.call()
    asked.open_stream()
    asked.event(request("q", "roots/list"))
    asked.event(request("p", "ping"))
    bench.do(bench.client.respond, "q", {"roots": []})
    bench.do(bench.client.notify, METHOD)
    posts += [asked, *bench.requests]
    said = [post.json.get("method", post.json.get("id")) for post in posts]
    assert said == ["initialize", "notifications/initialized", "tools/call", "p", "q", METHOD]


def test_notifications_to_a_silent_server_are_bounded_and_all_end(bench: Bench) -> None:
    """Row A6 of the review: 2,000 left 2,000 exchanges open, without any deadline."""
    limits = bench.client.limits
    taken = say(bench, 2000)
    assert taken == limits.max_pending_calls
    assert open_posts(bench) == limits.max_open_posts
    assert bench.client.next_deadline() == limits.post_timeout
    bench.wait(limits.post_timeout)
    lost = [event for event in bench.take_events() if isinstance(event, MessageUndelivered)]
    assert len(lost) == taken
    assert "post_timeout" in lost[0].reason
    assert open_posts(bench) == 0
    assert bench.client.next_deadline() is None
    assert say(bench, 1) == 1


def test_notifications_wait_for_their_turn_and_keep_their_order() -> None:
    """Row A6 of the review."""
    bench = Bench(limits=Limits(max_open_posts=2)).connect()
    say(bench, 5)
    seen: list[int] = []
    while bench.requests:
        assert open_posts(bench) <= 2
        post = bench.requests.pop(0)
        seen.append(post.json["params"]["n"])
        post.accept()
    assert seen == [0, 1, 2, 3, 4]
    assert bench.events == []
    assert bench.client.next_deadline() is None


def test_what_waits_for_its_turn_runs_out_of_time_and_the_others_go_on() -> None:
    bench = Bench(limits=Limits(max_open_posts=1)).connect()
    say(bench, 2)
    bench.wait(10)
    bench.do(bench.client.notify, METHOD, {"n": "later"})
    first = bench.take()
    bench.wait(bench.client.limits.post_timeout - 10)
    assert first.aborted
    lost = [event for event in bench.take_events() if isinstance(event, MessageUndelivered)]
    assert [event.message for event in lost] == [Notification(METHOD, {"n": n}) for n in (0, 1)]
    (later,) = [asked for asked in bench.requests if not asked.aborted]
    assert later.json["params"] == {"n": "later"}
    bench.requests.clear()
    bench.wait(9)
    later.accept()
    assert bench.events == []
    assert bench.client.next_deadline() is None


def test_what_waits_may_run_out_of_time_before_what_is_open() -> None:
    """It can only where the clock was put back: else what came first has to go first."""
    bench = Bench(limits=Limits(max_open_posts=1)).connect()
    limit = bench.client.limits.post_timeout
    bench.now = 10
    say(bench, 1)
    first = bench.take()
    bench.now = 5
    bench.do(bench.client.notify, METHOD, {"n": "early"})
    bench.wait(limit)
    (lost,) = bench.take_events()
    assert isinstance(lost, MessageUndelivered)
    assert lost.message == Notification(METHOD, {"n": "early"})
    assert not first.aborted
    bench.do(bench.client.notify, METHOD, {"n": "next"})
    assert bench.requests == []
    first.accept()
    following = bench.take()
    assert following.json["params"] == {"n": "next"}
    following.accept()
    assert bench.events == []


def test_a_redirect_gives_a_notification_no_more_time(bench: Bench) -> None:
    limit = bench.client.limits.post_timeout
    say(bench, 1)
    bench.wait(limit - 1)
    first = bench.take()
    first.refuse(307, location="/elsewhere")
    followed = bench.take()
    assert followed.effect.url == "http://localhost:8000/elsewhere"
    assert followed.json == first.json
    bench.wait(0.9)
    assert not followed.aborted
    assert bench.events == []
    bench.wait(0.1)
    assert followed.aborted
    (lost,) = bench.take_events()
    assert isinstance(lost, MessageUndelivered)
    assert "post_timeout" in lost.reason
    assert bench.client.next_deadline() is None


def test_the_cancellations_of_calls_that_time_out_are_bounded(bench: Bench) -> None:
    """Row A6 of the review: every call that timed out left one exchange more."""
    for _ in range(300):
        bench.do(bench.client.call, "tools/call", timeout=5)
    assert len(bench.requests) == 300
    bench.wait(5)
    failures = [event for event in bench.events if isinstance(event, CallFailed)]
    assert all(isinstance(failure.error, RequestTimeout) for failure in failures)
    assert len(failures) == 300
    assert open_posts(bench) == bench.client.limits.max_open_posts
    bench.wait(bench.client.limits.post_timeout)
    assert sum(isinstance(event, MessageUndelivered) for event in bench.events) == 300
    assert open_posts(bench) == 0
    assert bench.client.next_deadline() is None


def test_a_cancellation_for_which_there_is_no_room_is_reported() -> None:
    """Row A6 of the review."""
    bench = Bench(limits=Limits(max_pending_calls=2)).connect()
    handle, _ = bench.call()
    say(bench, 3)
    bench.do(bench.client.cancel, handle)
    lost, _ = bench.take_events()
    assert isinstance(lost, MessageUndelivered)
    assert "max_pending_calls" in lost.reason
    assert len(bench.requests) == 2


def test_an_answer_that_a_silent_server_does_not_take_is_sent_again_and_given_up() -> None:
    """Row A6 of the review."""
    bench = Bench(capabilities={"elicitation": {}}).connect()
    _, asked = bench.call(timeout=10_000)
    asked.open_stream()
    asked.event(request("q", "elicitation/create"))
    bench.do(bench.client.respond, "q", {})
    bench.wait(1000)
    assert [post.id for post in bench.requests] == ["q"] * 5
    assert open_posts(bench) == 0
    kinds = [type(event) for event in bench.events]
    assert kinds == [ServerRequestReceived, MessageUndelivered]


def test_an_answer_waits_for_its_turn_again_after_a_failure() -> None:
    """Row A6 of the review."""
    limits = Limits(max_open_posts=1)
    bench = Bench(capabilities={"elicitation": {}}, limits=limits).connect()
    _, asked = bench.call(timeout=10_000)
    asked.open_stream()
    asked.event(request("q", "elicitation/create"))
    bench.do(bench.client.respond, "q", {})
    first = bench.take()
    say(bench, 1)
    assert bench.requests == []
    first.cut()
    notified = bench.take()
    bench.wait(5)
    assert bench.requests == []
    notified.accept()
    again = bench.take()
    assert again.id == "q"
    again.accept()


@pytest.mark.parametrize("closes", [True, False])
def test_closing_and_a_lost_session_leave_no_post(closes: bool) -> None:
    """Row A6 of the review."""
    bench = Bench(limits=Limits(max_open_posts=2)).connect()
    bench.call()[1].result()
    bench.take_events()
    say(bench, 5)
    if closes:
        bench.do(bench.client.close)
        bench.wait(100)
    else:
        bench.requests.pop(0).refuse(404)
        assert [asked.json["method"] for asked in bench.requests[1:]] == ["initialize"]
        bench.wait(100)
    assert open_posts(bench) == 0
    assert bench.client.next_deadline() is None


# All exchanges


def silent_after(stage: str) -> Bench:
    """A client whose server falls silent at a stage of the conversation."""
    versions = ("2026-07-28",) if stage == "discover" else HANDSHAKE_VERSIONS
    transports = ("http+sse",) if stage == "http+sse" else ("streamable-http",)
    bench = Bench(
        versions=versions, transports=transports, standalone_stream=stage == "standalone stream"
    )
    bench.do(bench.client.start)
    if stage in ("discover", "http+sse", "initialize"):
        return bench
    bench.take_initialize()
    if stage == "initialized":
        return bench
    bench.take().accept()
    match stage:
        case "call":
            bench.do(bench.client.call, "tools/call")
        case "close":
            bench.do(bench.client.close)
        case "notification":
            say(bench, 1)
        case _:
            assert stage == "standalone stream"
    return bench


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
    """Row A6 of the review: whatever an exchange carries, it has a deadline."""
    bench = silent_after(stage)
    assert open_posts(bench) == 1
    assert bench.client.next_deadline() is not None
    bench.wait(3600)
    assert open_posts(bench) == 0
    assert bench.client.next_deadline() is None
