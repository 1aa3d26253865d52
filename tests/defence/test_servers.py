"""Servers survive whatever their machine raises, and so do all other connections."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

import sansmcp
from sansmcp import Server, ServerConnection
from sansmcp.http import RequestHead
from sansmcp.server.calls import RunningCall
from sansmcp.types import Self
from sansmcp_pytest import ServerUnderTest
from sansmcp_pytest._checks.check import MOMENT, Broken
from sansmcp_pytest._checks.raw_client import RawPeer
from sansmcp_pytest._checks.servers import LEGACY, MODERN, serving

from ..asgi.conftest import Host as AsgiHost
from ..asgi.test_check_adapter import AsgiServers
from ..asyncio.adapter_under_test import AsyncioServers
from ..blocking.adapter_under_test import BlockingServers
from ..trio.adapter_under_test import TrioServers
from ..wsgi.conftest import Host as WsgiHost
from ..wsgi.test_check_adapter import WsgiServers
from .plants import MARK, Plant, of_victims, public_names

Make = Callable[[], ServerUnderTest]

OWN: dict[str, Make] = {
    "asyncio": lambda: AsyncioServers("asyncio"),
    "uvloop": lambda: AsyncioServers("uvloop"),
    "trio": TrioServers,
    "blocking": BlockingServers,
}
HOSTED: dict[str, Make] = {
    "uvicorn": lambda: AsgiServers(AsgiHost("uvicorn")),
    "hypercorn-trio": lambda: AsgiServers(AsgiHost("hypercorn-trio")),
    "waitress": lambda: WsgiServers(WsgiHost("waitress")),
}

OFTEN = ("receive_part", "receive_data", "next_effect", "next_effect_of", "next_event", "drive")
OF_AN_EXCHANGE = (
    *("open_exchange", "receive_part", "receive_body", "refuse", "next_effect_of"),
    "next_response_of",
)
AT_THE_END = ("drain", "shut_down", "is_busy")
HIT = {
    f"{name} (1)"
    for name in (
        "Server.drive",
        "Server.next_deadline",
        "Server.next_effect",
        "Server.next_effect_of",
        "Server.next_event",
        "Server.receive_part",
        "Server.append_completed",
        "Server.perform_store_effect",
        "RunningCall.respond_exception",
        "RunningCall.progress",
        "RunningCall.respond",
    )
}
"""What is planted for nothing if it is not used."""
HIT_OF_OWN_HTTP = {
    f"ServerConnection.{name} (1)"
    for name in (
        "connection_lost",
        "handle_timeout",
        "next_deadline",
        "next_effect",
        "receive_data",
        "receive_eof",
    )
}
SETTINGS: dict[str, Any] = {
    "limits": sansmcp.Limits(head_timeout=0.05, stream_comment_interval=0.05, send_timeout=MOMENT),
    "stream_after": 0.0,
}


class Bystander:
    """Calls all the time, on connections of its own, and is answered."""

    def __init__(self, url: str, requests: int) -> None:
        """``requests``: how many it makes on one connection."""
        self._requests = requests
        self._is_over = threading.Event()
        self._moved = threading.Condition()
        self._answered = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._call, args=(url,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def _call_on_one_connection(self, peer: RawPeer) -> None:
        connection = peer.connect()
        for _ in range(self._requests):
            if self._is_over.wait(0.002):
                return
            assert peer.call("echo", {"a": 1}, connection) == {"echo": {"a": 1}}
            with self._moved:
                self._answered += 1
                self._moved.notify_all()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(MOMENT)

    def is_answered(self) -> None:
        """Wait for two more answers, of which one was asked for from now on."""
        with self._moved:
            wanted = self._answered + 2
            self._moved.wait_for(lambda: self._answered >= wanted or self.failure, MOMENT)
            assert self.failure is None, self.failure
            assert self._answered >= wanted, "the bystander is not answered any more"

    def _call(self, url: str) -> None:
        try:
            while not self._is_over.is_set():
                with RawPeer(url, MODERN) as peer:
                    self._call_on_one_connection(peer)
        except BaseException as failure:
            with self._moved:
                self.failure = failure
                self._moved.notify_all()


@contextlib.contextmanager
def armed_by_the_victim(plant: Plant) -> Generator[None]:
    """Arm it when the victim's bytes, or its head, are fed to a machine."""

    def receive_data(self: ServerConnection, data: bytes, *, now: float) -> None:
        if MARK in data:
            plant.arm(self, self.exchange)
        feed_bytes(self, data, now=now)

    def receive(self: Server, exchange: Any, part: Any, *, now: float) -> None:
        if isinstance(part, RequestHead) and part.values(MARK):
            plant.arm(exchange)
        feed_part(self, exchange, part, now=now)

    with plant.sown(), pytest.MonkeyPatch.context() as patch:
        feed_bytes, feed_part = ServerConnection.receive_data, Server.receive_part
        patch.setattr(ServerConnection, "receive_data", receive_data)
        patch.setattr(Server, "receive_part", receive)
        yield


