"""The end of server processes, whoever brings it about: nothing is left, and everybody is told."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import PIPE

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from sansmcp import Disconnected, LocalProtocolError, ProcessEnded, RequestTimeout

from .programs import Witness, connect, foreign, start

requirement = pytest.mark.requirement

CLIENT = """
import sys, trio, sansmcp_trio

async def main():
    async with sansmcp_trio.connect(sys.argv[1:]) as client:
        await client.ping()
        print("ready", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@pytest.fixture
async def witness(nursery: trio.Nursery) -> AsyncIterator[Witness]:
    """Who sees which processes live; at the end, none may."""
    witness = Witness()
    await witness.begin(nursery)
    yield witness
    await witness.alone()
    for pid in witness.pids:
        with pytest.raises(ChildProcessError):  # and no zombie is left
            os.waitpid(pid, os.WNOHANG)
    gc.collect()  # what was not closed would warn


PATIENT = 5.0
"""The ``close_timeout`` that has to pass, by the clock, before a process is told something else."""


def cause(error: BaseException) -> ProcessEnded:
    assert isinstance(error.__cause__, ProcessEnded)
    return error.__cause__


# The server goes


async def test_a_server_that_ends_when_it_is_asked_for_its_version(witness: Witness) -> None:
    """It is started again, and not asked."""
    async with connect(foreign("frail", witness=witness.port)) as client:
        assert client.connected.version == "2025-11-25"
        assert await client.ping() == {}
    await witness.alone()
    assert len(witness.pids) == 2


@requirement("STDIO-S-003")
async def test_a_server_that_is_killed_during_a_call(witness: Witness) -> None:
    async with connect(foreign(witness=witness.port)) as client:
        async with trio.open_nursery() as nursery:

            async def caller() -> None:
                with pytest.raises(Disconnected, match="by signal 9") as caught:
                    await client.call("hang")
                assert cause(caught.value).status == -signal.SIGKILL

            nursery.start_soon(caller)
            await witness.heard("hanging")
            os.kill(witness.pids[0], signal.SIGKILL)
        with pytest.raises(LocalProtocolError, match="closed"):
            await client.ping()


@requirement("STDIO-S-003")
async def test_a_server_that_exits_during_a_call(witness: Witness) -> None:
    async with connect(foreign(witness=witness.port)) as client:
        with pytest.raises(Disconnected, match=r"status 3:\nI\nhave to go$") as caught:
            await client.call("leave", {"status": 3})
    ended = cause(caught.value)
    assert (ended.status, ended.log) == (3, ("I", "have to go"))


async def test_a_server_that_exits_before_it_has_said_anything() -> None:
    with pytest.raises(ProcessEnded, match=r"status 1:\nno configuration$") as caught:
        async with connect(foreign("failing")):
            raise AssertionError("connected")
    assert (caught.value.status, caught.value.log) == (1, ("no configuration",))


async def test_a_server_that_hangs_up_and_stays(witness: Witness, clock: MockClock) -> None:
    async with connect(foreign(witness=witness.port), close_timeout=PATIENT) as client:
        with pytest.raises(Disconnected, match="has closed its output") as caught:
            await client.call("hang_up")
        clock.jump(PATIENT)
    assert cause(caught.value).status is None
    await witness.heard("terminated")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-command"], "No such file"),
        ([str(Path(__file__).parent)], "Permission denied"),
        (["a\0b"], "null byte"),
    ],
)
async def test_a_command_that_cannot_be_started(command: list[str], reason: str) -> None:
    with pytest.raises(ProcessEnded, match=f"could not be started: .*{reason}") as caught:
        async with connect(command):
            raise AssertionError("connected")
    assert caught.value.status is None


async def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ProcessEnded, match=r"could not be started: .*No such file.*nowhere"):
        async with connect(foreign(), cwd=tmp_path / "nowhere"):
            raise AssertionError("connected")


# The client goes


