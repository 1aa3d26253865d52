"""Our server on stdio, and whatever can be at the other ends of its standard streams."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import tty
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

import pytest
import trio

from .programs import PATIENCE, ours, outside, start

requirement = pytest.mark.requirement

CLI = [sys.executable, "-m", "sansmcp_cli", "serve", "--stdio"]


def line(method: str, id: int | None = None, **params: Any) -> bytes:
    members = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    if id is None:
        del members["id"]
    return json.dumps(members).encode() + b"\n"


def call(id: int, name: str, **arguments: Any) -> bytes:
    return line("tools/call", id, name=name, arguments=arguments)


HELLO = line(
    "initialize",
    0,
    protocolVersion="2025-11-25",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
) + line("notifications/initialized")


def answers(output: bytes) -> dict[Any, Any]:
    """What was answered, by id."""
    assert output.endswith(b"\n")
    messages = [json.loads(one) for one in output.splitlines()]
    found = {message.get("id"): message.get("result", message.get("error")) for message in messages}
    assert len(found) == len(messages)
    return found


async def run(input: bytes, **settings: Any) -> CompletedProcess[bytes]:
    with trio.fail_after(PATIENCE):
        return await trio.run_process(
            ours(**settings),
            stdin=input,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=outside(),
        )


# The input ends


@requirement("STDIO-S-004")
async def test_all_that_was_asked_is_answered_before_the_server_ends() -> None:
    asked = HELLO + call(1, "nap", seconds=0.1) + b"nonsense\n" + call(2, "echo", text="x")[:-1]
    done = await run(asked)
    found = answers(done.stdout)
    assert (found[1], found[2]) == ({"slept": True}, {"text": "x"})
    assert found[None]["code"] == -32700
    assert (done.returncode, done.stderr) == (0, b"")


@requirement("STDIO-S-004")
async def test_the_server_does_not_wait_for_ever_for_its_handlers() -> None:
    process = await start(ours(graceful_timeout=0.1), PIPE)
    assert process.stdin is not None
    assert process.stderr is not None
    async with process.stdin as input, process.stderr as errors:
        await input.send_all(HELLO + call(1, "hang"))
        assert bytes(await errors.receive_some()) == b"hanging\n"
        await input.aclose()
        with trio.fail_after(4):  # by default it would get 5
            assert bytes(await errors.receive_some()) == b"cancelled\n"
    assert await process.wait() == 0


async def test_nothing_is_asked() -> None:
    done = await run(b"")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# What the streams are

MUCH = HELLO + b"".join(call(id, "echo", text="x" * 5_000) for id in range(1, 100))


async def ended(process: trio.Process) -> None:
    """Wait until it has ended, without an error."""
    assert process.stderr is not None
    with trio.fail_after(PATIENCE):
        async with process.stderr as errors:
            said = b"".join([bytes(data) async for data in errors])
        assert (await process.wait(), said) == (0, b"")


async def test_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(MUCH)
    with open(tmp_path / "in", "rb") as input, open(tmp_path / "out", "wb") as output:
        await ended(await start(ours(), input.fileno(), output.fileno()))
    assert sorted(answers((tmp_path / "out").read_bytes())) == list(range(100))


async def test_one_socket() -> None:
    its, ours_ = trio.socket.socketpair()
    stream = trio.SocketStream(ours_)
    with its:
        process = await start(ours(), its.fileno(), its.fileno())
    async with stream, trio.open_nursery() as nursery:

        async def ask() -> None:
            await stream.send_all(MUCH)
            await stream.send_eof()

        nursery.start_soon(ask)
        output = b"".join([bytes(data) async for data in stream])
        await ended(process)
    assert sorted(answers(output)) == list(range(100))


async def test_a_terminal() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    process = await start(CLI, slave, slave)
    os.close(slave)
    os.write(master, HELLO + line("ping", 1))
    output = b""
    while output.count(b"\n") < 2:
        await trio.lowlevel.wait_readable(master)
        output += os.read(master, 65536)
    assert list(answers(output)) == [0, 1]
    process.send_signal(signal.SIGTERM)
    await ended(process)
    os.close(master)


async def test_pipes_are_left_as_they_were() -> None:
    (input, far_input), (far_output, output) = os.pipe(), os.pipe()
    process = await start(ours(), input, output)
    os.write(far_input, HELLO)
    os.close(far_input)
    await ended(process)
    assert list(answers(os.read(far_output, 65536))) == [0]
    assert os.get_blocking(input)
    assert os.get_blocking(output)
    for descriptor in (input, output, far_output):
        os.close(descriptor)


# Other ends


async def test_nobody_reads_the_answers() -> None:
    far, output = os.pipe()
    os.close(far)
    input, far_input = os.pipe()
    process = await start(ours(), input, output)
    os.close(output)
    os.write(far_input, HELLO)
    await ended(process)
    for descriptor in (input, far_input):
        os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal(number: signal.Signals) -> None:
    (input, far_input), (far_output, output) = os.pipe(), os.pipe()
    process = await start(CLI, input, output)
    os.write(far_input, HELLO)
    await trio.lowlevel.wait_readable(far_output)
    process.send_signal(number)
    await ended(process)
    assert list(answers(os.read(far_output, 65536))) == [0]
    for descriptor in (input, output, far_input, far_output):
        os.close(descriptor)
