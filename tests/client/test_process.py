"""The server process: how it is started, and how it is ended, step by step."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, ProcessEnded, RequestCancelled
from sansmcp.client.child_process import ChildProcess
from sansmcp.events import CallFailed, ServerNotified
from sansmcp.limits import Limits
from sansmcp.states import ClientState

from .harness import initialized, notification, only_failure, request
from .process_harness import ProcessHarness

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


def closing(harness: ProcessHarness) -> ProcessHarness:
    harness.run_command(harness.client.close)
    assert harness.client.state is ClientState.CLOSING
    assert harness.done == ["CloseStdin"]
    return harness


# Closing


@requirement("STDIO-C-006", "STDIO-C-007")
def test_a_process_that_goes_when_its_input_ends_gets_no_signal(harness: ProcessHarness) -> None:
    closing(harness)
    harness.wait(2.9)
    harness.exit()
    assert harness.done == ["KillProcess"]  # what it has left in its group
    assert harness.closed() is None


@requirement("STDIO-C-008", "STDIO-C-009")
def test_the_ladder(harness: ProcessHarness) -> None:
    closing(harness)
    harness.wait(2.9)
    assert harness.done == []
    harness.wait(0.1)
    assert harness.done == ["TerminateProcess"]
    harness.wait(2.9)
    assert harness.done == []
    harness.wait(0.1)
    assert harness.done == ["KillProcess"]
    harness.wait(2.9)
    assert harness.events == []
    harness.wait(0.1)
    assert harness.done == []
    assert harness.closed() is None


@requirement("STDIO-C-008")
@pytest.mark.parametrize(
    ("seconds", "signals"),
    [(1, []), (4, ["TerminateProcess"]), (7, ["TerminateProcess", "KillProcess"])],
)
@pytest.mark.parametrize("status", [0, 1, -15])
def test_each_step_ends_with_the_process(
    harness: ProcessHarness, seconds: float, signals: list[str], status: int
) -> None:
    closing(harness)
    harness.wait(seconds)
    harness.exit(status)
    assert harness.done == [*signals, "KillProcess"]
    assert harness.closed() is None
    harness.wait(100)
    assert harness.done == []


def test_closing_cancels_all_calls(harness: ProcessHarness) -> None:
    handles = [harness.make()[0] for _ in range(3)]
    closing(harness)
    failures = [event for event in harness.take_events() if isinstance(event, CallFailed)]
    assert [failure.call for failure in failures] == handles
    assert all(isinstance(failure.error, RequestCancelled) for failure in failures)
    harness.exit()
    assert harness.closed() is None


def test_closing_twice_is_closing_once(harness: ProcessHarness) -> None:
    closing(harness)
    harness.run_command(harness.client.close)
    harness.exit()
    assert harness.done == ["KillProcess"]
    harness.run_command(harness.client.close)
    assert harness.closed() is None
    assert harness.done == []


def test_nothing_is_said_any_more_while_closing(harness: ProcessHarness) -> None:
    closing(harness)
    harness.say(request(1, "ping"), request(2, "x"), notification("n"), b"noise")
    assert (harness.events, harness.written) == ([], [])
    with pytest.raises(LocalProtocolError, match="closed"):
        harness.client.notify("x", now=0)
    harness.exit()
    assert harness.closed() is None


def test_closing_does_not_wait_for_an_application_that_takes_no_events() -> None:
    harness = ProcessHarness(limits=Limits(max_queued_events=2)).connect()
    harness.takes_events = False
    harness.say(*[notification("n")] * 5)
    assert harness.is_paused
    harness.run_command(harness.client.close)
    harness.exit()
    assert harness.done == ["StartProcess", "CloseStdin", "KillProcess"]
    harness.takes_events = True
    harness.run_pending()
    assert harness.closed() is None
    assert [type(event) for event in harness.events] == [ServerNotified] * 2


def test_a_full_queue_does_not_hold_up_a_process_that_has_ended_before_closing() -> None:
    harness = ProcessHarness(limits=Limits(max_queued_events=2)).connect()
    harness.takes_events = False
    harness.say(*[notification("n")] * 5)
    harness.exit()
    harness.run_command(harness.client.close)
    harness.wait(1)
    assert harness.done == ["StartProcess", "KillProcess"]
    harness.takes_events = True
    harness.run_pending()
    assert harness.closed() is None


def test_closing_before_anything_was_started() -> None:
    harness = ProcessHarness()
    harness.run_command(harness.client.close)
    assert harness.did == []
    assert harness.closed() is None


def test_closing_while_the_process_is_being_started() -> None:
    harness = ProcessHarness().start()
    handle = harness.run_command(harness.client.call, "tools/list")
    harness.run_command(harness.client.close)
    assert harness.done == ["StartProcess", "CloseStdin"]
    assert isinstance(only_failure(harness, handle), RequestCancelled)
    harness.say(initialized(0))
    assert harness.written == []
    harness.exit()
    assert harness.closed() is None


def test_a_process_that_cannot_be_started_after_all_while_closing() -> None:
    harness = ProcessHarness().start()
    harness.run_command(harness.client.close)
    harness.fail_to_start("no such file")
    assert harness.closed() is None


# What cannot be started


def test_what_cannot_be_started_tells_why() -> None:
    harness = ProcessHarness().start()
    handle = harness.run_command(harness.client.call, "tools/list")
    harness.fail_to_start("[Errno 2] No such file or directory")
    error = ended(harness.closed())
    failure = only_failure(harness, handle)
    assert "'python' could not be started: [Errno 2]" in str(failure)
    assert (error.status, error.log) == (None, ())
    assert harness.done == ["StartProcess"]
    assert failure.__cause__ is error


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("python server.py", "'python ...' could not be started: x; write the program and its "),
        ("./server.py", "'./server.py' could not be started: x; to run a script write python "),
        ("./server", "'./server' could not be started: x"),
    ],
)
def test_a_command_that_is_no_program_says_how_to_write_it(program: str, said: str) -> None:
    process = ChildProcess((program,), 1.0)
    process.start()
    error = process.failed("x").error
    assert said in str(error)
    assert (";" in said) is (";" in str(error))


@requirement("STDIO-S-003")
def test_a_process_that_ends_instead_of_answering_initialize() -> None:
    harness = ProcessHarness().start()
    harness.log("Traceback\nImportError: no module named x\n")
    harness.exit(1)
    error = ended(harness.closed())
    assert error.status == 1
    assert error.log == ("Traceback", "ImportError: no module named x")
    assert str(error).endswith("has ended with status 1:\n" + "\n".join(error.log))


def test_a_process_that_was_started_once_is_not_started_again(harness: ProcessHarness) -> None:
    with pytest.raises(LocalProtocolError):
        harness.client.start(now=0)
    assert harness.done == []
