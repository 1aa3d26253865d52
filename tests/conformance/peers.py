"""Who is examined: our fixtures on one of the adapters, or software of others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

_ROOT = Path(__file__).resolve().parents[2]
_FIXTURE = (sys.executable, "-m", f"{__package__}.fixture")

BOTH = ("server", "client")
ADAPTERS = {
    "trio": BOTH,
    "asyncio": BOTH,
    "bridge": ("server",),
    "blocking": BOTH,
    "asgi": ("server",),
    "wsgi": ("server",),
    "httpx": ("client",),
}
"""Our adapters, and what each of them can be.

The blocking client on httpx is not there: it has no standalone stream, on which one scenario asks.
"""

CANNOT: Mapping[str, frozenset[str]] = {
    "bridge": frozenset(("server-sse-polling", "tasks-required-task-error")),
}
"""Scenarios that a peer cannot pass: a bridge has its own event streams, so a poll that the server
behind it begins ends there; and it follows tasks itself, so that clients which cannot get a result.
"""


@attrs.frozen
class Peer:
    """How the suite reaches a server, or runs a client; None where there is none."""

    name: str
    url: str | None
    command: str | None

    def reached(self, leg: str) -> tuple[str, ...] | None:
        """The suite's words for it; None if this peer has no such side."""
        if leg == "server":
            return None if self.url is None else ("--url", self.url)
        return None if self.command is None else ("--command", self.command, "--timeout", "60000")


@contextmanager
def adapter(name: str) -> Generator[Peer, None, None]:
    """Our fixtures on an adapter. Raises RuntimeError if its server does not start."""
    legs = ADAPTERS[name]
    # The suite runs this in a shell: without exec it could stop nothing but the shell.
    command = " ".join(("exec", *_FIXTURE, "client", name)) if "client" in legs else None
    if "server" not in legs:
        yield Peer(name, None, command)
        return
    with subprocess.Popen(
        [*_FIXTURE, "server", name], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"The server on {name} has not started")
            yield Peer(name, url, command)
        finally:
            server.kill()
