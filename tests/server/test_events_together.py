"""Events of a burst leave together, in their order, and none waits longer than a millisecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sansmcp import AppendResult, Limits, MemoryStore, ServerCall
from sansmcp.codecs.sse import KEEP_ALIVE

from .harness import RawExchange, ServerHarness
from .instances import Instances
from .modern.harness import ModernServerHarness, meta, modern, modern_app


class CountingStore(MemoryStore):
    """A store that counts what is appended at once as one."""

    appends = 0

    def append(self, *args: Any, **kwargs: Any) -> AppendResult:
        self.appends += 1
        return super().append(*args, **kwargs)


Begun = tuple[Any, RawExchange, ServerCall]


def begin_stored(**settings: Any) -> Begun:
    harness = ServerHarness(**settings)
    return harness, *harness.call(harness.open_session())


def begin_unstored(**settings: Any) -> Begun:
    harness = ServerHarness(resumable=False, **settings)
    return harness, *harness.call(harness.open_session())


def begin_modern(**settings: Any) -> Begun:
    harness = ModernServerHarness(modern_app(), **settings)
    return harness, *harness.start(modern(1, about=meta(logLevel="debug")))


every_kind = pytest.mark.parametrize("begin", [begin_stored, begin_unstored, begin_modern])
Begin = Callable[..., Begun]


def say(harness: Any, call: ServerCall, *numbers: int, size: int = 1) -> None:
    """Let the handler send log messages at the present time."""
    for number in numbers:
        params = {"level": "info", "data": {"number": number, "text": "x" * size}}
        harness.run_action(call.notify, "notifications/message", params)


def said(talk: RawExchange) -> list[int]:
    """The numbers of the messages that have arrived."""
    return [message["params"]["data"]["number"] for message in talk.messages if "params" in message]


@every_kind
def test_the_first_ones_leave_at_once_and_further_ones_together(begin: Begin) -> None:
    harness, talk, call = begin()
    harness.wait(1)
    for number in range(8):
        say(harness, call, number)
        assert said(talk) == [*range(number + 1)]
    say(harness, call, *range(8, 20))
    assert said(talk) == [*range(8)]
    assert harness.server.next_deadline() <= harness.now + 0.001
    harness.wait(0.001)
    assert said(talk) == [*range(20)]


@every_kind
def test_enough_of_them_do_not_wait(begin: Begin) -> None:
    harness, talk, call = begin()
    say(harness, call, *range(9))
    arrived = len(said(talk))
    say(harness, call, *range(9, arrived + 31))
    assert len(said(talk)) == arrived
    say(harness, call, arrived + 31)
    assert said(talk) == [*range(arrived + 32)]
    say(harness, call, arrived + 32, size=100)
    assert len(said(talk)) == arrived + 32
    say(harness, call, arrived + 33, size=16 * 1024)
    assert said(talk) == [*range(arrived + 34)]


@every_kind
def test_the_answer_takes_them_along(begin: Begin) -> None:
    harness, talk, call = begin()
    say(harness, call, *range(20))
    assert len(said(talk)) < 20
    harness.run_action(call.respond, {"content": []})
    assert said(talk) == [*range(20)]
    assert talk.ended
    assert "result" in talk.messages[-1]


def test_a_disconnect_takes_them_along() -> None:
    harness, talk, call = begin_stored()
    say(harness, call, *range(20))
    assert harness.run_action(call.disconnect, retry=1)
    assert said(talk) == [*range(20)]
    assert (talk.ended, talk.aborted) == (True, False)


@every_kind
def test_what_comes_now_and_then_leaves_at_once(begin: Begin) -> None:
    harness, talk, call = begin()
    say(harness, call, *range(20))
    harness.wait(0.002)
    for number in range(20, 30):
        say(harness, call, number)
        assert said(talk) == [*range(number + 1)]
        harness.wait(0.002)


@pytest.mark.parametrize("begin", [begin_unstored, begin_modern])
def test_a_client_that_leaves_lets_nothing_wait(begin: Begin) -> None:
    harness, talk, call = begin()
    say(harness, call, *range(20))
    deadline = harness.server.next_deadline()
    assert deadline is not None
    assert deadline <= harness.now + 0.001
    talk.lose_connection()
    later = harness.server.next_deadline()
    assert later is None or later > harness.now + 0.001


def test_a_client_that_leaves_gets_what_waited_when_it_resumes() -> None:
    harness = ServerHarness()
    session = harness.open_session()
    talk, call = harness.call(session)
    say(harness, call, *range(8))
    last_id = talk.last_id
    say(harness, call, *range(8, 20))
    talk.lose_connection()
    harness.wait(0.001)
    assert said(harness.get(session, last_id)) == [*range(8, 20)]


def test_a_session_that_ends_here_leaves_what_waited_in_the_store() -> None:
    instances = Instances()
    session = instances[0].open_session()
    talk, call = instances[0].call(session)
    say(instances[0], call, *range(8))
    last_id = talk.last_id
    say(instances[0], call, *range(8, 20))
    instances[0].stop()
    assert said(instances[1].get(session, last_id)) == [*range(8, 20)]


@pytest.mark.parametrize("settings", [{"resumable": False}, {}], ids=["not stored", "stored"])
def test_a_question_takes_them_along(settings: dict[str, Any]) -> None:
    harness = ServerHarness(**settings)
    talk, call = harness.call(harness.open_session(capabilities={"elicitation": {}}))
    say(harness, call, *range(20))
    assert len(said(talk)) < 20
    harness.run_action(call.ask, "elicitation/create", {"message": "?"}, timeout=9)
    assert talk.messages[-1]["method"] == "elicitation/create"
    assert [each["params"]["data"]["number"] for each in talk.messages[:-1]] == [*range(20)]


def test_a_handler_with_little_room_for_a_slow_store_need_not_wait_for_the_time() -> None:
    harness, talk, call = begin_stored(limits=Limits(max_pending_entries=4))
    say(harness, call, *range(8))
    assert len(said(talk)) == 8
    say(harness, call, *range(8, 11))
    assert (len(said(talk)), call.is_above_high_water) == (8, False)
    say(harness, call, 11)
    assert (len(said(talk)), call.is_above_high_water) == (12, False)


def test_a_burst_is_appended_at_once() -> None:
    harness = ServerHarness()
    harness.store = CountingStore()
    talk, call = harness.call(harness.open_session())
    say(harness, call, *range(39))
    assert harness.store.appends == 8
    say(harness, call, 39)
    assert harness.store.appends == 9
    assert said(talk) == [*range(40)]


def test_a_client_that_reads_slowly_gets_all_that_waits() -> None:
    """Else a handler that waits for room would wait for the time, too."""
    harness, talk, call = begin_modern(limits=Limits(max_unsent_bytes=300))
    say(harness, call, *range(9))
    count = len(said(talk))
    say(harness, call, count)
    assert (len(said(talk)), call.is_above_high_water) == (count, False)
    say(harness, call, count + 1, size=200)
    assert (len(said(talk)), call.is_above_high_water) == (count + 2, False)


@every_kind
def test_comments_still_come(begin: Begin) -> None:
    harness, talk, call = begin()
    say(harness, call, *range(20))
    harness.wait(harness.server.limits.stream_comment_interval + 0.001)
    assert talk.body.endswith(KEEP_ALIVE)
    assert said(talk) == [*range(20)]
