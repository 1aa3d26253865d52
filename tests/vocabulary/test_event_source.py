"""An event stream that is read over any number of connections."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import (
    BodyData,
    BodyEnd,
    ConnectionLost,
    Disconnected,
    EventSource,
    Idle,
    Limits,
    LocalProtocolError,
    ReconnectPolicy,
    RemoteProtocolError,
    RequestRefused,
    ResponseHead,
    SseEvent,
    encode_event,
)

URL = "http://127.0.0.1/events?token=secret"
OPENED = ResponseHead(status=200, headers=((b"content-type", b"text/event-stream"),))
POLICY = ReconnectPolicy(initial_delay=1, max_delay=4, max_attempts=3)


def reader(**settings: object) -> EventSource:
    given: dict[str, object] = {"jitter": lambda: 0.0, "policy": POLICY, **settings}
    return EventSource(URL, **given)  # type: ignore[arg-type]


def taken(source: EventSource) -> list[str | None]:
    """The data of the events that are there."""
    found: list[str | None] = []
    while isinstance(event := source.next_event(), SseEvent):
        found.append(event.data)
    return found


def sent_id(source: EventSource) -> bytes | None:
    return dict(source.start_request().headers).get(b"last-event-id")


def test_a_stream_over_two_connections() -> None:
    source = reader()
    assert dict(source.start_request().headers)[b"accept"] == b"text/event-stream"
    assert sent_id(source) is None
    source.receive_part(OPENED, now=0)
    source.receive_part(BodyData(encode_event(b"a", id="1", retry=2500)), now=1)
    source.receive_part(BodyData(b"data: cut"), now=1)
    assert taken(source) == ["a"]
    assert source.reconnect_at is None
    source.receive_part(BodyEnd(), now=10)
    assert source.reconnect_at == 12.5
    assert sent_id(source) == b"1"
    assert source.reconnect_at is None
    source.receive_part(OPENED, now=12.5)
    source.receive_part(BodyData(encode_event(b"b")), now=12.5)
    assert taken(source) == ["b"]
    assert source.last_event_id == "1"


def test_the_cursor_is_that_of_the_events_that_were_taken() -> None:
    source = reader(last_event_id="ä")
    assert sent_id(source) == "ä".encode()
    source.receive_part(OPENED, now=0)
    source.receive_part(BodyData(encode_event(b"a", id="1") + encode_event(None, id="2")), now=0)
    assert source.last_event_id == "ä"
    assert sent_id(source) == b"2"
    assert taken(source) == ["a"]
    assert source.last_event_id == "2"


def test_204_is_the_end() -> None:
    source = reader()
    source.receive_part(ResponseHead(status=204), now=0)
    source.receive_part(BodyEnd(), now=0)
    source.receive_part(ConnectionLost(), now=0)
    assert source.is_finished
    assert source.reconnect_at is None
    assert source.next_event() is Idle.NEED_DATA


@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_broken_connections_are_tried_again_with_growing_delays(jitter: float) -> None:
    source = reader(jitter=lambda: jitter)
    for delay in (1, 2, 4):
        source.start_request()
        if delay == 2:  # the others fail before there is a response
            source.receive_part(OPENED, now=0)
        source.receive_part(ConnectionLost("reset"), now=100)
        assert source.reconnect_at == 100 + delay * jitter
        source.receive_part(ConnectionLost("again"), now=101)  # there is no connection to lose
    source.start_request()
    source.receive_part(ConnectionLost("refused"), now=100)
    assert source.reconnect_at is None
    with pytest.raises(Disconnected, match="given up after 3 attempts without an event: refused"):
        source.next_event()


def test_an_event_resets_the_count_of_failures() -> None:
    source = reader()
    for _ in range(10):
        source.start_request()
        source.receive_part(OPENED, now=0)
        source.receive_part(BodyData(encode_event(b"a")), now=0)
        source.receive_part(ConnectionLost(), now=0)
        assert source.reconnect_at is not None
    assert taken(source) == ["a"] * 10


@pytest.mark.parametrize(
    ("retry_after", "delay"), [(None, 0.0), (b"7", 7.0), (b"9999", 300.0), (b"soon", 0.0)]
)
def test_a_temporary_refusal_is_tried_again(retry_after: bytes | None, delay: float) -> None:
    source = reader()
    found = () if retry_after is None else ((b"retry-after", retry_after),)
    source.receive_part(ResponseHead(status=503, headers=found), now=1)
    source.receive_part(BodyData(b"data: not an event\n\n"), now=1)
    source.receive_part(BodyEnd(), now=1)
    assert source.reconnect_at == 1 + delay
    assert source.next_event() is Idle.NEED_DATA


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (ResponseHead(status=404), "HTTP 404"),
        (ResponseHead(status=302), "HTTP 302"),
        (ResponseHead(status=200), "no text/event-stream"),
    ],
)
def test_another_refusal_is_final(head: ResponseHead, text: str) -> None:
    source = reader()
    source.receive_part(head, now=0)
    source.receive_part(BodyEnd(), now=0)
    assert source.reconnect_at is None
    with pytest.raises(RequestRefused, match=text) as refused:
        source.next_event()
    assert "secret" not in str(refused.value)
    assert (refused.value.status, refused.value.url) == (head.status, URL)


def test_an_event_beyond_the_limit_ends_the_stream() -> None:
    source = reader(limits=Limits(max_message_bytes=100))
    source.receive_part(OPENED, now=0)
    source.receive_part(BodyData(encode_event(b"a")), now=0)
    source.receive_part(BodyData(b"data: " + bytes(200)), now=0)
    source.receive_part(BodyData(encode_event(b"b")), now=0)
    source.receive_part(BodyEnd(), now=0)
    assert source.reconnect_at is None
    event = source.next_event()
    assert isinstance(event, SseEvent)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="100 bytes"):
            source.next_event()


def test_a_long_retry_is_bounded() -> None:
    source = reader()
    source.receive_part(OPENED, now=0)
    source.receive_part(BodyData(b"retry: 9999999999999\n"), now=0)
    source.receive_part(BodyEnd(), now=0)
    assert source.reconnect_at == 86_400


def test_a_wrong_url_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="ftp"):
        EventSource("ftp://a/", jitter=lambda: 0.0)


@given(st.lists(st.integers(0, 2), max_size=12), st.data())
def test_no_event_is_lost_or_repeated(cuts: list[int], data: st.DataObject) -> None:
    """The server continues after the id that it is sent; connections break anywhere."""
    source = reader(policy=ReconnectPolicy(max_attempts=1000))
    wanted = [encode_event(b"%d" % number, id=str(number)) for number in range(1, 8)]
    found: list[str | None] = []
    for cut in (*cuts, 0):
        start = int(sent_id(source) or b"0")
        body = b"".join(wanted[start:])
        source.receive_part(OPENED, now=0)
        end = len(body) if cut == 0 else data.draw(st.integers(0, len(body)))
        source.receive_part(BodyData(body[:end]), now=0)
        source.receive_part(ConnectionLost() if cut == 1 else BodyEnd(), now=0)
        if data.draw(st.booleans()):
            found += taken(source)
    found += taken(source)
    assert found == [str(number) for number in range(1, 8)]
    assert source.last_event_id == "7"
