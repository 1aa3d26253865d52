"""Others who read event streams, each as its users call it.

To add one, write a function: it gets the modules it names and the chunks of a stream, and gives the
data of each event. What is not installed is left out.
"""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs

Reader: TypeAlias = Callable[[list[bytes]], Iterable[str]]

READERS: dict[str, Reader] = {}

_STREAM = {"content-type": "text/event-stream"}
_NODE = Path(__file__).parent / "node"


def reads_events(name: str, *modules: str) -> Callable[[Callable[..., Iterable[str]]], None]:
    """Enter a function into :data:`READERS`, if its modules are installed."""

    def enter(function: Callable[..., Iterable[str]]) -> None:
        with suppress(ImportError):
            READERS[name] = partial(function, *map(importlib.import_module, modules))

    return enter


@reads_events("httpx-sse", "httpx", "httpx_sse")
def by_httpx_sse(httpx: Any, httpx_sse: Any, chunks: list[bytes]) -> Iterator[str]:
    """The reader for httpx."""
    response = httpx.Response(200, headers=_STREAM, content=iter(chunks))
    return (event.data for event in httpx_sse.EventSource(response).iter_sse())


@reads_events("httpx2 (for mcp)", "httpx2")
def by_httpx2(httpx2: Any, chunks: list[bytes]) -> Iterator[str]:
    """The reader that the official SDK uses."""
    request = httpx2.Request("GET", "http://localhost/mcp")
    response = httpx2.Response(200, headers=_STREAM, content=iter(chunks), request=request)
    return (event.data for event in httpx2.EventSource(response))


@reads_events("sseclient-py", "sseclient")
def by_sseclient(sseclient: Any, chunks: list[bytes]) -> Iterator[str]:
    """The oldest."""
    return (event.data for event in sseclient.SSEClient(iter(chunks)).events())


@reads_events("openai", "openai._streaming")
def by_openai(streaming: Any, chunks: list[bytes]) -> Iterator[str]:
    """The reader inside of a client library."""
    return (event.data for event in streaming.SSEDecoder().iter_bytes(iter(chunks)))


@reads_events("anthropic", "anthropic._streaming")
def by_anthropic(streaming: Any, chunks: list[bytes]) -> Iterator[str]:
    """Another one of that kind."""
    return (event.data for event in streaming.SSEDecoder().iter_bytes(iter(chunks)))


@attrs.frozen
class InNode:
    """``eventsource-parser`` in Node.js: a parser that runs in a process of its own."""

    _chunks: list[bytes]
    _node: str

    @classmethod
    def reader(cls, chunks: list[bytes]) -> InNode | None:
        """It, if Node.js is installed; its packages are installed with the first one."""
        try:
            from tests import node

            node.install(_NODE)
        except (ImportError, OSError, RuntimeError):
            return None
        return cls(chunks, node.NODE)

    def __call__(self) -> int:
        """Read all; the number of messages."""
        return int(self._run(1)[0])

    def seconds(self, loops: int) -> float:
        """Read all so many times; the time that has taken."""
        return float(self._run(loops)[1])

    def _run(self, loops: int) -> list[str]:
        command = [self._node, str(_NODE / "read.mjs"), str(len(self._chunks[0])), str(loops)]
        stream = b"".join(self._chunks)
        done = subprocess.run(command, input=stream, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().split()
