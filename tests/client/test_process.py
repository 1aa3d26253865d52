"""The server process: how it is started, and how it is ended, step by step."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, ProcessEnded, RequestCancelled
from sansmcp.events import CallFailed, ServerNotified
from sansmcp.limits import Limits
from sansmcp.states import ClientState

from .bench import initialized, notification, only_failure, request
from .process_bench import ProcessBench

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


def closing(bench: ProcessBench) -> ProcessBench:
    bench.do(bench.client.close)
    assert bench.client.state is ClientState.CLOSING
    assert bench.done == ["CloseStdin"]
    return bench


# Closing


@requirement("STDIO-C-006", "STDIO-C-007")
def test_a_process_that_goes_when_its_input_ends_gets_no_signal(bench: ProcessBench) -> None:
    closing(bench)
    bench.wait(2.9)
    bench.exit()
    assert bench.done == ["KillProcess"]  # what it has left in its group
    assert bench.closed() is None


@requirement("STDIO-C-008", "STDIO-C-009")
def test_the_ladder(bench: ProcessBench) -> None:
    closing(bench)
    bench.wait(2.9)
    assert bench.done == []
    bench.wait(0.1)
    assert bench.done == ["TerminateProcess"]
    bench.wait(2.9)
    assert bench.done == []
    bench.wait(0.1)
    assert bench.done == ["KillProcess"]
    bench.wait(2.9)
    assert bench.events == []
    bench.wait(0.1)
    assert bench.done == []
    assert bench.closed() is None


@requirement("STDIO-C-008")
@pytest.mark.parametrize(
    ("seconds", "signals"),
    [(1, []), (4, ["TerminateProcess"]), (7, ["TerminateProcess", "KillProcess"])],
)
@pytest.mark.parametrize("status", [0, 1, -15])
def test_each_step_ends_with_the_process(
    bench: ProcessBench, seconds: float, signals: list[str], status: int
) -> None:
    closing(bench)
    bench.wait(seconds)
    bench.exit(status)
    assert bench.done == [*signals, "KillProcess"]
    assert bench.closed() is None
    bench.wait(100)
    assert bench.done == []


def test_closing_cancels_all_calls(bench: ProcessBench) -> None:
    handles = [bench.make()[0] for _ in range(3)]
    closing(bench)
    failures = [event for event in bench.take_events() if isinstance(event, CallFailed)]
    assert [failure.call for failure in failures] == handles
    assert all(isinstance(failure.error, RequestCancelled) for failure in failures)
    bench.exit()
    assert bench.closed() is None


def test_closing_twice_is_closing_once(bench: ProcessBench) -> None:
    closing(bench)
    bench.do(bench.client.close)
    bench.exit()
    assert bench.done == ["KillProcess"]
    bench.do(bench.client.close)
    assert bench.closed() is None
    assert bench.done == []


def test_nothing_is_said_any_more_while_closing(bench: ProcessBench) -> None:
    closing(bench)
    bench.say(request(1, "ping"), request(2, "x"), notification("n"), b"noise")
    assert (bench.events, bench.written) == ([], [])
    with pytest.raises(LocalProtocolError, match="closed"):
        bench.client.notify("x", now=0)
    bench.exit()
    assert bench.closed() is None


def test_closing_does_not_wait_for_an_application_that_takes_no_events() -> None:
    bench = ProcessBench(limits=Limits(max_queued_events=2)).connect()
    bench.takes_events = False
    bench.say(*[notification("n")] * 5)
    assert bench.is_paused
    bench.do(bench.client.close)
    bench.exit()
    assert bench.done == ["StartProcess", "CloseStdin", "KillProcess"]
    bench.takes_events = True
    bench.settle()
    assert bench.closed() is None
    assert [type(event) for event in bench.events] == [ServerNotified] * 2


def test_a_full_queue_does_not_hold_up_a_process_that_has_ended_before_closing() -> None:
    bench = ProcessBench(limits=Limits(max_queued_events=2)).connect()
    bench.takes_events = False
    bench.say(*[notification("n")] * 5)
    bench.exit()
    bench.do(bench.client.close)
    bench.wait(1)
    assert bench.done == ["StartProcess", "KillProcess"]
    bench.takes_events = True
    bench.settle()
    assert bench.closed() is None


def test_closing_before_anything_was_started() -> None:
    bench = ProcessBench()
    bench.do(bench.client.close)
    assert bench.did == []
    assert bench.closed() is None


def test_closing_while_the_process_is_being_started() -> None:
    bench = ProcessBench().start()
    handle = bench.do(bench.client.call, "tools/list")
    bench.do(bench.client.close)
    assert bench.done == ["StartProcess", "CloseStdin"]
    assert isinstance(only_failure(bench, handle), RequestCancelled)
    bench.say(initialized(0))
    assert bench.written == []
    bench.exit()
    assert bench.closed() is None


def test_a_process_that_cannot_be_started_after_all_while_closing() -> None:
    bench = ProcessBench().start()
    bench.do(bench.client.close)
    bench.fail_to_start("no such file")
    assert bench.closed() is None


# What cannot be started


def test_what_cannot_be_started_tells_why() -> None:
    bench = ProcessBench().start()
    handle = bench.do(bench.client.call, "tools/list")
    bench.fail_to_start("[Errno 2] No such file or directory")
    error = ended(bench.closed())
    failure = only_failure(bench, handle)
    assert "'python' could not be started: [Errno 2]" in str(failure)
    assert (error.status, error.log) == (None, ())
    assert bench.done == ["StartProcess"]
    assert failure.__cause__ is error


@requirement("STDIO-S-003")
def test_a_process_that_ends_instead_of_answering_initialize() -> None:
    bench = ProcessBench().start()
    bench.log("Traceback\nImportError: no module named x\n")
    bench.exit(1)
    error = ended(bench.closed())
    assert error.status == 1
    assert error.log == ("Traceback", "ImportError: no module named x")
    assert str(error).endswith("has ended with status 1:\n" + "\n".join(error.log))


def test_a_process_that_was_started_once_is_not_started_again(bench: ProcessBench) -> None:
    with pytest.raises(LocalProtocolError):
        bench.client.start(now=0)
    assert bench.done == []
