"""Which era a server process is of: what it answers, or does not, or that it ends."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp import (
    Era,
    JsonRpcError,
    KnownServers,
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
from sansmcp.revisions import MODERN_VERSIONS

from ..bench import LATEST, error, initialized, response
from ..process_bench import ProcessBench, line
from .bench import META, MODERN, ModernProcess, discovered, failed, refused_version

requirement = pytest.mark.requirement
COMMAND = "python server.py"
RESTART = ["StartProcess", "KillProcess", "StartProcess"]


@pytest.fixture
def bench() -> ModernProcess:
    """A client that has asked."""
    return ModernProcess().start()


def becomes_legacy(bench: ModernProcess, id: int = 1, version: str = LATEST) -> None:
    assert bench.offered() == version
    bench.say(initialized(id, version))
    assert bench.written[0] == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert connected(bench) == version


def connected(bench: ModernProcess) -> str:
    (event,) = [event for event in bench.events if isinstance(event, Connected)]
    assert event.transport == "stdio"
    return event.version


# What is answered


def test_the_question() -> None:
    bench = ModernProcess()
    bench.do(bench.client.start)
    assert bench.written == [
        {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}}
    ]


def test_a_version_that_both_speak(bench: ModernProcess) -> None:
    handle = bench.do(bench.client.call, "tools/call")
    assert bench.written == []
    bench.say(discovered(0, LATEST, MODERN))
    assert connected(bench) == MODERN
    (message,) = bench.written
    bench.say(response(message["id"], {"resultType": "complete"}))
    assert bench.events[-1] == CallCompleted(handle, {"resultType": "complete"})


@pytest.mark.parametrize("as_error", [True, False])
@pytest.mark.both_eras
def test_only_older_versions_in_common(bench: ModernProcess, as_error: bool) -> None:
    versions = ("2024-11-05", "2025-06-18", "2099-01-01")
    bench.say(refused_version(0, *versions) if as_error else discovered(0, *versions))
    becomes_legacy(bench, version="2025-06-18")


@requirement("VERS-C-003", "STDIO-C-014")
def test_the_server_asks_for_a_version_that_both_speak(bench: ModernProcess) -> None:
    bench.say(refused_version(0, MODERN))
    (message,) = bench.written
    assert (message["id"], message["method"]) == (1, "server/discover")
    bench.say(discovered(1))
    assert connected(bench) == MODERN


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_errors_of_the_new_era_are_reported(bench: ModernProcess, code: int) -> None:
    bench.say(failed(0, code))
    assert bench.written == []
    bench.exit()
    kind = NegotiationFailed if code == -32022 else JsonRpcError
    assert isinstance(bench.closed(), kind)


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
def test_any_other_answer_comes_from_an_old_server(bench: ModernProcess, message: Any) -> None:
    bench.say(message)
    becomes_legacy(bench)


def test_what_is_no_answer_decides_nothing(bench: ModernProcess) -> None:
    bench.say(b"Server running on stdio", response(5))
    assert [type(event) for event in bench.events] == [InvalidLine, ProtocolViolation]
    assert bench.written == []
    bench.say(discovered(0))
    assert connected(bench) == MODERN


# Silence


@requirement("STDIO-C-015")
@pytest.mark.parametrize("late", [discovered(0), error(0, -32601)])
@pytest.mark.both_eras
def test_silence_means_an_old_server_and_what_comes_late_is_dropped(late: Any) -> None:
    bench = ModernProcess(probe_timeout=2).start()
    bench.wait(1.9)
    assert bench.written == []
    bench.wait(0.1)
    assert bench.offered() == LATEST
    bench.say(late)
    assert (bench.events, bench.written) == ([], [])
    bench.say(initialized(1))
    assert connected(bench) == LATEST


@requirement("VERS-C-003")
@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.both_eras
def test_a_slow_server_of_the_new_era(bench: ModernProcess, answers: bool) -> None:
    """It says what it is when it is offered a handshake; then it is asked once more."""
    bench.wait(5)
    bench.offered()
    bench.say(refused_version(1, MODERN))
    (message,) = bench.written
    assert (message["id"], message["method"]) == (2, "server/discover")
    assert message["params"] == {"_meta": META}
    if answers:
        bench.say(discovered(2))
        assert connected(bench) == MODERN
    else:
        bench.wait(5)
        bench.offered()
        bench.say(refused_version(3, MODERN))
        assert bench.written == []
        bench.exit()
        assert isinstance(bench.closed(), JsonRpcError)


# A process that ends


@pytest.mark.parametrize("order", ["exit first", "output first", "output hangs"])
@pytest.mark.both_eras
def test_a_process_that_ends_when_it_is_asked_is_started_again(
    bench: ModernProcess, order: str
) -> None:
    handle = bench.do(bench.client.call, "tools/call")
    log, last = StderrData(b"unknown method\n"), StdoutData(b'{"half')
    if order == "exit first":
        bench.feed(ProcessExited(1), log, StderrClosed(), last, StdoutClosed())
    elif order == "output first":
        bench.feed(last, StdoutClosed(), log, StderrClosed(), ProcessExited(1))
        bench.did = [effect for effect in bench.did if type(effect).__name__ != "CloseStdin"]
    else:
        bench.feed(log, last, ProcessExited(1))
        bench.wait(1)
    assert bench.done == RESTART
    becomes_legacy(bench)
    assert not any(isinstance(event, CallFailed | SessionExpired) for event in bench.events)
    bench.say(response(2))
    assert bench.events[-1] == CallCompleted(handle, {})
    bench.feed(ProcessExited(3), StderrClosed(), StdoutClosed())
    reported = bench.closed()
    assert isinstance(reported, ProcessEnded)
    assert (reported.status, reported.log) == (3, ())


@pytest.mark.both_eras
def test_it_is_started_again_once(bench: ModernProcess) -> None:
    bench.exit(1)
    bench.exit(2)
    reported = bench.closed()
    assert isinstance(reported, ProcessEnded)
    assert reported.status == 2


@pytest.mark.both_eras
def test_after_that_it_is_not_asked_though_it_says_it_is_new(bench: ModernProcess) -> None:
    """It is asked when it names the version itself; if it ends again, that is the end."""
    bench.exit(1)
    bench.offered()
    bench.say(refused_version(1, MODERN))
    assert bench.written[0]["method"] == "server/discover"
    bench.exit(2)
    assert isinstance(bench.closed(), ProcessEnded)


def test_a_client_of_the_new_era_does_not_start_it_again() -> None:
    bench = ModernProcess(versions=MODERN_VERSIONS).start()
    bench.exit(1)
    assert isinstance(bench.closed(), ProcessEnded)


def test_a_client_of_the_new_era_says_what_the_server_needs() -> None:
    bench = ModernProcess(versions=MODERN_VERSIONS).start()
    bench.say(error(0, -32601))
    bench.exit()
    assert "needs a handshake" in str(bench.closed())


def test_a_process_that_cannot_be_started(bench: ModernProcess) -> None:
    bench.fail_to_start("no such file")
    assert "no such file" in str(bench.closed())


def test_closing_meanwhile(bench: ModernProcess) -> None:
    bench.do(bench.client.close)
    bench.feed(StdoutData(line(discovered(0))))
    bench.exit()
    assert bench.done == ["StartProcess", "CloseStdin", "KillProcess"]
    assert bench.closed() is None


# What is remembered


@requirement("VERS-C-006", "VERS-C-007")
@pytest.mark.both_eras
def test_the_next_client_of_an_old_server_does_not_ask() -> None:
    known_servers = KnownServers()
    bench = ModernProcess(known_servers=known_servers).start()
    bench.exit(1)
    becomes_legacy(bench)
    assert known_servers.era(COMMAND) is Era.LEGACY
    ProcessBench(versions=("2025-11-25", MODERN), known_servers=known_servers).connect()


@requirement("VERS-C-007")
@pytest.mark.parametrize("code", [-32022, -32601, -32602])
@pytest.mark.both_eras
def test_when_what_is_remembered_fails_the_server_is_asked(code: int) -> None:
    known_servers = KnownServers()
    known_servers.remember(COMMAND, "stdio", Era.LEGACY)
    bench = ModernProcess(known_servers=known_servers)
    bench.do(bench.client.start)
    assert bench.offered() == LATEST
    bench.say(failed(0, code, "no", {"supported": [MODERN]}))
    (message,) = bench.written
    assert (message["id"], message["method"]) == (1, "server/discover")
    bench.say(discovered(1))
    assert connected(bench) == MODERN
    assert known_servers.era(COMMAND) is Era.MODERN


@pytest.mark.both_eras
def test_a_process_that_fails_both_ways_is_given_up() -> None:
    known_servers = KnownServers()
    known_servers.remember(COMMAND, "stdio", Era.LEGACY)
    bench = ModernProcess(known_servers=known_servers)
    bench.do(bench.client.start)
    for id in (0, 1, 2):
        assert len(bench.written) == 1
        bench.say(error(id, -32601))
    bench.exit()
    reported = bench.closed()
    assert isinstance(reported, NegotiationFailed)
    assert len(reported.attempts) == 2
    assert known_servers.era(COMMAND) is None
