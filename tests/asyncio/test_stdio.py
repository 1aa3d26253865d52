"""Our server on stdio, and whatever can be at the other ends of its standard streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import tty
from pathlib import Path
from typing import IO, Any

import pytest

from sansmcp import Disconnected, Limits, ProcessEnded
from sansmcp.events import ServerNotified
from sansmcp_asyncio import connect

from ..trio.programs import PATIENCE, foreign, outside
from ..trio.test_stdio_server import HELLO, MUCH, call, line

SERVER = [sys.executable, str(Path(__file__).with_name("stdio_server.py"))]


def start(kind: str, stdin: int | IO[bytes], stdout: int | IO[bytes]) -> subprocess.Popen[bytes]:
    """Start the server; what is wrong it says on standard error."""
    command = [SERVER[0], "-W", "error", *SERVER[1:], kind]
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=outside()
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until it has ended, without an error."""
    with process:
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (0, b"")


def answers(output: bytes) -> list[Any]:
    """What was answered, by id."""
    return sorted(json.loads(one)["id"] for one in output.splitlines())


# What the streams are


def test_pipes_are_left_as_they_were(loop: str) -> None:
    (input, far_input), (far_output, output) = os.pipe(), os.pipe()
    process = start(loop, input, output)
    os.write(far_input, HELLO + call(1, "nap") + call(2, "echo"))
    os.close(far_input)
    ended(process)
    assert answers(os.read(far_output, 65536)) == [0, 1, 2]
    assert os.get_blocking(input)
    assert os.get_blocking(output)
    for descriptor in (input, output, far_output):
        os.close(descriptor)


def test_files(loop: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(MUCH)
    with open(tmp_path / "in", "rb") as input, open(tmp_path / "out", "wb") as output:
        ended(start(loop, input, output))
    assert answers((tmp_path / "out").read_bytes()) == list(range(100))


def test_one_socket(loop: str) -> None:
    its, ours = socket.socketpair()
    with its:
        process = start(loop, its.fileno(), its.fileno())
        assert its.getblocking()
    with ours:
        ours.settimeout(PATIENCE)
        ours.sendall(HELLO + b"".join(call(id, "echo") for id in range(1, 100)))
        ours.shutdown(socket.SHUT_WR)
        output = b""
        while data := ours.recv(65536):
            output += data
        ended(process)
    assert answers(output) == list(range(100))


def test_a_terminal(loop: str) -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    process = start(loop, slave, slave)
    os.close(slave)
    os.write(master, HELLO + line("ping", 1))
    output = b""
    while output.count(b"\n") < 2:
        assert select.select([master], [], [], PATIENCE)[0]
        output += os.read(master, 65536)
    assert answers(output) == [0, 1]
    process.send_signal(signal.SIGTERM)  # it still waits for input, in a thread
    ended(process)
    os.close(master)


def test_nobody_reads_the_answers(loop: str) -> None:
    (far, output), (input, far_input) = os.pipe(), os.pipe()
    os.close(far)
    process = start(loop, input, output)
    os.close(output)
    os.write(far_input, HELLO)
    ended(process)
    for descriptor in (input, far_input):
        os.close(descriptor)


def test_who_reads_slowly_gets_everything(loop: str) -> None:
    with start(loop, subprocess.PIPE, subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(HELLO + call(1, "echo", text="x" * 2_000_000))
        process.stdin.flush()
        assert process.stdout.readline()
        assert len(process.stdout.readline()) > 2_000_000  # more than fits into a pipe
        ended(process)


def test_handlers_cannot_disturb_the_conversation(loop: str) -> None:
    with start(loop, subprocess.PIPE, subprocess.PIPE) as process:
        output, said = process.communicate(HELLO + call(1, "disturb"), timeout=PATIENCE)
    assert answers(output) == [0, 1]
    assert said == b"printed\n"


# Client and server


async def test_a_hundred_calls_at_once(loop: str) -> None:
    async with connect([*SERVER, loop], env=outside()) as client:
        arguments = [{"number": number, "text": "x" * 10_000} for number in range(100)]
        calls = [client.call_tool("echo", each) for each in arguments]
        results = await asyncio.gather(*calls)
        assert [result["number"] for result in results] == list(range(100))
        text = "\N{SNOWMAN}" * 1_000_000  # 3 MB: more than a pipe holds, less than a request may be
        assert (await client.call_tool("echo", {"text": text}))["text"] == text


async def test_environment_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARK", "ours")
    async with connect(foreign(), env={"MARK": "its"}, cwd=tmp_path) as client:
        about = await client.call("about")
    assert (about["mark"], about["cwd"]) == ("its", str(tmp_path.resolve()))
    async with connect(foreign()) as client:
        about = await client.call("about")
    assert (about["mark"], about["cwd"]) == (None, str(Path.cwd()))
    async with connect(foreign(), inherit_env=True) as client:
        assert (await client.call("about"))["mark"] == "ours"


async def test_an_application_that_takes_its_time_slows_the_server_down() -> None:
    async with connect(foreign(), limits=Limits(max_queued_events=10)) as client:
        events = client.events()
        numbers: list[Any] = []
        calling = asyncio.ensure_future(client.call("flood", {"count": 5_000}))
        async for event in events:
            assert isinstance(event, ServerNotified)
            numbers.append((event.notification.params or {})["number"])
            if len(numbers) == 5_000:
                break
        await events.aclose()
        await calling
    assert numbers == list(range(5_000))


# Processes


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-command"], "No such file"),
        ([str(Path(__file__).parent)], "Permission denied"),
        (["a\0b"], "null byte|No such file"),
        (foreign("failing"), "no configuration"),
    ],
)
async def test_a_command_that_does_not_work(command: list[str], reason: str) -> None:
    with pytest.raises(ProcessEnded, match=reason):
        await connect(command)


