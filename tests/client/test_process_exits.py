"""A server process that ends by itself: what it said is heard, then every call ends, once."""

from __future__ import annotations

import pytest

from sansmcp import Disconnected, Limits, ProcessEnded
from sansmcp.events import CallCompleted, CallFailed, MessageUndelivered, StderrLine
from sansmcp.process import ProcessExited, StderrClosed, StderrData, StdoutClosed, StdoutData

from .bench import initialized, notification, request, response
from .process_bench import ProcessBench, line

requirement = pytest.mark.requirement


@pytest.fixture
def bench() -> ProcessBench:
    """A client whose handshake is done; the process was started, and that was looked at."""
    bench = ProcessBench(close_timeout=3).connect()
    assert bench.done == ["StartProcess"]
    return bench


def ended(error: BaseException | None) -> ProcessEnded:
    assert isinstance(error, ProcessEnded)
    return error


# A process that ends by itself


@requirement("STDIO-S-003")
@pytest.mark.parametrize(
    ("status", "text"), [(0, "with status 0"), (3, "with status 3"), (-9, "by signal 9")]
)
def test_all_calls_fail_at_once_with_the_process(
    bench: ProcessBench, status: int, text: str
) -> None:
    handles = [bench.make()[0], bench.make("tools/list")[0]]  # repeating would not help
    bench.exit(status)
    assert bench.done == ["KillProcess"]
    error = ended(bench.closed())
    assert error.status == status
    assert str(error) == f"The server process 'python' has ended {text}"
    assert [event.call for event in bench.events if isinstance(event, CallFailed)] == handles
    for event in bench.events:
        assert isinstance(event, CallFailed)
        assert isinstance(event.error, Disconnected)
        assert event.error.__cause__ is error
        assert text in str(event.error)


@pytest.mark.parametrize("exit_first", [True, False])
def test_what_it_has_written_before_is_read(bench: ProcessBench, exit_first: bool) -> None:
    answered, id = bench.make()
    lost, _ = bench.make()
    output, end, exit = StdoutData(line(response(id))), StdoutClosed(), ProcessExited(0)
    log = StderrData(b"last words"), StderrClosed()
    bench.feed(*((exit, output, end, *log) if exit_first else (output, end, exit, *log)))
    assert ended(bench.closed()).log == ("last words",)
    completed, _, failed = bench.events
    assert completed == CallCompleted(answered, {})
    assert isinstance(failed, CallFailed)
    assert failed.call == lost


def test_a_last_line_without_an_end_is_read(bench: ProcessBench) -> None:
    handle, id = bench.make()
    bench.feed(StdoutData(line(response(id))[:-1]))
    bench.exit()
    ended(bench.closed())
    assert bench.events == [CallCompleted(handle, {})]


def test_a_child_that_holds_the_output_open_is_not_waited_for(bench: ProcessBench) -> None:
    handle, id = bench.make()
    bench.feed(ProcessExited(0))
    bench.wait(0.9)
    assert bench.events == []
    bench.say(response(id))
    bench.wait(0.1)
    assert bench.done == ["KillProcess"]  # the child, too
    ended(bench.closed())
    assert bench.events == [CallCompleted(handle, {})]
    bench.say(notification("late"))
    bench.log("late\n")
    bench.feed(StdoutClosed())
    assert len(bench.events) == 1


def test_closing_while_a_child_holds_the_output_open(bench: ProcessBench) -> None:
    bench.feed(ProcessExited(0))
    bench.do(bench.client.close)
    bench.wait(1)
    assert bench.done == ["KillProcess"]
    assert bench.closed() is None


# Output that ends before the process


def test_a_process_that_closes_its_output_is_ended(bench: ProcessBench) -> None:
    handle, _ = bench.make()
    bench.feed(StdoutClosed())
    assert bench.done == ["CloseStdin"]
    later = bench.do(bench.client.call, "tools/list")
    bench.do(bench.client.notify, "n")
    assert bench.written == []  # there is nobody to write to
    assert isinstance(bench.events.pop(), MessageUndelivered)
    bench.wait(1)
    failed = [event.call for event in bench.events if isinstance(event, CallFailed)]
    assert failed == [handle, later]  # they do not wait for the end of the process
    bench.wait(3)
    assert bench.done == ["TerminateProcess"]
    bench.feed(ProcessExited(-15))
    assert bench.done == ["KillProcess"]
    assert "does not end" in str(bench.closed())


