"""A server in its own process: ``python -m tests.fuzz.program NAME``.

It prints its URL, and serves until its standard input ends. It writes errors to standard error. The
bystander's tool returns its arguments; a call of any other client gets, at random, one of the
things that a handler may do.
"""

from __future__ import annotations

import inspect
import logging
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import sansmcp
from sansmcp.http import RequestHead
from sansmcp.input_required import InputRequest, InputRequired
from sansmcp_pytest import ServerUnderTest

from ..asgi.conftest import Host as AsgiHost
from ..asgi.test_check_adapter import AsgiServers
from ..asyncio.adapter_under_test import AsyncioServers
from ..blocking.adapter_under_test import BlockingServers
from ..trio.adapter_under_test import TrioServers
from ..wsgi.conftest import Host as WsgiHost
from ..wsgi.test_check_adapter import WsgiServers

SERVERS: dict[str, Callable[[], ServerUnderTest]] = {
    "trio": TrioServers,
    "asyncio": lambda: AsyncioServers("asyncio"),
    "blocking": BlockingServers,
    "uvicorn": lambda: AsgiServers(AsgiHost("uvicorn")),
    "hypercorn-asyncio": lambda: AsgiServers(AsgiHost("hypercorn-asyncio")),
    "waitress": lambda: WsgiServers(WsgiHost("waitress")),
}
"""Without Hypercorn on trio: some of these requests make its tasks write to one connection at the
same time, and the exception that trio raises ends it.
"""
OWN_HTTP = ("trio", "asyncio", "blocking")
PRINCIPAL = "bystander"


def authenticate(head: RequestHead, connection: sansmcp.ConnectionInfo) -> str | sansmcp.Refusal:
    """Tell the bystander from all others."""
    match head.values(b"authorization"):
        case []:
            return "somebody"
        case [b"Bearer bystander"]:
            return PRINCIPAL
        case _:
            return sansmcp.Refusal()


class Handlers:
    """What the application does."""

    def __init__(self, subject: ServerUnderTest) -> None:
        self._subject = subject
        self._random = random.Random(0)
        self.app = sansmcp.App("fuzzed", "1")
        for method in ("tools/call", "prompts/get", "resources/read", "logging/setLevel"):
            self.app.handler(method)(self._native(self._handle))

    def _native(self, handle: Callable[[Any], Coroutine[Any, Any, Any]]) -> Callable[[Any], Any]:
        return handle if self._subject.is_async else lambda call: _run_at_once(handle(call))

    async def _handle(self, call: sansmcp.BaseCall[Any, Any]) -> Any:
        if call.peer.principal == PRINCIPAL:
            await _done(call.progress(1))  # so that there is a stream, and event ids
            return {"echo": call.params["arguments"]}
        try:
            return await self._answer(call)
        except (sansmcp.CallError, sansmcp.LocalProtocolError) as error:
            raise sansmcp.JsonRpcError(-1, "no") from error  # it may take no server requests

    async def _answer(self, call: sansmcp.BaseCall[Any, Any]) -> Any:
        match self._random.randrange(7):
            case 0:
                raise sansmcp.JsonRpcError(-7, "no", [1])
            case 1:
                await _done(call.progress(1, 2, "half"))
                await _done(self._subject.sleep(call, 0.01))
            case 2:
                await _done(call.ask("elicitation/create", {"message": "?"}, timeout=0.3))
            case 3 if call.method == "tools/call":
                input_request = InputRequest("elicitation/create", {"message": "?"})
                return InputRequired({"q": input_request}, {"n": 1})
            case 4:
                await _done(call.disconnect(retry=0.01))
                await _done(call.notify("notifications/message", {"level": "info", "data": 1}))
            case _:
                pass
        return {"content": []}


async def _done(result: Any) -> Any:
    """What a method of the adapter's call gives, now or when it is awaited."""
    return await result if inspect.isawaitable(result) else result


def _run_at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run what never has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a handler that may block was given something to await")


def main() -> None:
    """Serve as the argument says."""
    logging.basicConfig(level=logging.ERROR)
    subject = SERVERS[sys.argv[1]]()
    running = subject.serve(
        Handlers(subject).app,
        resumable=True,
        graceful_timeout=1.0,
        authenticate=authenticate,
        http_sse="/sse",
        multi_turn=True,
        limits=sansmcp.Limits(stream_comment_interval=0.2),
    )
    for name in ("uvicorn.error", "hypercorn.error"):  # which other tests want to be silent
        logging.getLogger(name).setLevel(logging.ERROR)
    print(running.url, flush=True)
    sys.stdin.read()
    running.stop()


if __name__ == "__main__":
    main()
