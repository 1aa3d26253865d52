"""Calls with input requests, and processes that share only a file; each round is at another one.

A tool that needs input returns, and is called again with the input responses. A relay between the
client and the servers passes each connection to the next process, and the client uses each
connection for one request only.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias

import sansmcp
from sansmcp import App, BaseCall, InputRequired
from sansmcp.base_client import tool_call
from sansmcp.events import Connected
from sansmcp_local import ConnectSettings

from . import example
from ._adapters import Adapter, Script, ScriptCall
from ._counts import Counts
from ._fault_proxy import FaultProxy, relaying
from ._faults import Faults, SeededFate
from ._output import print_line
from ._servers import started

Round: TypeAlias = BaseCall[Any, Any]

_PROCESSES = 3
"""The number of server processes: the rounds of a call."""

_WAYS = {
    "requests on a stream": ("2025-06-18", False),
    "multi-turn event streams": ("2025-11-25", True),
    "results that ask": ("2026-07-28", False),
}
"""The ways of sending input requests: the revision, and True with SEP-1858."""

app = App("sansmcp-rounds", "1.0")


@app.handler("tools/call")
def ask(call: Round) -> dict[str, Any] | InputRequired:
    """Run the example's tool ``ask``, and log the process of each round."""
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


def show_rounds(adapter: Adapter, name: str, write: Callable[[str], None]) -> Counts:
    """Make a call in each way, and write which processes ran its rounds.

    Failures are printed to stderr. Each round runs the tool once more, at the next process; a round
    that ran twice, or at the wrong process, counts as duplicated.
    """
    write(f"calls that ask the user: each round at another of {_PROCESSES} processes")
    counts = Counts()
    with started(name, f"{__name__}:app", _PROCESSES) as servers, _relaying(servers.ports) as url:
        for way, (version, multi_turn) in _WAYS.items():
            settings: ConnectSettings = {
                "versions": (version,),
                "multi_turn": multi_turn,
                "capabilities": {"elicitation": {}, "sampling": {}},
                "standalone_stream": False,
                "timeout": 20,
                "limits": sansmcp.Limits(idle_connection_timeout=1e-6),
            }
            outcomes: list[Any] = []
            script = partial(_script, version, outcomes)
            adapter.run_calls(url, script, _ignore, settings, _ANSWERS)
            executions = servers.executions()[version]
            outcome = outcomes[0]
            if isinstance(outcome, sansmcp.CallError):
                print_line(f"demo: {version}, {way}: failed: {outcome}", sys.stderr)
                counts += Counts(calls=1, executions=executions, lost=1)
                continue
            processes = outcome["structuredContent"]["processes"]
            at = ", ".join(map(str, processes))
            write(f"  {version}, {way}: done by processes {at}")
            is_right = outcome["content"] == [{"type": "text", "text": "the sea: It is blue."}]
            repeated = executions - len(set(processes))
            counts += Counts(
                calls=1, executions=executions, lost=int(not is_right), duplicated=repeated
            )
    write(f"{counts}: one execution for each round")
    return counts


def _relaying(ports: list[int]) -> AbstractContextManager[str]:
    """Run a relay that passes each connection to the next port."""
    turns = itertools.cycle(ports)
    fate_of = partial(SeededFate, Faults(), 0)
    return relaying(FaultProxy(lambda: ("127.0.0.1", next(turns)), fate_of))


def _script(name: str, outcomes: list[Any], server: Connected) -> Script:
    try:
        outcomes.append((yield ScriptCall(*tool_call("ask", {"call": name}))))
    except sansmcp.CallError as error:
        outcomes.append(error)


def _ignore(event: object) -> None:
    pass