def marked(request: bytes) -> bytes:
    head, _, rest = request.partition(b"\r\n")
    return head + b"\r\n" + MARK + b": 1\r\n" + rest


def suffer(running: Any, *, has_own_http: bool) -> None:
    """What the victim does; it may be refused, or cut off, but never be left waiting."""
    for version, tool in ((LEGACY, "count"), (MODERN, "raise")):
        with (
            contextlib.suppress(ConnectionError, ValueError, Broken, KeyError),
            RawPeer(running.url, version) as peer,
        ):
            connection = peer.connect()
            connection.send(marked(peer.tool(tool, {"to": 3})))
            list(connection.response().pieces())
    with RawPeer(running.url, MODERN) as peer:
        if has_own_http:
            connection = peer.connect()
            connection.send(marked(peer.tool("hang"))[:60])
            with contextlib.suppress(ConnectionError, Broken):
                connection.response()
        leaving = peer.connect()
        leaving.send(marked(peer.tool("wait")))
        leaving.reset()


def plants(kinds: tuple[type[Any], ...]) -> Iterator[Plant]:
    for kind in kinds:
        for name in public_names(kind):
            if name not in AT_THE_END:
                yield Plant(kind, name, 1, _counting(kind, name))
        if kind is not RunningCall:
            names = [name for name in OFTEN if hasattr(kind, name)]
            yield from (Plant(kind, name, 2, _counting(kind, name)) for name in names)


def _counting(kind: type[Any], name: str) -> Callable[[Plant, Any], bool]:
    if kind is RunningCall:
        return lambda _, arguments: arguments[0].request.params["name"] != "echo"
    if kind is ServerConnection or name in OF_AN_EXCHANGE:
        return of_victims
    return lambda plant, arguments: True


@pytest.mark.parametrize("name", [*OWN, *HOSTED])
def test_an_exception_costs_one_connection(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Planted at each public method of the machines, one at a time."""
    subject = {**OWN, **HOSTED}[name]()
    kinds = (Server, ServerConnection, RunningCall) if name in OWN else (Server, RunningCall)
    hit: set[str] = set()
    with (
        serving(subject, **SETTINGS) as (tools, running),
        # Some hosts close a connection after a stream, or after so many requests.
        Bystander(running.url, 1_000_000 if name in OWN else 1) as bystander,
    ):
        tools.go_on.set()
        for plant in plants(kinds):
            with armed_by_the_victim(plant):
                suffer(running, has_own_http=name in OWN)
                bystander.is_answered()
            if plant.has_raised:
                hit.add(str(plant))
        bystander.is_answered()
    wanted = {*HIT, *HIT_OF_OWN_HTTP} if name in OWN else HIT
    assert wanted - hit == set()
    logged = (
        "Server.receive_part" if name in OWN else "Server.drive"
    )  # the other host logs the rest
    assert f"Planted: planted in {logged} (1)" in caplog.text


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("method", AT_THE_END)
def test_a_server_stops_nevertheless(name: str, method: str) -> None:
    with serving(OWN[name](), **SETTINGS) as (_, running), RawPeer(running.url, LEGACY) as peer:
        peer.get()
        plant = Plant(Server, method, 1)
        plant.arm()
        with plant.sown():
            running.stop()
    assert plant.has_raised
