"""A network that can be told to break connections.

It breaks them in the middle of responses. Whoever breaks a connection before the first event id has
come through leaves a client that cannot know whether the server got its request: no protocol can
repeat such a call safely. So unless calls may be repeated, only what can be resumed is broken.
"""

from __future__ import annotations

import random
import re
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

import attrs

_EVENT_WITH_ID = re.compile(rb"\nid: [^\n]*\n(?:[^\n]+\n)*\n")


@attrs.define
class _Link:
    """One connection, and its fate."""

    client: socket.socket
    server: socket.socket
    left: int
    """Bytes that it still carries."""
    breaks_anywhere: bool
    _response: bytes = b""
    """What has come since the last request, until it can be resumed."""
    can_resume: bool = False

    def requested(self, data: bytes) -> None:
        """Part of a request has come."""
        self._response, self.can_resume = b"", self.breaks_anywhere or data.startswith(b"GET ")

    def responded(self, data: bytes) -> None:
        """Part of a response is passed on."""
        if not self.can_resume:
            self._response += data
            self.can_resume = _EVENT_WITH_ID.search(self._response) is not None

    def share(self, data: bytes) -> bytes:
        """How much of a response goes through; less than all if the connection is to break."""
        share = data[: max(self.left, 0)] if self.can_resume else data
        self.left -= len(share)
        return share

    def close(self) -> None:
        """Let both ends see that it is gone."""
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _ignore(line: str) -> None:
    pass


@attrs.define(eq=False)
class Relay:
    """Passes connections on to servers, and once it is told to, breaks them after a while."""

    _ports: Iterator[int]
    """Where the next connection goes, for ever."""
    _chance: random.Random = attrs.field(factory=random.Random)
    _longest_life: int = 1500
    """Bytes that a connection carries at most before it is broken."""
    _breaks_anywhere: bool = False
    """All calls may be repeated."""
    _say: Callable[[str], None] = _ignore
    is_failing: bool = attrs.field(default=False, init=False)

    def run(self, listener: socket.socket) -> None:
        """Pass connections on until the listener is shut down."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", next(self._ports)))
                life = self._chance.randint(300, self._longest_life)
                link = _Link(client, server, life, self._breaks_anywhere)
                for copy in (self._copy_requests, self._copy_responses):
                    threading.Thread(target=copy, args=(link,), daemon=True).start()

    def _copy_requests(self, link: _Link) -> None:
        with suppress(OSError):  # one end is gone: so is the connection
            while data := link.client.recv(65536):
                link.requested(data)
                link.server.sendall(data)
        link.close()
        link.client.close()

    def _copy_responses(self, link: _Link) -> None:
        with suppress(OSError):
            while data := link.server.recv(65536):
                share = link.share(data) if self.is_failing else data
                # Noted before it is sent: the client may answer with its next request at once.
                link.responded(share)
                link.client.sendall(share)
                if len(share) < len(data):
                    self._say("network: a connection breaks")
                    break
        link.close()
        link.server.close()


@contextmanager
def relaying(relay: Relay) -> Generator[str, None, None]:
    """Run a relay in a thread; gives the URL of the servers behind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = threading.Thread(target=relay.run, args=(listener,), daemon=True)
        running.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            running.join()
