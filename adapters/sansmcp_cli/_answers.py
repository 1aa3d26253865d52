"""Answer what a server asks: by the person at the terminal, or by what options say.

A capability is declared only if there is something to answer with. So a server does not ask for
what this command has no answer to, such as a model for sampling.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sansmcp
from sansmcp.types import hide_secrets

from ._adapters import RequestHandlers
from ._credentials import has_browser
from ._form import interview
from ._output import UsageError, print_line, print_prompt

_CANCELLED = {"action": "cancel"}


class Answers:
    """Answers the requests of a server."""

    def __init__(self, server: str, *, asks: bool, roots: Sequence[str]) -> None:
        """Check the roots.

        Args:
            server: its URL, or the first word of its command.
            asks: True to ask the person at the terminal; only an asyncio loop can do that.
            roots: directories.

        Raises:
            UsageError: a root is no directory.
        """
        self._server = hide_secrets(server)
        self._asks = asks
        self._roots = [_root(directory) for directory in roots]
        self._lock = asyncio.Lock()

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare."""
        asked: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}} if self._asks else {}
        return asked | {"roots": {}} if self._roots else asked

    def handlers(self, before: Callable[[], object]) -> RequestHandlers:
        """Return the request handlers; ``before`` is called before a question is shown."""

        async def elicit(request: sansmcp.ServerRequest) -> dict[str, Any]:
            async with self._lock:  # one question at a time
                before()
                return await self._ask(request)

        handlers: dict[str, Callable[[sansmcp.ServerRequest], Any]] = {}
        if self._asks:
            handlers["elicitation/create"] = elicit
        if self._roots:
            handlers["roots/list"] = lambda request: {"roots": self._roots}
        return handlers

    async def _ask(self, request: sansmcp.ServerRequest) -> dict[str, Any]:
        asking = interview(request.params, self._server, _open)
        forget_input()
        try:
            prompt = next(asking)
            while True:
                print_prompt(prompt)
                prompt = asking.send(await _read_line())
        except StopIteration as done:
            result: dict[str, Any] = done.value
            return result
        except EOFError:
            print_line("", sys.stderr)
            return dict(_CANCELLED)
        except asyncio.CancelledError:
            print_line("", sys.stderr)  # the line of the prompt ends here
            raise


def _root(directory: str) -> dict[str, str]:
    path = Path(directory).resolve()
    if not path.is_dir():
        raise UsageError(f"--root takes a directory, got {directory!r}")
    return {"uri": path.as_uri(), "name": path.name}


def _open(url: str) -> None:
    if has_browser():
        webbrowser.open(url)
    else:
        print_line("There is no browser here; open that URL on another machine", sys.stderr)


def forget_input() -> None:
    """Discard what was typed before the question: it was no answer to it."""
    try:
        import termios
    except ModuleNotFoundError:  # Windows
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _read_line() -> str:
    """Read a line of the terminal. Raises EOFError at its end."""
    loop, descriptor, line = asyncio.get_running_loop(), sys.stdin.fileno(), b""
    while not line.endswith(b"\n"):
        readable = asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)
        more = os.read(descriptor, 4096)  # of a terminal: at most a line
        if not more:
            raise EOFError
        line += more
    return line.decode(errors="replace")
