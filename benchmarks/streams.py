"""Compare servers that say much to one reader: ``python -m benchmarks.streams [events]``.

Each server is a process (:mod:`.speakers`), and the reader does nothing but count blank lines. What
counts is the processor time that the server takes for an event: of the response to a call, and of
a standalone stream. At 2025-11-25 ours store each event before they send it; "not resumable" do
not. At 2026-07-28 nobody stores anything.

A call that reports every 2 ms shows what a lone event costs, and how long it takes from before the
report until the reader has it.
"""

from __future__ import annotations

import re
import socket
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from . import plot
from .measuring import (
    LEGACY,
    MODERN,
    Cost,
    Costs,
    Process,
    Skipped,
    check_time,
    clocks,
    column_of,
    in_rounds,
    line_from,
    skip,
    started,
    table,
    wanted,
)
from .requests import get, handshake, message, post
from .speakers import SPEAKERS

CALL, STANDALONE, LONE = "of a call", "of a standalone stream", "every 2 ms"

_SENT_AT = re.compile(rb"at ([0-9]+\.[0-9]{6})\.")
_MARK = b'"jsonrpc"'
"""What each message has once."""


class Reader:
    """A client of one server, with a new connection for each call: servers close idle ones."""

    def __init__(self, url: str, version: str) -> None:
        self._port = urlsplit(url).port or 0
        self._version, self._session = version, ""
        if version == LEGACY:
            self._shake_hands()

    def say(self, events: int) -> None:
        """Have a call say so much, and read it all."""
        with self._connect() as connection:
            self._call(connection, "say", events)
            read_messages(connection, events + 1)

    def pace(self, events: int) -> list[float]:
        """Have a call report every 2 ms. Gives the seconds that each report took."""
        delays: list[float] = []
        with self._connect() as connection:
            self._call(connection, "pace", events)
            data = b""
            while b'"result"' not in data:
                data += received(connection)
                now = time.monotonic()
                while found := _SENT_AT.search(data):
                    delays.append(now - float(found[1]))
                    data = data[found.end() :]
        return delays

    def listen(self, stack: ExitStack) -> Callable[[int], None]:
        """Open a standalone stream; gives what has so much said on it, and reads it all."""
        listening = stack.enter_context(self._connect())
        if self._version == MODERN:
            wanted = {"notifications": {"toolsListChanged": True}}
            self._post(listening, message("subscriptions/listen", wanted))
            read_messages(listening, 1)  # that it is heard
        else:
            listening.sendall(get(self._port, self._session))
            received(listening)

        def publish(events: int) -> None:
            with self._connect() as connection:
                self._call(connection, "publish", events)
                read_messages(listening, events)
                read_messages(connection, 1)

        return publish

    def _shake_hands(self) -> None:
        initialize, initialized = handshake()
        with self._connect() as connection:
            self._post(connection, initialize)
            response = b""
            while _MARK not in response:
                response += received(connection)
            found = response.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0]
            self._session = found.decode()
            self._post(connection, initialized)
            received(connection)

    def _call(self, connection: socket.socket, tool: str, events: int) -> None:
        params = {"name": tool, "arguments": {"events": events}, "_meta": {"progressToken": 1}}
        self._post(connection, message("tools/call", params, self._version))

    def _post(self, connection: socket.socket, sent: dict[str, Any]) -> None:
        connection.sendall(post(sent, self._port, self._version, self._session))

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), 10)


def received(connection: socket.socket) -> bytes:
    """What has come. Raises Skipped if nothing comes any more."""
    data = connection.recv(65536)
    if not data:
        raise Skipped("wrong: it closed a connection of which more was expected")
    return data


def read_messages(connection: socket.socket, count: int) -> None:
    """Read until so many messages have come."""
    data = b""
    while count:
        data = data[-len(_MARK) + 1 :] + received(connection)
        count -= data.count(_MARK)


def timed(process: Process, read: Callable[[int], None], events: int) -> Cost:
    """What a server takes for an event."""
    read(events // 10)
    with clocks(process) as cost:
        read(events)
        return cost(events)


def paced(process: Process, reader: Reader, events: int, delays: list[float]) -> Cost:
    """What a server takes for an event that comes alone. Adds how long each took."""
    reader.pace(events // 10)
    with clocks(process) as cost:
        delays += reader.pace(events)
        return cost(events)


def shown(delays: dict[str, list[float]]) -> str:
    """A table of the delays."""
    lines = ["| an event every 2 ms: µs until the reader has it | p50 | p99 |", "|---|---|---|"]
    for name, seconds in delays.items():
        if len(seconds) > 1:
            places = statistics.quantiles(seconds, n=100)
            lines.append(f"| {name} | {1e6 * places[49]:.0f} | {1e6 * places[98]:.0f} |")
    return "\n".join(lines)


def measure(events: int, delays: dict[str, list[float]]) -> dict[str, Costs]:
    """The costs of each server, by ``"row: column"``, and the delays of lone events."""
    with ExitStack() as stack:
        measures: dict[str, Callable[[], Cost]] = {}
        for name, version in ((n, v) for n in wanted(SPEAKERS) for v in SPEAKERS[n][1]):
            row = name if name.startswith("bare") else f"{name}, {version}"
            try:
                check_time()
                process = stack.enter_context(started("speakers", name))
                reader = Reader(line_from(process), version)
            except (Skipped, OSError) as reason:
                skip(row, reason)
                continue
            measures[f"{row}: {CALL}"] = partial(timed, process, reader.say, events)
            if name != "mcp":
                every = delays.setdefault(row, [])
                count = max(events // 20, 10)
                measures[f"{row}: {LONE}"] = partial(paced, process, reader, count, every)
            if name.startswith("sansmcp"):
                listening = reader.listen(stack)
                measures[f"{row}: {STANDALONE}"] = partial(timed, process, listening, events)
        return in_rounds(measures)


def main(events: int) -> None:
    """Measure, print what came out, and plot it."""
    delays: dict[str, list[float]] = {}
    costs = measure(events, delays)
    columns = (CALL, STANDALONE, LONE)
    print(table("server: µs for an event, least / median / spread (rate)", costs, columns))
    print(f"\n{shown(delays)}")
    micros = column_of(costs, CALL)
    plot.write("streams", "An event to a reader", "µs of the server's processor", micros, "sansmcp")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
