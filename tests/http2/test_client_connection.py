"""The client's end of HTTP/2: exchanges are streams of one connection."""

from __future__ import annotations

from collections import defaultdict

import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, Event, RequestReceived, StreamReset
from h2.settings import SettingCodes

from sansmcp import BodyData, BodyEnd, ConnectionLost, Limits, RequestHead, ResponseHead
from sansmcp.effects import OpenExchange
from sansmcp.http import Unsent
from sansmcp.http2.client_connection import ClientConnection

from .harness import frame, h2_peer

OK = [(":status", "200"), ("content-type", "application/json")]


def exchange_of(exchange: int, body: bytes = b"", **headers: str) -> OpenExchange:
    """The effect of a client that opens an exchange."""
    head = RequestHead(
        method=b"POST" if body else b"GET",
        target=b"/mcp",
        headers=tuple((name.encode(), value.encode()) for name, value in headers.items()),
    )
    return OpenExchange(exchange=exchange, url="http://localhost/mcp", head=head, body=body)


class ClientHarness:
    """A connection of a client, and a server of h2."""

    def __init__(self, **settings: int) -> None:
        self.connection = ClientConnection(Limits())
        self.peer: H2Connection = h2_peer(is_client=False, **settings)
        self.parts: dict[int, list[object]] = defaultdict(list)
        self.seen: list[Event] = []
        self.sent = b""
        self.now = 0.0

    def begin(self, exchange: int, body: bytes = b"", **more: str) -> None:
        self.connection.begin(exchange_of(exchange, body, **more))
        self.turn()

    def turn(self) -> None:
        """Exchange bytes until nothing moves."""
        while data := self.connection.data_to_send():
            self.sent += data
            self.seen += self.peer.receive_data(data)
            self.feed(self.peer.data_to_send())

    def feed(self, data: bytes) -> None:
        self.connection.receive_data(data, now=self.now)
        while (found := self.connection.next_part()) is not None:
            exchange, part = found
            self.parts[exchange].append(part)

    def flush(self) -> None:
        self.feed(self.peer.data_to_send())
        self.turn()

    def respond(self, stream: int, body: bytes = b"{}") -> None:
        self.peer.send_headers(stream, OK)
        self.peer.send_data(stream, body, end_stream=True)
        self.flush()

    @property
    def requests(self) -> list[RequestReceived]:
        return [event for event in self.seen if isinstance(event, RequestReceived)]

    @property
    def resets(self) -> list[tuple[int | None, int]]:
        return [
            (event.stream_id, int(event.error_code or 0))
            for event in self.seen
            if isinstance(event, StreamReset)
        ]


@pytest.fixture
def harness() -> ClientHarness:
    return ClientHarness()


def test_exchanges_are_streams(harness: ClientHarness) -> None:
    harness.begin(5, b"[1]", accept="x/y", connection="close", host="elsewhere")
    harness.begin(6)
    first, second = harness.requests
    assert first.headers == [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":authority", b"localhost"),
        (b":path", b"/mcp"),
        (b"accept", b"x/y"),
        (b"content-length", b"3"),
    ]
    assert (b":method", b"GET") in (second.headers or ())
    harness.respond(3)
    harness.respond(1)
    head = ResponseHead(status=200, headers=((b"content-type", b"application/json"),))
    assert harness.parts == {n: [head, BodyData(b"{}"), BodyEnd()] for n in (5, 6)}
    assert harness.connection.failure is None


def test_an_aborted_exchange_resets_its_stream_and_no_other(harness: ClientHarness) -> None:
    harness.begin(1, b"[1]")
    harness.begin(2, b"[2]")
    harness.connection.abort(1)
    harness.connection.abort(1)
    harness.connection.abort(7)
    harness.peer.send_headers(1, OK)  # it was under way
    harness.peer.send_data(1, b"x")
    harness.peer.increment_flow_control_window(5, 1)
    harness.feed(harness.peer.data_to_send())
    harness.turn()
    assert harness.resets[0] == (1, ErrorCodes.CANCEL)
    harness.respond(3)
    assert [*harness.parts] == [2]


