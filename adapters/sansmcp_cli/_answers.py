"""Answer what a server asks: by the person at the terminal, or by what options say.

A capability is declared only if there is something to answer with. So a server does not ask for
what this command has no answer to, such as a model for sampling.
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sansmcp
from sansmcp.codecs.json import is_array
from sansmcp.types import escape_controls, hide_secrets

from ._adapters import RequestHandlers
from ._credentials import has_browser
from ._form import interview
from ._output import UsageError, broken, print_line, print_prompt, width_of_terminal
from ._references import fields_of
from ._values import convert_words

_CANCELLED = {"action": "cancel"}
_DECLINED = {"action": "decline"}


class Answers:
    """Answers the requests of a server."""

    def __init__(
        self, server: str, *, asks: bool, roots: Sequence[str], given: Sequence[str] = ()
    ) -> None:
        """Check the roots and the answers.

        Args:
            server: its URL, or the first word of its command.
            asks: True to ask the person at the terminal; only an asyncio loop can do that.
            roots: directories.
            given: answers to fields of forms, as ``NAME=VALUE``.

        Raises:
            UsageError: a root is no directory, or an answer has no name.
        """
        self._server = hide_secrets(server)
        self._asks = asks
        self._given: dict[str, list[str]] = {}
        for word in given:
            name, equals, value = word.partition("=")
            if not name or not equals:
                raise UsageError(f"--answer takes NAME=VALUE, got {word!r}")
            self._given.setdefault(name, []).append(value)
        self._roots = [_root(directory) for directory in roots]
        self._lock = asyncio.Lock()

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare."""
        asked: dict[str, Any] = {}
        if self._asks:
            asked["elicitation"] = {"form": {}, "url": {}}
        elif self._given:
            asked["elicitation"] = {"form": {}}
        return asked | {"roots": {}} if self._roots else asked

    def handlers(self, before: Callable[[], object]) -> RequestHandlers:
        """Return the request handlers; ``before`` is called before a question is shown."""

        async def elicit(request: sansmcp.ServerRequest) -> dict[str, Any]:
            async with self._lock:  # one question at a time
                before()
                return self._answered(request) or await self._ask(request)

        def answer(request: sansmcp.ServerRequest) -> dict[str, Any]:
            before()
            return self._answered(request) or dict(_DECLINED)

        handlers: dict[str, Callable[[sansmcp.ServerRequest], Any]] = {}
        if self._asks:
            handlers["elicitation/create"] = elicit
        elif self._given:
            handlers["elicitation/create"] = answer
        if self._roots:
            handlers["roots/list"] = lambda request: {"roots": self._roots}
        return handlers

    def connected(self, info: Mapping[str, Any]) -> None:
        """Name the server of a process by what it says of itself, not by its command alone."""
        name = info.get("title") or info.get("name")
        if isinstance(name, str):
            # After the word of the command and in quotes, so that no line begins with it.
            self._server = f"{self._server} ({escape_controls(name[:60])!r})"

    def _answered(self, request: sansmcp.ServerRequest) -> dict[str, Any] | None:
        """Return the answer that options give to a form; None if a field that is required lacks."""
        if not self._given or request.params.get("mode") == "url":
            return None
        fields, schema = fields_of(request.params.get("requestedSchema"))
        content: dict[str, Any] = {}
        for name, field in fields.items():
            texts = self._given.get(name)
            if texts is not None:
                try:
                    content[name] = convert_words(texts, field)
                except ValueError as error:
                    print_line(f"sansmcp: --answer {name} {error}", sys.stderr)
                    return None
            elif "default" in field:
                content[name] = field["default"]
        required: Any = schema.get("required")
        missing = [name for name in required if name not in content] if is_array(required) else []
        if missing:
            text = f"sansmcp: no --answer for {', '.join(map(str, missing))}, which the server asks"
            print_line(text, sys.stderr)
            return None
        return {"action": "accept", "content": content}

    async def _ask(self, request: sansmcp.ServerRequest) -> dict[str, Any]:
        asking = interview(request.params, self._server, _open)
        forget_input()
        try:
            prompt = next(asking)
            while True:
                print_prompt(_wrapped(prompt))
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
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _wrapped(prompt: str) -> str:
    """Break long lines at the width of the terminal, which would break them in its first column.

    There a text of the server would look like a line of this command. Lines that go on are
    indented.
    """
    return "\n".join(
        part for line in prompt.split("\n") for part in broken(line, width_of_terminal())
    )


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