async def test_a_server_that_exits_during_a_call() -> None:
    async with connect(foreign()) as client:
        with pytest.raises(Disconnected, match=r"status 3:\nI\nhave to go$"):
            await client.call("leave", {"status": 3})


async def test_a_server_that_ends_when_it_is_asked_for_its_version() -> None:
    """It is started again, and not asked."""
    async with connect(foreign("frail")) as client:
        assert client.connected.version == "2025-11-25"
        assert await client.ping() == {}


async def test_a_server_that_does_not_read() -> None:
    async with connect(foreign(), close_timeout=0.1) as client:
        calling = asyncio.ensure_future(client.call("hang"))
        await client.notify("notifications/much", {"text": "x" * 1_000_000})
    assert isinstance((await asyncio.gather(calling, return_exceptions=True))[0], Exception)


@pytest.mark.parametrize("manners", ["parent", "quiet-parent", "stubborn"])
@pytest.mark.parametrize("ending", ["closed", "cancelled", "raised"])
async def test_nothing_is_left_of_what_the_server_has_started(manners: str, ending: str) -> None:
    """It and its child are connected to us: when both connections end, neither lives."""
    living: set[asyncio.Task[None] | None] = set()
    all_live = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        living.add(asyncio.current_task())
        if len(living) == (1 if manners == "stubborn" else 2):
            all_live.set()
        while await reader.read(1000):
            pass
        writer.close()

    async with await asyncio.start_server(watch, "127.0.0.1") as witness:
        port = witness.sockets[0].getsockname()[1]

        async def use() -> None:
            command = foreign(manners, witness=port)
            async with connect(command, close_timeout=0.1) as client:
                await client.ping()
                await all_live.wait()
                if ending == "cancelled":
                    using.cancel()
                    await asyncio.sleep(0)
                elif ending == "raised":
                    raise ZeroDivisionError

        using = asyncio.create_task(use())
        await asyncio.wait([using])
        if ending == "raised":
            assert isinstance(using.exception(), ZeroDivisionError)
        else:
            assert using.cancelled() is (ending == "cancelled")
        await asyncio.gather(*[task for task in living if task is not None])


def test_no_process_can_be_started_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error at once, which says so: neither the loop nor the system starts one."""

    def popen(*_: Any, **__: Any) -> Any:
        raise NotImplementedError

    class Loop(asyncio.SelectorEventLoop):
        async def subprocess_exec(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    async def main() -> None:
        said = "the event loop of this program cannot start processes; use another one"
        with pytest.raises(ProcessEnded, match=said):
            await connect([*SERVER, "asyncio"], connect_timeout=100)

    monkeypatch.setattr("sansmcp_asyncio._piped_process.Popen", popen)
    with contextlib.closing(Loop()) as loop:
        loop.run_until_complete(asyncio.wait_for(main(), 50))


@pytest.mark.parametrize("error", [NotImplementedError(), RuntimeError("not in this thread")])
def test_a_loop_that_cannot_start_processes(error: Exception) -> None:
    """Threads read its pipes. On Windows a SelectorEventLoop raises the first, without a text."""

    class Loop(asyncio.SelectorEventLoop):
        async def subprocess_exec(self, *_: Any, **__: Any) -> Any:
            raise error

    async def main() -> None:
        async with connect([*SERVER, "asyncio"]) as client:
            text = 1_000_000 * "x"  # more than pipes and sockets hold
            assert (await client.call_tool("echo", {"text": text}))["text"] == text
        async with connect(foreign()) as client:
            with pytest.raises(Disconnected, match="has ended with status 7:\nI\nhave to go"):
                await client.call("leave", {"status": 7})
        with pytest.raises(ProcessEnded, match=r"could not be started: .*No such file"):
            await connect(["/nowhere/server"])

    with contextlib.closing(Loop()) as loop:
        loop.run_until_complete(main())
