"""A network between client and servers that a test can cut or silence."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import attrs


@attrs.define(eq=False)
class _Link:
    """One connection that is passed on."""

    client: socket.socket
    server: socket.socket
    is_silent: bool = False
    is_held: bool = False
    """True if the response to a call is held back."""
    left: float = math.inf
    """Bytes that it still carries, in both directions together."""

    def cut(self) -> None:
        """Break both directions."""
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@attrs.define(eq=False)
class Network:
    """Passes connections on to one server at a time, or to several in turn."""

    port: int
    """Where new connections go."""
    other_ports: tuple[int, ...] = ()
    """Where they go as well, in turn."""
    _carried: Callable[[], float] = attrs.field(default=lambda: math.inf, init=False)
    """Returns how many bytes the next connection carries before it breaks."""
    connections: int = attrs.field(default=0, init=False)
    """How many have been passed on."""
    breaks: int = attrs.field(default=0, init=False)
    """How many broke after the bytes that they carry."""
    carried: int = attrs.field(default=0, init=False)
    """The bytes that have been passed on, in both directions together."""
    carries_an_event: bool = attrs.field(default=False, init=False)
    """A server has sent an event with an id."""
    holds_responses: bool = attrs.field(default=False, init=False)
    """True if no byte of the response to a call is passed on."""
    _links: list[_Link] = attrs.field(factory=list[_Link], init=False)
    _threads: list[threading.Thread] = attrs.field(factory=list[threading.Thread], init=False)

    def break_each_after(self, carried: Callable[[], float]) -> None:
        """Let each connection, also those that there are, break after the bytes that it returns."""
        self._carried = carried
        for link in self._links:
            link.left = carried()

    def cut(self) -> None:
        """Break all connections that there are; new ones are passed on, with all responses."""
        self.holds_responses = False
        for link in self._links:
            link.cut()

    def silence(self) -> None:
        """Carry nothing more on the connections that there are, which stay open."""
        for link in self._links:
            link.is_silent = True

    def run(self, listener: socket.socket) -> None:
        """Pass connections on until the listener is shut down, then break and close all."""
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    ports = (self.port, *self.other_ports)
                    port = ports[self.connections % len(ports)]
                    server = socket.create_connection(("127.0.0.1", port))
                except OSError:  # the server is being replaced
                    client.close()
                    continue
                link = _Link(client, server, left=self._carried())
                self._links.append(link)
                self.connections += 1
                for ends in ((client, server), (server, client)):
                    thread = threading.Thread(target=self._copy, args=(link, *ends), daemon=True)
                    thread.start()
                    self._threads.append(thread)
        self.cut()
        for thread in self._threads:
            thread.join()
        for link in self._links:
            link.client.close()
            link.server.close()

    def _copy(self, link: _Link, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # one end is closed: so is the connection
            while data := source.recv(65536):
                link.is_held |= self.holds_responses and b'"tools/call"' in data
                is_response = source is link.server
                if len(data) > link.left:
                    self.breaks += 1
                    sink.sendall(data[: int(link.left)])
                    break
                link.left -= len(data)
                self.carried += len(data)
                if not link.is_silent and not (is_response and link.is_held):
                    sink.sendall(data)
                    self.carries_an_event |= b"\nid:" in data
        if not link.is_silent:
            link.cut()


@contextmanager
def network(port: int, *other_ports: int) -> Generator[tuple[Network, str], None, None]:
    """Run a network in a thread; gives it and the origin that clients connect to."""
    between = Network(port, other_ports)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = threading.Thread(target=between.run, args=(listener,), daemon=True)
        running.start()
        try:
            yield between, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            running.join()