def test_a_process_that_closes_its_output_and_ends_soon_tells_why(bench: ProcessBench) -> None:
    bench.make()
    bench.feed(StdoutClosed())
    bench.wait(0.9)
    bench.feed(StderrClosed(), ProcessExited(4))
    assert ended(bench.closed()).status == 4


def test_a_process_that_closes_its_output_and_cannot_be_ended(bench: ProcessBench) -> None:
    handle, _ = bench.make()
    bench.feed(StdoutClosed())
    bench.wait(10)
    assert bench.done == ["CloseStdin", "TerminateProcess", "KillProcess"]
    error = ended(bench.closed())
    assert error.status is None
    assert "closed its output, but does not end" in str(error)
    assert [event.call for event in bench.events if isinstance(event, CallFailed)] == [handle]


def test_closing_after_the_output_was_closed(bench: ProcessBench) -> None:
    bench.feed(StdoutClosed())
    bench.do(bench.client.close)
    assert bench.done == ["CloseStdin"]
    bench.feed(ProcessExited(0))
    assert bench.closed() is None


def test_an_exit_after_the_client_has_given_up_is_of_no_interest(bench: ProcessBench) -> None:
    bench.do(bench.client.close)
    bench.wait(9)
    bench.exit(1)
    assert bench.closed() is None


# Standard error


@requirement("STDIO-S-002", "STDIO-C-004", "STDIO-C-005")
def test_standard_error_is_shown_line_by_line(bench: ProcessBench) -> None:
    handle, id = bench.make()
    for piece in (b"sta", b"rt\r\nr\xc3", b"\xa4\xff\n\n", b"rest"):
        bench.feed(StderrData(piece))
    bench.say(response(id))
    assert bench.take_events() == [
        StderrLine("start"),
        StderrLine("r\u00e4\ufffd"),
        CallCompleted(handle, {}),
    ]
    bench.exit()
    assert ended(bench.closed()).log == ("start", "r\u00e4\ufffd", "rest")
    assert bench.events == [StderrLine("rest")]  # last words need no line end


def test_only_the_last_lines_are_kept(bench: ProcessBench) -> None:
    for number in range(100):
        bench.log(f"{number}\n")
    bench.exit()
    assert ended(bench.closed()).log == tuple(str(number) for number in range(80, 100))


def test_endless_lines_are_skipped(bench: ProcessBench) -> None:
    bench.log("x" * 70_000)
    bench.log("x" * 70_000 + "\nshort\n")
    assert bench.events == [StderrLine("short")]


def test_an_application_that_does_not_look_misses_only_the_log() -> None:
    bench = ProcessBench(limits=Limits(max_queued_events=5)).connect()
    handle, id = bench.make()
    bench.takes_events = False
    for number in range(1000):
        bench.log(f"{number}\n")
    bench.say(response(id))
    bench.takes_events = True
    bench.settle()
    assert bench.take_events() == [
        *(StderrLine(str(number)) for number in range(5)),
        CallCompleted(handle, {}),
    ]
    bench.exit(1)
    assert ended(bench.closed()).log[-1] == "999"


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
    bench = ProcessBench(capabilities={"elicitation": {}}).start()
    handles = [bench.do(bench.client.call, "tools/call") for _ in range(3)]
    bench.feed(StdoutData(OUTPUT[:length]))
    if how == "exit":
        bench.exit(1)
    elif how == "silence":
        bench.feed(ProcessExited(1))
    elif how == "end":
        bench.feed(StdoutClosed())
    else:
        bench.do(bench.client.close)
    bench.wait(100)
    error = bench.closed()
    assert (error is None) == (how == "close")
    ends = [event for event in bench.events if isinstance(event, CallCompleted | CallFailed)]
    assert sorted(event.call for event in ends) == handles
    return [(event.call, isinstance(event, CallCompleted)) for event in ends]


@pytest.mark.no_cover
@pytest.mark.parametrize("how", ["exit", "silence", "end", "close"])
def test_every_truncation_ends_every_call_once(how: str) -> None:
    successes = [sum(ok for _, ok in ends_of(length, how)) for length in range(len(OUTPUT) + 1)]
    assert successes == sorted(successes)
    assert (successes[0], successes[-1]) == (0, 3)
