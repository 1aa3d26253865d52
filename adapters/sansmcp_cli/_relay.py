"""A network that can be told to break connections."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

import attrs


@attrs.define
class _Life:
    """How many bytes a connection has left."""

    left: int


def _ignore(line: str) -> None:
    pass


@attrs.define(eq=False)
class Relay:
    """Passes connections on to servers, and once it is told to, breaks them after a while."""

    _ports: Iterator[int]
    """Where the next connection goes, for ever."""
    _chance: random.Random = attrs.field(factory=random.Random)
    _longest_life: int = 1500
    """Bytes that a connection carries at most."""
    _say: Callable[[str], None] = _ignore
    is_failing: bool = attrs.field(default=False, init=False)

    def run(self, listener: socket.socket) -> None:
        """Pass connections on until the listener is shut down."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", next(self._ports)))
                life = _Life(self._chance.randint(300, self._longest_life))
                for source, sink in ((client, server), (server, client)):
                    arguments = (source, sink, life)
                    threading.Thread(target=self._copy, args=arguments, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, life: _Life) -> None:
        with suppress(OSError):  # one end is gone: so is the connection
            while data := source.recv(65536):
                passed = data[: life.left] if self.is_failing else data
                life.left -= len(passed) if self.is_failing else 0
                sink.sendall(passed)
                if self.is_failing and not life.left:
                    self._say("network: a connection breaks")
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


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
