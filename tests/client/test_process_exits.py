"""A server process that ends by itself: what it said is heard, then every call ends, once."""

from __future__ import annotations

import pytest

from sansmcp import Disconnected, Limits, ProcessEnded
from sansmcp.events import CallCompleted, CallFailed, MessageUndelivered, StderrLine
from sansmcp.process import ProcessExited, StderrClosed, StderrData, StdoutClosed, StdoutData

from .harness import initialized, notification, request, response
from .process_harness import ProcessHarness, line

requirement = pytest.mark.requirement


@pytest.fixture
def harness() -> ProcessHarness:
    """A client whose handshake is done; the process was started, and that was looked at."""
    harness = ProcessHarness(close_timeout=3).connect()
    assert harness.done == ["StartProcess"]
    return harness


def ended(error: BaseException | None) -> ProcessEnded:
    assert isinstance(error, ProcessEnded)
    return error


# A process that ends by itself


@requirement("STDIO-S-003")
@pytest.mark.parametrize(
    ("status", "text"), [(0, "with status 0"), (3, "with status 3"), (-9, "by signal 9")]
)
def test_all_calls_fail_at_once_with_the_process(
    harness: ProcessHarness, status: int, text: str
) -> None:
    handles = [harness.make()[0], harness.make("tools/list")[0]]  # repeating would not help
    harness.exit(status)
    assert harness.done == ["KillProcess"]
    error = ended(harness.closed())
    assert error.status == status
    assert str(error) == f"The server process 'python' has ended {text}"
    assert [event.call for event in harness.events if isinstance(event, CallFailed)] == handles
    for event in harness.events:
        assert isinstance(event, CallFailed)
        assert isinstance(event.error, Disconnected)
        assert event.error.__cause__ is error
        assert text in str(event.error)


@pytest.mark.parametrize("exit_first", [True, False])
def test_what_it_has_written_before_is_read(harness: ProcessHarness, exit_first: bool) -> None:
    answered, id = harness.make()
    lost, _ = harness.make()
    output, end, exit = StdoutData(line(response(id))), StdoutClosed(), ProcessExited(0)
    log = StderrData(b"last words"), StderrClosed()
    harness.feed(*((exit, output, end, *log) if exit_first else (output, end, exit, *log)))
    assert ended(harness.closed()).log == ("last words",)
    completed, _, failed = harness.events
    assert completed == CallCompleted(answered, {})
    assert isinstance(failed, CallFailed)
    assert failed.call == lost


def test_a_last_line_without_an_end_is_read(harness: ProcessHarness) -> None:
    handle, id = harness.make()
    harness.feed(StdoutData(line(response(id))[:-1]))
    harness.exit()
    ended(harness.closed())
    assert harness.events == [CallCompleted(handle, {})]


def test_a_child_that_holds_the_output_open_is_not_waited_for(harness: ProcessHarness) -> None:
    handle, id = harness.make()
    harness.feed(ProcessExited(0))
    harness.wait(0.9)
    assert harness.events == []
    harness.say(response(id))
    harness.wait(0.1)
    assert harness.done == ["KillProcess"]  # the child, too
    ended(harness.closed())
    assert harness.events == [CallCompleted(handle, {})]
    harness.say(notification("late"))
    harness.log("late\n")
    harness.feed(StdoutClosed())
    assert len(harness.events) == 1


def test_closing_while_a_child_holds_the_output_open(harness: ProcessHarness) -> None:
    harness.feed(ProcessExited(0))
    harness.run_command(harness.client.close)
    harness.wait(1)
    assert harness.done == ["KillProcess"]
    assert harness.closed() is None


# Output that ends before the process


def test_a_process_that_closes_its_output_is_ended(harness: ProcessHarness) -> None:
    handle, _ = harness.make()
    harness.feed(StdoutClosed())
    assert harness.done == ["CloseStdin"]
    later = harness.run_command(harness.client.call, "tools/list")
    harness.run_command(harness.client.notify, "n")
    assert harness.written == []  # there is nobody to write to
    assert isinstance(harness.events.pop(), MessageUndelivered)
    harness.wait(1)
    failed = [event.call for event in harness.events if isinstance(event, CallFailed)]
    assert failed == [handle, later]  # they do not wait for the end of the process
    harness.wait(3)
    assert harness.done == ["TerminateProcess"]
    harness.feed(ProcessExited(-15))
    assert harness.done == ["KillProcess"]
    assert "has not exited" in str(harness.closed())