@requirement("STDIO-C-006", "STDIO-C-007")
async def test_a_server_ends_by_the_end_of_its_input(witness: Witness) -> None:
    async with connect(foreign(witness=witness.port)) as client:
        assert await client.ping() == {}
    await witness.heard("eof")
    assert "terminated" not in witness.said


@requirement("STDIO-C-008", "STDIO-C-009")
@pytest.mark.parametrize("manner", ["deaf", "stubborn"])
async def test_a_server_that_ignores_it_is_told_and_then_made_to_end(
    witness: Witness, clock: MockClock, manner: str
) -> None:
    async def make_time_pass() -> None:
        for word in ("eof", "terminated"):
            await witness.heard(word)
            clock.jump(PATIENT)

    command = foreign(manner, witness=witness.port)
    async with (
        trio.open_nursery() as nursery,
        connect(command, close_timeout=PATIENT) as client,
    ):
        assert await client.ping() == {}
        nursery.start_soon(make_time_pass)


async def test_a_server_that_does_not_read(witness: Witness, clock: MockClock) -> None:
    async with connect(foreign(witness=witness.port), close_timeout=PATIENT) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, "hang")
            await witness.heard("hanging")
            nursery.cancel_scope.cancel()
        await client.notify("notifications/much", {"text": "x" * 1_000_000})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.aclose)
            await wait_all_tasks_blocked()
            clock.jump(PATIENT)
    await witness.heard("terminated")
    await witness.alone()
    assert "eof" not in witness.said


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("parent", "close"),
        ("parent", "cancel"),
        ("parent", "exit"),
        ("quiet-parent", "close"),
        ("quiet-parent", "exception"),
        ("quiet-parent", "interrupt"),
        ("quiet-parent", "exit"),
    ],
)
async def test_nothing_is_left_of_what_the_server_has_started(
    witness: Witness, kind: str, ending: str
) -> None:
    with trio.CancelScope() as scope:
        try:
            async with connect(foreign(kind, witness=witness.port)) as client:
                await witness.heard("child")
                if ending == "cancel":
                    scope.cancel()
                elif ending == "exception":
                    raise ZeroDivisionError
                elif ending == "interrupt":
                    raise KeyboardInterrupt
                elif ending == "exit":
                    await client.call("leave", {"status": 0})
                await trio.lowlevel.checkpoint()
        except (ZeroDivisionError, KeyboardInterrupt, Disconnected) as error:
            assert (
                ending
                == {
                    ZeroDivisionError: "exception",
                    KeyboardInterrupt: "interrupt",
                    Disconnected: "exit",
                }[type(error)]
            )
    await witness.alone()


async def test_a_wrapper_that_waits_for_the_server(witness: Witness) -> None:
    server = " ".join(foreign("deaf", witness=witness.port))
    async with connect(["sh", "-c", f"{server}; true"], close_timeout=0.2) as client:
        assert await client.ping() == {}


async def test_giving_up_the_handshake(witness: Witness) -> None:
    async with trio.open_nursery() as nursery:

        async def start() -> None:
            async with connect(foreign("silent", witness=witness.port)):
                raise AssertionError("connected")

        nursery.start_soon(start)
        await witness.heard("silent")
        nursery.cancel_scope.cancel()


async def test_a_handshake_that_takes_too_long(witness: Witness) -> None:
    command = foreign("silent", witness=witness.port)
    with pytest.raises(RequestTimeout):
        async with connect(command, connect_timeout=0.3, close_timeout=0.1):
            raise AssertionError("connected")


async def test_a_client_that_is_killed(witness: Witness) -> None:
    command = [sys.executable, "-c", CLIENT, *foreign(witness=witness.port)]
    client = await start(command, stdin=PIPE, stdout=PIPE)
    assert client.stdout is not None
    assert await client.stdout.receive_some() == b"ready\n"
    client.kill()
    await client.wait()
    await witness.heard("eof")
