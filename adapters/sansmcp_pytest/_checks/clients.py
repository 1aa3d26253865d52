"""Helpers of the checks of clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from sansmcp.base_client import CallSettings
from sansmcp.client.options import ClientSettings, ReconnectPolicy
from sansmcp.events import ClientEvent, ServerNotified
from sansmcp.messages import Params
from sansmcp.types import Unpack

from .adapter_under_test import Answer, ClientUnderTest, ConnectedClient, Pending
from .check import MOMENT, Broken
from .fake_server import SCRIPTS, FakeServer, Script

LEGACY, MODERN, OLDEST = ("2025-11-25",), ("2026-07-28",), ("2024-11-05",)
"""A revision with sessions, one without, and the one of HTTP+SSE."""

SOON = ReconnectPolicy(initial_delay=0.01, max_delay=0.05)
"""A policy that reconnects within milliseconds, and gives up within half a second."""


@contextmanager
def connected(
    subject: ClientUnderTest,
    target: str | Sequence[str],
    request_handlers: Mapping[str, Answer] | None = None,
    transport: Literal["stdio-v2"] | None = None,
    **settings: Unpack[ClientSettings],
) -> Generator[ConnectedClient]:
    """Connect a client for the block, without a standalone stream and with fast reconnection."""
    settings.setdefault("standalone_stream", False)
    settings.setdefault("reconnect", SOON)
    settings.setdefault("timeout", MOMENT)
    handlers = request_handlers or {}
    if transport is None:
        client = subject.connect(target, request_handlers=handlers, **settings)
    else:
        client = subject.connect(target, request_handlers=handlers, transport=transport, **settings)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def talking(
    subject: ClientUnderTest,
    scripts: Mapping[str, Script] = SCRIPTS,
    request_handlers: Mapping[str, Answer] | None = None,
    piece: int = 0,
    unix: str | None = None,
    **settings: Unpack[ClientSettings],
) -> Generator[tuple[ConnectedClient, FakeServer]]:
    """Connect a client to a FakeServer with these scripts, with a session by default."""
    settings.setdefault("versions", LEGACY)
    with (
        FakeServer(scripts, piece=piece, unix=unix) as server,
        connected(subject, server.url, request_handlers, **settings) as client,
    ):
        yield client, server


def call(
    client: ConnectedClient,
    arguments: Mapping[str, Any] | None = None,
    on_progress: Callable[[Any], None] | None = None,
    **settings: Unpack[CallSettings],
) -> Any:
    """Call a tool, and wait for its result."""
    return start(client, arguments, on_progress, **settings).result()


def start(
    client: ConnectedClient,
    arguments: Mapping[str, Any] | None = None,
    on_progress: Callable[[Any], None] | None = None,
    **settings: Unpack[CallSettings],
) -> Pending:
    """Call a tool, without waiting for its result."""
    params = {"name": "tool", "arguments": dict(arguments or {})}
    return client.start("tools/call", params, on_progress=on_progress, **settings)


def notified(events: Iterator[ClientEvent], count: int) -> list[Params]:
    """Return the parameters of the next notifications; skip other events."""
    found = (each.notification for each in events if isinstance(each, ServerNotified))
    return [each.params or {} for each in itertools.islice(found, count)]


def until(client: ConnectedClient, condition: Callable[[], object], what: str) -> None:
    """Run a client until ``condition()`` is true."""
    step = 0.005
    for _ in range(int(MOMENT / step)):
        if condition():
            return
        client.work(step)
    raise Broken(f"not within {MOMENT:g} s: {what}")