def test_the_server_decides_how_many_streams_there_are() -> None:
    harness = ClientHarness(MAX_CONCURRENT_STREAMS=2)
    for exchange in range(1, 6):
        harness.begin(exchange)
    assert len(harness.requests) == 2
    harness.respond(1)
    assert len(harness.requests) == 3
    harness.connection.abort(4)  # it waits
    harness.connection.abort(2)
    harness.turn()
    assert len(harness.requests) == 4
    harness.peer.reset_stream(5)
    harness.flush()
    assert len(harness.requests) == 4
    harness.respond(7)
    assert [type(parts[-1]) for parts in harness.parts.values()] == [
        BodyEnd,
        ConnectionLost,
        BodyEnd,
    ]


def test_before_the_server_has_said_how_many_there_are_a_hundred() -> None:
    harness = ClientHarness()
    peer_speaks = harness.peer.data_to_send()
    for exchange in range(150):
        harness.connection.begin(exchange_of(exchange))
    harness.seen += harness.peer.receive_data(harness.connection.data_to_send())
    assert len(harness.requests) == 100
    harness.peer.local_settings.update({SettingCodes.MAX_CONCURRENT_STREAMS: 1000})
    harness.peer.local_settings.acknowledge()
    harness.feed(peer_speaks)
    harness.turn()
    assert len(harness.requests) == 150


def test_a_large_request_waits_for_room() -> None:
    harness = ClientHarness(window=1000)
    harness.turn()
    harness.begin(1, b"x" * 3000)
    harness.begin(2, b"y" * 10)

    def received() -> int:
        sizes = (
            len(event.data or b"") for event in harness.seen if isinstance(event, DataReceived)
        )
        return sum(sizes)

    assert received() == 1010
    harness.peer.increment_flow_control_window(500, 1)
    harness.flush()
    assert received() == 1510
    harness.peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 70_000})
    harness.flush()
    assert received() == 3010
    harness.begin(3, b"z" * 70_000)
    assert received() == 65_535  # that of the connection
    harness.peer.increment_flow_control_window(70_000)
    harness.flush()
    assert received() == 73_010


def test_a_response_before_the_end_of_the_request_ends_it() -> None:
    harness = ClientHarness(window=1000)
    harness.turn()
    harness.begin(1, b"x" * 3000)
    harness.respond(1)
    assert harness.parts[1][-1] == BodyEnd()
    assert harness.resets == [(1, ErrorCodes.NO_ERROR)]
    harness.peer.increment_flow_control_window(5000)
    harness.flush()
    assert harness.connection.failure is None


def test_a_large_response_opens_the_window_again(harness: ClientHarness) -> None:
    harness.begin(1)
    harness.peer.send_headers(1, OK)
    for _ in range(200):
        harness.peer.send_data(1, b"x" * 16_000)
        harness.flush()
    harness.peer.send_data(1, b"", end_stream=True)
    harness.flush()
    data = [part.data for part in harness.parts[1] if isinstance(part, BodyData)]
    assert len(b"".join(data)) == 3_200_000
    assert harness.parts[1][-1] == BodyEnd()


@pytest.mark.parametrize(
    ("code", "unsent"),
    [
        (ErrorCodes.REFUSED_STREAM, Unsent.REFUSED),
        (ErrorCodes.INTERNAL_ERROR, None),
        (0x1234, None),
    ],
)
def test_a_stream_that_the_server_resets_is_lost(
    harness: ClientHarness, code: int, unsent: Unsent | None
) -> None:
    harness.begin(1)
    harness.peer.reset_stream(1, code)
    harness.flush()
    (lost,) = harness.parts[1]
    assert isinstance(lost, ConnectionLost)
    assert lost.unsent is unsent
    assert str(getattr(code, "name", code)) in lost.reason


def test_interim_responses_and_trailers_are_skipped(harness: ClientHarness) -> None:
    harness.begin(1)
    harness.peer.send_headers(1, [(":status", "103"), ("link", "x")])
    harness.peer.send_headers(1, OK)
    harness.peer.send_data(1, b"{}")
    harness.peer.send_headers(1, [("x-checksum", "5")], end_stream=True)
    harness.flush()
    assert [type(part) for part in harness.parts[1]] == [ResponseHead, BodyData, BodyEnd]