def test_a_process_that_closes_its_output_and_ends_soon_tells_why(harness: ProcessHarness) -> None:
    harness.make()
    harness.feed(StdoutClosed())
    harness.wait(0.9)
    harness.feed(StderrClosed(), ProcessExited(4))
    assert ended(harness.closed()).status == 4


def test_a_process_that_closes_its_output_and_cannot_be_ended(harness: ProcessHarness) -> None:
    handle, _ = harness.make()
    harness.feed(StdoutClosed())
    harness.wait(10)
    assert harness.done == ["CloseStdin", "TerminateProcess", "KillProcess"]
    error = ended(harness.closed())
    assert error.status is None
    assert "closed its output, but has not exited" in str(error)
    assert [event.call for event in harness.events if isinstance(event, CallFailed)] == [handle]


def test_closing_after_the_output_was_closed(harness: ProcessHarness) -> None:
    harness.feed(StdoutClosed())
    harness.run_command(harness.client.close)
    assert harness.done == ["CloseStdin"]
    harness.feed(ProcessExited(0))
    assert harness.closed() is None


def test_an_exit_after_the_client_has_given_up_is_of_no_interest(harness: ProcessHarness) -> None:
    harness.run_command(harness.client.close)
    harness.wait(9)
    harness.exit(1)
    assert harness.closed() is None


# Standard error


@requirement("STDIO-S-002", "STDIO-C-004", "STDIO-C-005")
def test_standard_error_is_shown_line_by_line(harness: ProcessHarness) -> None:
    handle, id = harness.make()
    for piece in (b"sta", b"rt\r\nr\xc3", b"\xa4\xff\n\n", b"rest"):
        harness.feed(StderrData(piece))
    harness.say(response(id))
    assert harness.take_events() == [
        StderrLine("start"),
        StderrLine("r\u00e4\ufffd"),
        CallCompleted(handle, {}),
    ]
    harness.exit()
    assert ended(harness.closed()).log == ("start", "r\u00e4\ufffd", "rest")
    assert harness.events == [StderrLine("rest")]  # last words need no line end


def test_only_the_last_lines_are_kept(harness: ProcessHarness) -> None:
    for number in range(100):
        harness.log(f"{number}\n")
    harness.exit()
    assert ended(harness.closed()).log == tuple(str(number) for number in range(80, 100))


def test_endless_lines_are_skipped(harness: ProcessHarness) -> None:
    harness.log("x" * 70_000)
    harness.log("x" * 70_000 + "\nshort\n")
    assert harness.events == [StderrLine("short")]


def test_an_application_that_does_not_look_misses_only_the_log() -> None:
    harness = ProcessHarness(limits=Limits(max_queued_events=5)).connect()
    handle, id = harness.make()
    harness.takes_events = False
    for number in range(1000):
        harness.log(f"{number}\n")
    harness.say(response(id))
    harness.takes_events = True
    harness.run_pending()
    assert harness.take_events() == [
        *(StderrLine(str(number)) for number in range(5)),
        CallCompleted(handle, {}),
    ]
    harness.exit(1)
    assert ended(harness.closed()).log[-1] == "999"


# Every end, at every place

OUTPUT = b"".join(
    line(message)
    for message in (
        initialized(0),
        response(1),
        notification("notifications/progress", progressToken=2, progress=1),
        request(0, "elicitation/create"),
        response(3),
        response(2),
    )
)


def ends_of(length: int, how: str) -> list[tuple[int, bool]]:
    """The end of each call of a conversation whose output is cut: its handle, and success."""
    harness = ProcessHarness(capabilities={"elicitation": {}}).start()
    handles = [harness.run_command(harness.client.call, "tools/call") for _ in range(3)]
    harness.feed(StdoutData(OUTPUT[:length]))
    if how == "exit":
        harness.exit(1)
    elif how == "silence":
        harness.feed(ProcessExited(1))
    elif how == "end":
        harness.feed(StdoutClosed())
    else:
        harness.run_command(harness.client.close)
    harness.wait(100)
    error = harness.closed()
    assert (error is None) == (how == "close")
    ends = [event for event in harness.events if isinstance(event, CallCompleted | CallFailed)]
    assert sorted(event.call for event in ends) == handles
    return [(event.call, isinstance(event, CallCompleted)) for event in ends]


@pytest.mark.no_cover
@pytest.mark.parametrize("how", ["exit", "silence", "end", "close"])
def test_every_truncation_ends_every_call_once(how: str) -> None:
    successes = [sum(ok for _, ok in ends_of(length, how)) for length in range(len(OUTPUT) + 1)]
    assert successes == sorted(successes)
    assert (successes[0], successes[-1]) == (0, 3)
