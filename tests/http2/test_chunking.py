"""However the bytes of a connection are cut, what follows is the same."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Limits
from sansmcp.http2.client_connection import ClientConnection

from ..server.modern.harness import modern
from .harness import ServerHarness, body_of, frame, h2_peer, request_headers
from .test_client_connection import OK, ClientHarness, exchange_of


def conversation() -> bytes:
    """Requests of a client, one of them reset, and settings between them."""
    peer = h2_peer(is_client=True)
    for number in (1, 3, 5):
        peer.send_headers(number, request_headers(modern(number)))
        body = body_of(modern(number))
        peer.send_data(number, body[:20])
        peer.ping(b"12345678")
        peer.send_data(number, body[20:], end_stream=True)
    peer.reset_stream(3, 8)
    peer.send_headers(7, [*request_headers(b""), ("x", "y" * 3000)], end_stream=True)
    return bytes(peer.data_to_send())


def responses() -> bytes:
    """Responses of a server to three requests, one of which it resets."""
    harness = ClientHarness()
    for exchange in (1, 2, 3):
        harness.begin(exchange)
    harness.peer.clear_outbound_data_buffer()
    first = h2_peer(is_client=False).data_to_send()
    for number in (1, 3, 5):
        harness.peer.send_headers(number, OK)
    harness.peer.send_data(3, b"{}" * 500, end_stream=True)
    harness.peer.send_data(1, b"{}")
    harness.peer.reset_stream(5, 2)
    harness.peer.end_stream(1)
    return bytes(first + harness.peer.data_to_send())


CONVERSATION, RESPONSES = conversation(), responses()
FAULTS = (
    b"",
    frame(0x0, b"x", stream=9),
    b"Hello world, this is text\n",
    frame(0x8, b"\0\0\0\0"),
    frame(0x6, b"12345678") * 2100,
    frame(0x7, b"\0\0\0\x01\0\0\0\0"),
)


def frames_by_stream(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = defaultdict(bytes)
    while data:
        end = 9 + int.from_bytes(data[:3], "big")
        found[int.from_bytes(data[5:9], "big")] += data[:end]
        data = data[end:]
    return dict(found)


def served(chunks: Sequence[bytes]) -> tuple[object, ...]:
    harness = ServerHarness()
    harness.takes = False
    for chunk in chunks:
        harness.feed(chunk)
    events = [repr(event) for event in harness.machine.events]
    # What breaks the connection loses responses that were not sent, so their number may differ.
    return events, harness.closed, None if harness.closed else frames_by_stream(harness.sent)


def received(chunks: Sequence[bytes]) -> tuple[object, ...]:
    connection = ClientConnection(Limits())
    for exchange in (1, 2, 3):
        connection.begin(exchange_of(exchange))
    connection.data_to_send()
    sent = b""
    parts: dict[int, list[str]] = defaultdict(list)
    for chunk in chunks:
        connection.receive_data(chunk, now=0.0)
        while (found := connection.next_part()) is not None:
            exchange, part = found
            parts[exchange].append(repr(part))
        sent += connection.data_to_send()
    return dict(parts), repr(connection.failure), frames_by_stream(sent)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in itertools.pairwise(ends)]


WHERE = st.lists(st.integers(0, len(CONVERSATION) + 200), max_size=12)


@pytest.mark.parametrize("fault", FAULTS)
@given(places=WHERE, at=st.integers(0, len(CONVERSATION)))
def test_a_server_does_the_same(fault: bytes, places: list[int], at: int) -> None:
    data = CONVERSATION[:at] + fault + CONVERSATION[at:]
    assert served(cut(data, places)) == served([data])


@pytest.mark.parametrize("fault", FAULTS)
@given(places=WHERE, at=st.integers(0, len(RESPONSES)))
def test_a_client_does_the_same(fault: bytes, places: list[int], at: int) -> None:
    data = RESPONSES[:at] + fault + RESPONSES[at:]
    assert received(cut(data, places)) == received([data])


@pytest.mark.parametrize("fault", FAULTS)
def test_one_byte_at_a_time_is_the_same(fault: bytes) -> None:
    data = CONVERSATION + fault[:3000]
    assert served([bytes((each,)) for each in data]) == served([data])
    data = RESPONSES + fault[:3000]
    assert received([bytes((each,)) for each in data]) == received([data])