def test_goaway_lets_what_the_server_handles_end_and_opens_nothing() -> None:
    harness = ClientHarness(MAX_CONCURRENT_STREAMS=2)
    for exchange in (1, 2, 3):
        harness.begin(exchange)
    harness.feed(frame(0x7, b"\0\0\0\x01\0\0\0\0"))
    for exchange in (2, 3):
        (lost,) = harness.parts[exchange]
        assert isinstance(lost, ConnectionLost)
        assert lost.unsent is Unsent.PERMANENT
        assert "going away (NO_ERROR)" in lost.reason
    harness.begin(4)
    harness.feed(b"")
    assert isinstance(harness.parts[4][0], ConnectionLost)
    harness.respond(1)
    assert harness.parts[1][-1] == BodyEnd()


def test_a_client_that_closes_says_so(harness: ClientHarness) -> None:
    harness.turn()
    harness.connection.close()
    assert harness.connection.data_to_send() == frame(0x7, b"\0" * 8)
    harness.begin(1)
    harness.feed(b"")
    assert isinstance(harness.parts[1][0], ConnectionLost)


def test_a_connection_can_run_out_of_streams(
    harness: ClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(H2Connection, "HIGHEST_ALLOWED_STREAM_ID", 1)
    harness.begin(1)
    harness.begin(2)
    harness.feed(b"")
    (lost,) = harness.parts[2]
    assert isinstance(lost, ConnectionLost)
    assert lost.unsent is Unsent.PERMANENT
    harness.respond(1)
    assert harness.parts[1][-1] == BodyEnd()


# What is no response


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}\n', "speaks stdio"),
        (b"  [1]\n", "speaks stdio"),
        (b"Listening on port 8000\n", "Listening on port 8000"),
        (b"x" * 70_000, "xxx"),
        (b"\0\0\0\x06\0\0\0\0\0\n", "instead of HTTP/2"),
        (b"\0\0\0\x04\0\0\0\0\x01\n", "instead of HTTP/2"),
    ],
)
def test_a_server_of_something_else_is_named(
    harness: ClientHarness, data: bytes, text: str
) -> None:
    for start in range(0, len(data), 1000):
        harness.feed(data[start : start + 1000])
    failure = harness.connection.failure
    assert failure is not None
    assert failure.reason == "not_http2"
    assert text in failure.message
    harness.feed(b"what comes now is discarded")
    harness.begin(2)
    harness.feed(b"")
    assert harness.connection.next_part() is None


def test_nothing_is_decided_by_a_part_of_the_first_frame(harness: ClientHarness) -> None:
    for each in harness.peer.data_to_send():
        harness.feed(bytes((each,)))
    assert harness.connection.failure is None


def test_a_server_that_prints_later_is_quoted(harness: ClientHarness) -> None:
    harness.begin(1)
    harness.feed(b"Done with everything\n")
    failure = harness.connection.failure
    assert failure is not None
    assert failure.reason == "malformed_http2"
    assert "'Done with'" in failure.message
    harness.connection.abort(1)
    harness.begin(2)
    harness.turn()
    assert frame(0x7, b"\0\0\0\0\0\0\0\x01") in harness.sent


@pytest.mark.parametrize(
    "data",
    [
        frame(0x5, b"\0\0\0\x02\x88", flags=0x4, stream=1),  # PUSH_PROMISE
        frame(0x1, b"\x48\x03abc", flags=0x4, stream=1),  # :status: abc
        frame(0x1, b"\xff\xff", flags=0x4, stream=1),
        frame(0x8, b"\0\0\0\0", stream=1),
        frame(0x0, b"x", stream=1),  # before the head
    ],
)
def test_what_breaks_http2_ends_the_connection(harness: ClientHarness, data: bytes) -> None:
    harness.begin(1)
    harness.feed(data)
    failure = harness.connection.failure
    assert failure is not None
    assert failure.reason == "malformed_http2"
    assert not harness.parts[1]


def test_a_flood_of_interim_responses_ends_the_connection(harness: ClientHarness) -> None:
    harness.begin(1)
    for _ in range(2500):
        harness.peer.send_headers(1, [(":status", "103")])
    harness.feed(harness.peer.data_to_send())
    failure = harness.connection.failure
    assert failure is not None
    assert failure.reason == "http2_flood"
    assert b"\0\0\0\x0b" in harness.connection.data_to_send()
