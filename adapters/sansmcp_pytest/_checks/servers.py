"""Helpers of the checks of servers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sansmcp.types import Unpack

from .adapter_under_test import Running, ServerUnderTest, SubjectSettings
from .check import MOMENT, expect
from .raw_client import RawPeer
from .tools import Tools

LEGACY, MODERN, OLDEST = "2025-11-25", "2026-07-28", "2024-11-05"
"""A revision with sessions, one without, and the one of HTTP+SSE."""


@contextmanager
def serving(
    subject: ServerUnderTest,
    *,
    graceful_timeout: float = 1.0,
    unix: str | None = None,
    **settings: Unpack[SubjectSettings],
) -> Generator[tuple[Tools, Running]]:
    """Run a server of the subject within the block."""
    tools = Tools(subject)
    if unix is None:
        running = subject.serve(tools.app, graceful_timeout=graceful_timeout, **settings)
    else:
        running = subject.serve(tools.app, graceful_timeout=graceful_timeout, unix=unix, **settings)
    try:
        yield tools, running
    finally:
        tools.over.set()
        running.stop()


def begun(tools: Tools, count: int = 1) -> None:
    """Wait until ``count`` handlers wait."""
    for _ in range(count):
        expect(tools.begun.acquire(timeout=MOMENT), f"no handler began within {MOMENT:g} s")


def alive(running: Running) -> None:
    """Raise Broken unless the server still responds to a call."""
    with RawPeer(running.url, MODERN) as peer:
        found = peer.call("echo", {"a": 1})
        expect(found == {"echo": {"a": 1}}, f"the server does not respond as before: {found}")
