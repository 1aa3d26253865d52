"""Calls that ask, and processes that share nothing but a file: each round is at another process.

A tool that needs to know something ends, and is entered again with the answers. Between the client
and the servers stands a relay that sends each connection to the next process, and the client uses
each connection for one request only.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import sansmcp
from sansmcp import App, CallHandle, InputRequired
from sansmcp_local import undisturbed

from . import example
from ._adapters import Adapter, Script, ToolCall
from ._relay import Relay, relaying
from ._say import say

Round: TypeAlias = CallHandle[Any, Any]

_PROCESSES = 3
"""As many as a call has rounds."""

_WAYS = {
    "requests on a stream": ("2025-06-18", False),
    "multi-turn event streams": ("2025-11-25", True),
    "results that ask": ("2026-07-28", False),
}
"""How the questions travel: at which revision, and whether with SEP-1858."""

app = App("sansmcp-rounds", "1.0")


@app.handler("tools/call")
def ask(call: Round) -> dict[str, Any] | InputRequired:
    """Run the example's tool that asks, which never waits; add the process of each round."""
    before: list[int] = [] if call.saved_state is None else call.saved_state["processes"]
    processes = [*before, os.getpid()]
    outcome = example.call_tool_in_thread(call)
    if isinstance(outcome, InputRequired):
        return InputRequired(outcome.requests, {**outcome.state, "processes": processes})
    return {**outcome, "structuredContent": {"processes": processes}}


def _answer_user(request: sansmcp.ServerRequest) -> dict[str, Any]:
    return {"action": "accept", "content": {"topic": "the sea"}}


def _answer_model(request: sansmcp.ServerRequest) -> dict[str, Any]:
    block = {"type": "text", "text": "It is blue."}
    return {"role": "assistant", "model": "none", "content": block}


_ANSWERS = {"elicitation/create": _answer_user, "sampling/createMessage": _answer_model}


def show_rounds(adapter: Adapter, name: str, write: Callable[[str], None]) -> int:
    """Make a call in each way, and write which processes were at work.

    Takes an adapter and its name. Returns how many calls failed: a round that was not at a process
    of its own is a failure, too. What failed is told on stderr.
    """
    failures = 0
    with _served(name) as ports, relaying(Relay(itertools.cycle(ports))) as url:
        for way, (version, multi_turn) in _WAYS.items():
            settings: sansmcp.ClientSettings = {
                "versions": (version,),
                "multi_turn": multi_turn,
                "capabilities": {"elicitation": {}, "sampling": {}},
                "listen": False,
                "timeout": 20,
                "limits": sansmcp.Limits(idle_connection_timeout=1e-6),
            }
            outcomes: list[Any] = []
            adapter.converse(url, _script(outcomes), _ignore, settings, _ANSWERS)
            is_right, found = _judged(outcomes[0])
            line = f"rounds: {version}, {way}: {found}"
            if is_right:
                write(line)
            else:
                say(line, sys.stderr)
                failures += 1
    return failures


def _script(outcomes: list[Any]) -> Script:
    try:
        outcomes.append((yield ToolCall(tool="ask", arguments={}, on_progress=_ignore)))
    except sansmcp.CallError as error:
        outcomes.append(error)


def _ignore(event: object) -> None:
    pass


def _judged(outcome: Any) -> tuple[bool, str]:
    """Whether a call went as it should, and what to say about it."""
    if isinstance(outcome, sansmcp.CallError):
        return False, f"failed: {outcome}"
    begun, continued, finished = outcome["structuredContent"]["processes"]
    line = f"begun by process {begun}, continued by {continued}, finished by {finished}"
    is_right = outcome["content"] == [{"type": "text", "text": "the sea: It is blue."}]
    return is_right and len({begun, continued, finished}) == 3, line


@contextmanager
def _served(adapter: str) -> Generator[list[int], None, None]:
    """Start the processes; gives their ports."""
    with TemporaryDirectory() as directory, ExitStack() as stack:
        store = str(Path(directory) / "store.db")
        command = (
            *(sys.executable, "-m", "sansmcp_cli", "serve", f"{__name__}:app", "--multi-turn"),
            *("--http", "127.0.0.1:0", "--store", store, "--adapter", adapter),
            "--stop-with-stdin",  # which ends with us, however we do
        )
        processes = [stack.enter_context(_started(command)) for _ in range(_PROCESSES)]
        yield [sansmcp.Url.parse(_first_line(process)).port for process in processes]


@contextmanager
def _started(command: tuple[str, ...]) -> Generator[subprocess.Popen[str], None, None]:
    with ExitStack() as stack:
        # An interrupt that comes while it is started must not leave it behind.
        with undisturbed(threading.RLock()):
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                start_new_session=True,  # a Ctrl-C of the terminal is for us alone
            )
            stack.enter_context(process)
            stack.callback(process.kill)  # what it has is in the file, and that goes, too
        yield process


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
