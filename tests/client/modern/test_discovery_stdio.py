"""Which era a server process is of: what it answers, or does not, or that it ends."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    Era,
    JsonRpcError,
    KnownServers,
    LocalProtocolError,
    NegotiationFailed,
    ProcessEnded,
)
from sansmcp.events import (
    CallCompleted,
    CallFailed,
    Connected,
    InvalidLine,
    ProtocolViolation,
    SessionExpired,
)
from sansmcp.process import ProcessExited, StderrClosed, StderrData, StdoutClosed, StdoutData
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS

from ..harness import LATEST, error, initialized, response
from ..process_harness import ProcessHarness, line
from .harness import META, MODERN, ModernProcess, discovered, failed, refused_version

requirement = pytest.mark.requirement
COMMAND = "python server.py"
RESTART = ["StartProcess", "KillProcess", "StartProcess"]


@pytest.fixture
def harness() -> ModernProcess:
    """A client that has asked."""
    return ModernProcess().start()


def becomes_legacy(harness: ModernProcess, id: int = 1, version: str = LATEST) -> None:
    assert harness.offered() == version
    harness.say(initialized(id, version))
    assert harness.written[0] == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert connected(harness) == version


def connected(harness: ModernProcess) -> str:
    (event,) = [event for event in harness.events if isinstance(event, Connected)]
    assert event.transport == "stdio"
    return event.version


# What is answered


def test_the_question() -> None:
    harness = ModernProcess()
    harness.run_command(harness.client.start)
    assert harness.written == [
        {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}}
    ]


def test_a_version_that_both_speak(harness: ModernProcess) -> None:
    handle = harness.run_command(harness.client.call, "tools/call")
    assert harness.written == []
    harness.say(discovered(0, LATEST, MODERN))
    assert connected(harness) == MODERN
    (message,) = harness.written
    harness.say(response(message["id"], {"resultType": "complete"}))
    assert harness.events[-1] == CallCompleted(handle, {"resultType": "complete"})


@pytest.mark.parametrize("as_error", [True, False])
@pytest.mark.both_eras
def test_only_older_versions_in_common(harness: ModernProcess, as_error: bool) -> None:
    versions = ("2024-11-05", "2025-06-18", "2099-01-01")
    harness.say(refused_version(0, *versions) if as_error else discovered(0, *versions))
    becomes_legacy(harness, version="2025-06-18")


@requirement("VERS-C-003", "STDIO-C-014")
def test_the_server_asks_for_a_version_that_both_speak(harness: ModernProcess) -> None:
    harness.say(refused_version(0, MODERN))
    (message,) = harness.written
    assert (message["id"], message["method"]) == (1, "server/discover")
    harness.say(discovered(1))
    assert connected(harness) == MODERN


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_errors_of_the_new_era_are_reported(harness: ModernProcess, code: int) -> None:
    harness.say(failed(0, code))
    assert harness.written == []
    harness.exit()
    kind = NegotiationFailed if code == -32022 else JsonRpcError
    assert isinstance(harness.closed(), kind)


@requirement("STDIO-C-015", "STDIO-C-016")
@pytest.mark.parametrize(
    "message",
    [
        error(0, -32601),
        error(0, -32602),
        error(0, -32001),
        error(None, -32600),
        error("server-error", -32600),
        response(0, {}),
        response(0, [MODERN]),
        {"jsonrpc": "2.0", "id": 0},
        {"jsonrpc": "2.0", "id": 0, "error": "no"},
    ],
)
@pytest.mark.both_eras
def test_any_other_answer_comes_from_an_old_server(harness: ModernProcess, message: Any) -> None:
    harness.say(message)
    becomes_legacy(harness)


def test_what_is_no_answer_decides_nothing(harness: ModernProcess) -> None:
    harness.say(b"Server running on stdio", response(5))
    assert [type(event) for event in harness.events] == [InvalidLine, ProtocolViolation]
    assert harness.written == []
    harness.say(discovered(0))
    assert connected(harness) == MODERN


# Silence


@requirement("STDIO-C-015")
@pytest.mark.parametrize("late", [discovered(0), error(0, -32601)])
@pytest.mark.both_eras
def test_silence_means_an_old_server_and_what_comes_late_is_dropped(late: Any) -> None:
    harness = ModernProcess(probe_timeout=2).start()
    harness.wait(1.9)
    assert harness.written == []
    harness.wait(0.1)
    assert harness.offered() == LATEST
    harness.say(late)
    assert (harness.events, harness.written) == ([], [])
    harness.say(initialized(1))
    assert connected(harness) == LATEST


@requirement("VERS-C-003")
@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.both_eras
def test_a_slow_server_of_the_new_era(harness: ModernProcess, answers: bool) -> None:
    """It says what it is when it is offered a handshake; then it is asked once more."""
    harness.wait(5)
    harness.offered()
    harness.say(refused_version(1, MODERN))
    (message,) = harness.written
    assert (message["id"], message["method"]) == (2, "server/discover")
    assert message["params"] == {"_meta": META}
    if answers:
        harness.say(discovered(2))
        assert connected(harness) == MODERN
    else:
        harness.wait(5)
        harness.offered()
        harness.say(refused_version(3, MODERN))
        assert harness.written == []
        harness.exit()
        assert isinstance(harness.closed(), JsonRpcError)


# A process that ends


@pytest.mark.parametrize("order", ["exit first", "output first", "output hangs"])
@pytest.mark.both_eras
def test_a_process_that_ends_when_it_is_asked_is_started_again(
    harness: ModernProcess, order: str
) -> None:
    handle = harness.run_command(harness.client.call, "tools/call")
    log, last = StderrData(b"unknown method\n"), StdoutData(b'{"half')
    if order == "exit first":
        harness.feed(ProcessExited(1), log, StderrClosed(), last, StdoutClosed())
    elif order == "output first":
        harness.feed(last, StdoutClosed(), log, StderrClosed(), ProcessExited(1))
        harness.did = [effect for effect in harness.did if type(effect).__name__ != "CloseStdin"]
    else:
        harness.feed(log, last, ProcessExited(1))
        harness.wait(1)
    assert harness.done == RESTART
    becomes_legacy(harness)
    assert not any(isinstance(event, CallFailed | SessionExpired) for event in harness.events)
    harness.say(response(2))
    assert harness.events[-1] == CallCompleted(handle, {})
    harness.feed(ProcessExited(3), StderrClosed(), StdoutClosed())
    reported = harness.closed()
    assert isinstance(reported, ProcessEnded)
    assert (reported.status, reported.log) == (3, ())


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.both_eras
def test_a_slow_process_that_ends_when_it_reads_the_first_message_is_started_again(
    harness: ModernProcess, answers: bool
) -> None:
    """By then ``initialize`` has been written, too: it may have refused the first one before."""
    if answers:
        harness.say(error(0, -32601))
    else:
        harness.wait(5)
    harness.offered()
    harness.exit(1)
    assert harness.done == RESTART
    becomes_legacy(harness, 2)


@pytest.mark.both_eras
def test_a_process_that_was_not_asked_is_not_started_again() -> None:
    harness = ProcessHarness(versions=HANDSHAKE_VERSIONS)
    harness.run_command(harness.client.start)
    harness.exit(1)
    assert isinstance(harness.closed(), ProcessEnded)


@pytest.mark.both_eras
def test_it_is_started_again_once(harness: ModernProcess) -> None:
    harness.exit(1)
    harness.exit(2)
    reported = harness.closed()
    assert isinstance(reported, ProcessEnded)
    assert reported.status == 2


@pytest.mark.both_eras
def test_after_that_it_is_not_asked_though_it_says_it_is_new(harness: ModernProcess) -> None:
    """It is asked when it names the version itself; if it ends again, that is the end."""
    harness.exit(1)
    harness.offered()
    harness.say(refused_version(1, MODERN))
    assert harness.written[0]["method"] == "server/discover"
    harness.exit(2)
    assert isinstance(harness.closed(), ProcessEnded)


def test_a_client_of_the_new_era_does_not_start_it_again() -> None:
    harness = ModernProcess(versions=MODERN_VERSIONS).start()
    harness.exit(1)
    assert isinstance(harness.closed(), ProcessEnded)


def test_a_client_of_the_new_era_says_what_the_server_needs() -> None:
    harness = ModernProcess(versions=MODERN_VERSIONS).start()
    harness.say(error(0, -32601))
    harness.exit()
    assert "needs a handshake" in str(harness.closed())


def test_a_process_that_cannot_be_started(harness: ModernProcess) -> None:
    harness.fail_to_start("no such file")
    assert "no such file" in str(harness.closed())


def test_closing_meanwhile(harness: ModernProcess) -> None:
    harness.run_command(harness.client.close)
    harness.feed(StdoutData(line(discovered(0))))
    harness.exit()
    assert harness.done == ["StartProcess", "CloseStdin", "KillProcess"]
    assert harness.closed() is None


# What is remembered


@requirement("VERS-C-006", "VERS-C-007")
@pytest.mark.both_eras
def test_the_next_client_of_an_old_server_does_not_ask() -> None:
    known_servers = KnownServers()
    harness = ModernProcess(known_servers=known_servers).start()
    harness.exit(1)
    becomes_legacy(harness)
    assert known_servers.era(COMMAND) is Era.LEGACY
    ProcessHarness(versions=("2025-11-25", MODERN), known_servers=known_servers).connect()


@requirement("VERS-C-007")
@pytest.mark.parametrize("code", [-32022, -32601, -32602])
@pytest.mark.both_eras
def test_when_what_is_remembered_fails_the_server_is_asked(code: int) -> None:
    known_servers = KnownServers()
    known_servers.remember(COMMAND, "stdio", Era.LEGACY)
    harness = ModernProcess(known_servers=known_servers)
    harness.run_command(harness.client.start)
    assert harness.offered() == LATEST
    harness.say(failed(0, code, "no", {"supported": [MODERN]}))
    (message,) = harness.written
    assert (message["id"], message["method"]) == (1, "server/discover")
    harness.say(discovered(1))
    assert connected(harness) == MODERN
    assert known_servers.era(COMMAND) is Era.MODERN


@pytest.mark.both_eras
def test_a_process_that_fails_both_ways_is_given_up() -> None:
    known_servers = KnownServers()
    known_servers.remember(COMMAND, "stdio", Era.LEGACY)
    harness = ModernProcess(known_servers=known_servers)
    harness.run_command(harness.client.start)
    for id in (0, 1, 2):
        assert len(harness.written) == 1
        harness.say(error(id, -32601))
    harness.exit()
    reported = harness.closed()
    assert isinstance(reported, NegotiationFailed)
    assert len(reported.attempts) == 2
    assert known_servers.era(COMMAND) is None


@pytest.mark.both_eras
@pytest.mark.parametrize("connect_timeout", [1.0, 3.0, 30.0])
def test_a_silent_process_gets_connect_timeout_in_all(connect_timeout: float) -> None:
    """The probe is part of it, and a process that has opened no session ends soon."""
    process = ModernProcess(connect_timeout=connect_timeout).start()
    process.wait(min(5.0, connect_timeout / 2))
    assert process.offered() == LATEST
    process.wait(connect_timeout - process.now)
    assert process.done[-1] == "CloseStdin"
    process.wait(2)
    assert process.done[:2] == ["TerminateProcess", "KillProcess"]


def test_a_closed_client_says_why() -> None:
    process = ModernProcess().connect()
    process.exit(3)
    with pytest.raises(LocalProtocolError, match=r"create a new one: .*ended with status 3"):
        process.client.call("tools/list", now=process.now)
