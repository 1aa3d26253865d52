"""The servers that tests start as processes, and a witness of how long those live."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import trio

import sansmcp_trio
from sansmcp_trio import Client

from ..cli.conftest import environment

_HERE = Path(__file__).parent

PATIENCE = 30.0
"""Seconds for what takes a moment, on a machine that has much else to do."""


def ours(**settings: Any) -> list[str]:
    """The command of a server made with sansmcp; see stdio_server.py."""
    return [sys.executable, str(_HERE / "stdio_server.py"), json.dumps(settings)]


def foreign(*manners: str, witness: int = 0) -> list[str]:
    """The command of a server made without; see foreign_server.py."""
    program = str(_HERE / "foreign_server.py")
    return [sys.executable, "-IS", program, ",".join(manners), str(witness)]


@asynccontextmanager
async def connect(
    target: str | list[str], env: Mapping[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Client, None]:
    """Connect to a server, for a while; a command finds the packages in the tree.

    Python takes its time to start, so a process is asked for its version as long as it takes.
    """
    settings.setdefault("probe_timeout", PATIENCE)
    with trio.fail_after(PATIENCE):
        env = outside() if env is None else env
        async with sansmcp_trio.connect(target, env=env, **settings) as client:
            yield client


def outside(**changes: str) -> dict[str, str]:
    """The environment of what is started: the packages are found, and output is buffered."""
    variables = {**environment(), **changes}
    variables.pop("PYTHONUNBUFFERED", None)
    return variables


async def start(command: list[str], stdin: int, stdout: int = DEVNULL) -> trio.Process:
    """Start what is no server of a client of ours."""
    return await trio.lowlevel.open_process(
        command, stdin=stdin, stdout=stdout, stderr=PIPE, env=outside()
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does, and nobody tells."""
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.01)


class Witness:
    """Processes connect to its port and tell it things; they live as long as they are connected."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.port = 0
        self._alive = 0
        self._moved = trio.Event()

    async def begin(self, nursery: trio.Nursery) -> None:
        """Listen; the nursery fails after a while."""
        nursery.start_soon(self._lose_patience)
        serve = partial(trio.serve_tcp, self._listen, 0, host="127.0.0.1")
        listeners = await nursery.start(serve)
        self.port = listeners[0].socket.getsockname()[1]

    async def heard(self, *words: str) -> None:
        """Wait until all that was said."""
        while not set(words) <= set(self.said):
            await self._moved.wait()

    async def alone(self) -> None:
        """Wait until no process lives that has told us anything."""
        while self._alive:
            await self._moved.wait()

    @property
    def pids(self) -> list[int]:
        """The processes that have said which they are."""
        return [int(word[4:]) for word in self.said if word.startswith("pid:")]

    async def _listen(self, stream: trio.SocketStream) -> None:
        self._alive += 1
        rest = b""
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            self.said += [line.decode() for line in lines]
            self._move()
        self._alive -= 1
        self._move()

    async def _lose_patience(self) -> None:
        await trio.sleep(PATIENCE)
        raise AssertionError(f"{self._alive} processes live, and all they have said is {self.said}")

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()
