"""A client that makes one call, on any adapter.

``python -m tests.guarantees.client ADAPTER URL REVISION ARGUMENTS`` makes it in its own process, to
be killed. With ``--task`` it starts the call as a task, and prints the id. With ``--without-keys``
the call has no key.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import attrs
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_local
import sansmcp_trio


def settings_for(revision: str, *, reclaim: bool) -> dict[str, Any]:
    """The settings of a client that speaks one revision and reconnects quickly."""
    return {
        "versions": (revision,),
        "reconnect": sansmcp.ReconnectPolicy(initial_delay=0.02, max_delay=0.1, max_attempts=1000),
        "limits": sansmcp.Limits(
            idle_connection_timeout=0.01, stream_idle_timeout=1.0, post_timeout=5.0
        ),
        "standalone_stream": False,
        "reclaim": reclaim,
    }


@attrs.define(eq=False)
class OneCall:
    """A call of the tool ``wait``, whose client stays open for as long as it is told to."""

    arguments: dict[str, Any]
    options: dict[str, Any] = attrs.field(factory=dict[str, Any])
    task_id: str | None = None
    """The id of the task to wait for, instead of a new call."""
    outcome: str | None = attrs.field(default=None, init=False)
    """``"result"``, or the name of the exception that the call raised; None before its end."""
    may_close: threading.Event = attrs.field(factory=threading.Event, init=False)

    def make(self, adapter: str, url: str, settings: dict[str, Any]) -> None:
        """Make the call, and close the client when :attr:`may_close` is set."""
        if adapter == "asyncio":
            asyncio.run(self._on_asyncio(url, settings))
        elif adapter == "trio":
            trio.run(self._on_trio, url, settings)
        else:
            with sansmcp_blocking.connect(url, **settings) as client:
                with self._watched():
                    self._check(self._result(client))
                self.may_close.wait()

    async def _on_asyncio(self, url: str, settings: dict[str, Any]) -> None:
        async with sansmcp_asyncio.connect(url, **settings) as client:
            with self._watched():
                self._check(await self._result(client))
            await asyncio.to_thread(self.may_close.wait)

    async def _on_trio(self, url: str, settings: dict[str, Any]) -> None:
        async with sansmcp_trio.connect(url, **settings) as client:
            with self._watched():
                self._check(await self._result(client))
            await trio.to_thread.run_sync(self.may_close.wait)

    def _result(self, client: sansmcp_local.BlockingClient | sansmcp_local.Client) -> Any:
        if self.task_id is None:
            return client.call_tool("wait", self.arguments, **self.options)
        return client.task(self.task_id).result(timeout=self.options["timeout"])

    def _check(self, result: Any) -> None:
        assert result["content"][0]["text"] == self.arguments["call"]
        self.outcome = "result"

    @contextmanager
    def _watched(self) -> Generator[None, None, None]:
        try:
            yield
        except sansmcp.CallError as error:
            self.outcome = f"`{type(error).__name__}`"


def start_task(adapter: str, url: str, settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Start the call as a task, print the id, and wait for the result."""

    async def wait(client: sansmcp_asyncio.Client | sansmcp_trio.Client) -> None:
        task = await client.start_task("wait", arguments)
        print(task.id, flush=True)
        await task.result()

    async def on_asyncio() -> None:
        async with sansmcp_asyncio.connect(url, **settings) as client:
            await wait(client)

    async def on_trio() -> None:
        async with sansmcp_trio.connect(url, **settings) as client:
            await wait(client)

    if adapter == "asyncio":
        asyncio.run(on_asyncio())
    elif adapter == "trio":
        trio.run(on_trio)
    else:
        with sansmcp_blocking.connect(url, **settings) as client:
            task = client.start_task("wait", arguments)
            print(task.id, flush=True)
            task.result()


def main() -> None:
    """Make the call that the arguments describe."""
    adapter, url, revision, arguments, *options = sys.argv[1:]
    settings = settings_for(revision, reclaim="--without-keys" not in options)
    if "--task" in options:
        start_task(adapter, url, settings, json.loads(arguments))
    else:
        OneCall(json.loads(arguments)).make(adapter, url, settings)


if __name__ == "__main__":
    main()
