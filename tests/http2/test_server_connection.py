"""The server's end of HTTP/2: streams are exchanges, and windows are backpressure."""

from __future__ import annotations

from typing import Any

import pytest
from h2.errors import ErrorCodes
from h2.events import WindowUpdated
from h2.settings import SettingCodes

from sansmcp import Idle, Limits
from sansmcp.events import CallCancelled, CallReceived
from sansmcp.http2.h2_connection import MAX_STREAMS

from ..server.modern.harness import modern
from .harness import LARGE_WINDOW, ServerHarness, body_of, frame, request_headers


@pytest.fixture
def harness() -> ServerHarness:
    return ServerHarness()


def of(head: bytes) -> int:
    """The number of the stream of a frame."""
    return int.from_bytes(head[5:9], "big")


def cancelled(harness: ServerHarness) -> list[CallCancelled]:
    return [event for event in harness.machine.events if isinstance(event, CallCancelled)]


def test_a_request_gets_its_response(harness: ServerHarness) -> None:
    number, call = harness.call()
    assert harness.idle is Idle.NEED_DATA
    call.respond({"content": []}, now=0.0)
    harness.turn()
    answer = harness.answers[number]
    assert (answer.status, answer.has_ended, answer.reset) == (200, True, None)
    assert answer.json["id"] == number
    assert harness.connection.next_deadline() is None


@pytest.mark.parametrize("announced", [modern(1, name="other"), modern(1, "ping")])
def test_headers_say_what_the_body_says(harness: ServerHarness, announced: Any) -> None:
    """As over HTTP/1.1: the same headers, and the same refusal of others."""
    number = harness.begin(announced)
    harness.peer.send_data(number, body_of(modern(number)), end_stream=True)
    answer = harness.flush().answers[number]
    assert (answer.status, answer.json["error"]["data"]["reason"]) == (400, "header_mismatch")
    assert harness.answers[harness.call()[0]].status == 0


def test_responses_come_in_the_order_in_which_they_are_made(harness: ServerHarness) -> None:
    first, slow = harness.call()
    second, quick = harness.call()
    quick.respond({"content": []}, now=0.0)
    harness.turn()
    assert harness.answers[second].has_ended
    assert not harness.answers[first].has_ended
    slow.respond({"content": []}, now=0.0)
    assert harness.turn().answers[first].has_ended


def test_an_event_stream_is_sent_as_it_grows(harness: ServerHarness) -> None:
    message = modern(1)
    message["params"]["_meta"]["progressToken"] = 5
    number = harness.post(message)
    call = harness.machine.last_call()
    call.progress(1, now=0.0)
    harness.turn()
    assert harness.answers[number].headers[b"content-type"] == b"text/event-stream"
    assert b"progress" in harness.answers[number].body
    call.respond({"content": []}, now=0.0)
    assert harness.turn().answers[number].has_ended


def test_a_subscription_is_a_stream_that_stays_open(harness: ServerHarness) -> None:
    filter = {"notifications": {"toolsListChanged": True}}
    number = harness.post(modern(1, "subscriptions/listen", **filter))
    assert b"acknowledged" in harness.answers[number].body
    harness.machine.server.publish("notifications/tools/list_changed", now=0.0)
    harness.turn()
    assert b"list_changed" in harness.answers[number].body
    assert not harness.answers[number].has_ended


def test_the_authority_is_the_host_and_a_host_beside_it_is_ignored(harness: ServerHarness) -> None:
    headers = [pair for pair in request_headers(modern(1)) if pair[0] != ":authority"]
    harness.peer.send_headers(1, [*headers, ("host", "elsewhere.example")], end_stream=True)
    harness.flush()
    assert harness.answers[1].status == 403
    headers = request_headers(modern(3))
    harness.peer.send_headers(3, [*headers, ("host", "localhost")], end_stream=True)
    harness.flush()
    assert harness.answers[3].status == 400  # there is no body, and so no fault of the host


def test_a_reset_cancels_its_call_and_no_other(harness: ServerHarness) -> None:
    number, call = harness.call()
    _, other = harness.call()
    harness.peer.reset_stream(number, ErrorCodes.CANCEL)
    harness.flush()
    assert [event.call for event in cancelled(harness)] == [call]
    other.respond({"content": []}, now=0.0)
    assert harness.turn().answers[3].has_ended
    assert not harness.closed


def test_what_comes_for_streams_that_have_ended_is_ignored(harness: ServerHarness) -> None:
    number, call = harness.call()
    call.respond({"content": []}, now=0.0)
    harness.turn()
    harness.feed(frame(0x3, b"\0\0\0\x08", stream=number))  # RST_STREAM
    harness.feed(frame(0x8, b"\0\0\0\x08", stream=number))  # WINDOW_UPDATE
    harness.feed(frame(0x7, b"\0\0\0\0\0\0\0\0"))  # GOAWAY
    harness.feed(frame(0xFE, b"of an extension"))
    assert harness.call()[0] == number + 2


def test_trailers_end_a_request(harness: ServerHarness) -> None:
    number = harness.begin()
    harness.peer.send_data(number, body_of(modern(number)))
    harness.peer.send_headers(number, [("x-checksum", "5")], end_stream=True)
    harness.flush()
    assert harness.machine.last_call().request.id == number


# Windows


def test_a_response_waits_for_room_and_holds_up_no_other(harness: ServerHarness) -> None:
    harness.acknowledges = False
    number, call = harness.call()
    call.respond({"content": [{"type": "text", "text": "x" * 60_000}]}, now=0.0)
    second, large = harness.call()
    large.respond({"content": [{"type": "text", "text": "y" * 60_000}]}, now=0.0)
    harness.turn()
    assert harness.answers[number].has_ended
    assert 0 < len(harness.answers[second].body) < 60_000  # the connection has no room
    third, small = harness.call()
    small.respond({"content": []}, now=0.0)
    harness.turn()
    assert not harness.answers[third].body
    harness.peer.increment_flow_control_window(60_000)
    harness.flush()
    assert harness.answers[second].has_ended
    assert harness.answers[third].has_ended


def test_a_stream_goes_on_when_its_own_window_opens() -> None:
    harness = ServerHarness(window=1000)
    harness.acknowledges = False
    number, call = harness.call()
    call.respond({"content": [{"type": "text", "text": "x" * 3000}]}, now=0.0)
    harness.turn()
    assert len(harness.answers[number].body) == 1000
    harness.peer.increment_flow_control_window(500, number)
    harness.flush()
    assert len(harness.answers[number].body) == 1500
    harness.peer.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10_000})
    harness.flush()
    assert harness.answers[number].has_ended


def test_what_has_no_room_counts_as_unsent_of_its_exchange() -> None:
    harness = ServerHarness(window=100, stream_after=0.0)
    harness.acknowledges = False
    message = modern(1)
    message["params"]["_meta"]["progressToken"] = 5
    harness.post(message)
    call = harness.machine.last_call()
    for number in range(5000):
        if call.is_above_high_water:
            break
        call.progress(number, message="x" * 100, now=0.0)
        harness.turn()
    assert call.is_above_high_water


def test_a_response_that_is_given_up_resets_its_stream() -> None:
    limits = Limits(max_total_unsent_bytes=10_000)
    harness = ServerHarness(window=100, limits=limits)
    harness.acknowledges = False
    message = modern(1)
    message["params"]["_meta"]["progressToken"] = 5
    number = harness.post(message)
    call = harness.machine.last_call()
    for step in range(200):
        call.progress(step, message="x" * 100, now=0.0)
        harness.turn()
    assert harness.answers[number].reset == ErrorCodes.INTERNAL_ERROR
    assert not harness.closed


def test_a_large_request_is_received(harness: ServerHarness) -> None:
    message = modern(1, arguments={"text": "x" * 3_000_000})
    number, data = harness.begin(message), memoryview(body_of(message))
    harness.flush()
    while data:
        room = harness.peer.local_flow_control_window(number)
        piece, data = data[: min(room, 16_384)], data[min(room, 16_384) :]
        assert piece, "the window was not opened"
        harness.peer.send_data(number, bytes(piece), end_stream=not data)
        harness.flush()
    assert harness.machine.last_call().request.id == 1


def test_a_request_that_is_refused_early_is_reset_without_an_error() -> None:
    harness = ServerHarness(limits=Limits(max_request_bytes=1000))
    number = harness.begin()
    harness.peer.send_data(number, b"x" * 2000)
    harness.flush()
    answer = harness.answers[number]
    assert (answer.status, answer.has_ended, answer.reset) == (413, True, ErrorCodes.NO_ERROR)
    window = harness.peer.outbound_flow_control_window
    harness.feed(frame(0x0, b"x" * 2000, stream=number))  # it was under way
    assert harness.peer.outbound_flow_control_window >= window
    assert harness.call()[0] == 3


def test_a_request_that_is_being_authenticated_is_read_as_far_as_its_window() -> None:
    harness = ServerHarness(authentication=True).flush()
    harness.other.clear()
    number = harness.begin()
    for _ in range(60):
        harness.peer.send_data(number, b" " * 16_000)
        harness.flush()
    assert not any(isinstance(event, WindowUpdated) for event in harness.other)
    (asked,) = harness.machine.asked
    harness.machine.server.authenticated(asked, "ada", now=0.0)
    harness.turn()
    assert any(isinstance(event, WindowUpdated) for event in harness.other)
    harness.peer.send_data(number, body_of(modern(number)), end_stream=True)
    harness.flush()
    assert harness.machine.last_call().request.id == number


def test_a_request_that_is_reset_while_it_is_authenticated_gives_its_window_back() -> None:
    harness = ServerHarness(authentication=True).flush()
    for _ in range(20):  # more than the window of the connection, in all
        number = harness.begin()
        for _ in range(60):
            harness.peer.send_data(number, b" " * 16_000)
        harness.flush()
        harness.peer.reset_stream(number, ErrorCodes.CANCEL)
        harness.flush()
    assert not harness.closed


def test_a_full_queue_of_events_pauses_the_connection() -> None:
    harness = ServerHarness(limits=Limits(max_queued_events=2))
    harness.machine.takes_events = False
    harness.post()
    harness.post()
    assert harness.idle == Idle.PAUSED
    assert harness.connection.next_deadline() is None
    harness.machine.takes_events = True
    idle = harness.turn().idle
    assert idle is Idle.NEED_DATA
    assert sum(isinstance(event, CallReceived) for event in harness.machine.events) == 2


def test_a_large_response_is_sent_in_turns() -> None:
    harness = ServerHarness(window=LARGE_WINDOW)
    harness.flush()
    number, call = harness.call()
    harness.pieces.clear()
    call.respond({"content": [{"type": "text", "text": "x" * 2_000_000}]}, now=0.0)
    harness.run_pending()
    assert harness.idle is Idle.PAUSED
    assert harness.connection.next_deadline() == 0.0
    harness.turn()
    assert harness.answers[number].has_ended
    assert max(harness.pieces) < 300_000
    assert len(harness.pieces) > 7


# The end


def test_the_end_of_the_input_closes_a_connection_without_calls(harness: ServerHarness) -> None:
    assert harness.flush().end().closed


def test_after_the_end_of_the_input_calls_may_finish(harness: ServerHarness) -> None:
    number, call = harness.call()
    harness.end()
    assert not harness.closed
    assert harness.connection.next_deadline() == 5.0
    harness.connection.receive_eof(now=1.0)  # a second time has no effect
    harness.feed(b"what comes now is discarded")
    call.respond({"content": []}, now=0.0)
    harness.turn()
    assert harness.answers[number].has_ended
    assert harness.closed


def test_after_the_end_of_the_input_calls_get_a_limited_time(harness: ServerHarness) -> None:
    _, call = harness.call()
    harness.end()
    harness.connection.handle_timeout(now=4.9)
    assert not harness.turn().closed
    harness.connection.handle_timeout(now=5.0)
    assert harness.turn().closed
    assert [event.call for event in cancelled(harness)] == [call]
    assert harness.connection.next_deadline() is None


def test_a_lost_connection_cancels_its_calls(harness: ServerHarness) -> None:
    harness.call()
    harness.call()
    harness.connection.connection_lost(now=0.0)
    harness.connection.connection_lost(now=0.0)
    harness.turn()
    assert len(cancelled(harness)) == 2
    assert harness.closed


def test_a_server_that_leaves_says_so_once_and_completes_what_runs(harness: ServerHarness) -> None:
    number, call = harness.call()
    harness.machine.server.drain(now=0.0)
    harness.sent = b""
    harness.takes = False
    call.respond({"content": []}, now=0.0)
    harness.turn()
    assert harness.sent.count(frame(0x7, b"\x7f\xff\xff\xff\0\0\0\0")) == 1
    harness.sent = harness.sent.replace(frame(0x7, b"\x7f\xff\xff\xff\0\0\0\0"), b"")
    harness.takes = True
    harness.turn()
    assert harness.answers[number].has_ended
    refused = harness.post()
    assert harness.answers[refused].status == 503


def test_a_wake_after_the_end_has_no_effect(harness: ServerHarness) -> None:
    _, call = harness.call()
    call.respond({"content": []}, now=0.0)
    harness.turn()
    harness.connection.connection_lost(now=0.0)
    harness.turn()
    harness.machine.woken.driver.wake()
    assert harness.idle is Idle.NEED_DATA


# Refusals and attacks


def test_too_many_headers_are_refused_with_431() -> None:
    harness = ServerHarness(limits=Limits(max_headers=10))
    number = harness.post(**{f"x_{each}": "y" for each in range(9)})
    assert harness.answers[number].status == 431


def test_a_request_without_a_path_is_refused(harness: ServerHarness) -> None:
    headers = [(":method", "CONNECT"), (":authority", "localhost")]
    harness.peer.config.validate_outbound_headers = False
    harness.peer.send_headers(1, headers)
    harness.flush()
    assert harness.answers[1].status in (0, 400, 404, 405)  # h2 takes it for a fault in itself


def test_a_client_of_stdio_is_told_of_its_mistake(harness: ServerHarness) -> None:
    harness.takes = False
    line = body_of(modern(7)) + b"\n"
    for each in line:
        harness.feed(bytes((each,)))
    (answer,) = harness.sent.splitlines()
    assert b'"id":7' in answer.replace(b" ", b"")
    assert b"stdio-v2" in answer
    assert harness.closed
    assert harness.refusals == ["not_http2"]


@pytest.mark.parametrize("data", [b"hello\n", b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\n"])
def test_what_is_not_http2_is_refused(harness: ServerHarness, data: bytes) -> None:
    harness.takes = False
    assert harness.feed(data).closed
    assert harness.refusals == ["not_http2"]


def test_text_without_an_end_of_line_is_refused_in_bounded_memory(harness: ServerHarness) -> None:
    harness.takes = False
    assert not harness.feed(b"x" * 60_000).closed
    assert harness.feed(b"x" * 60_000).closed


def test_resetting_streams_rapidly_ends_the_connection(harness: ServerHarness) -> None:
    # CVE-2023-44487
    heads = harness.heads(2100)
    harness.takes = False
    harness.feed(b"".join(head + frame(0x3, b"\0\0\0\x08", stream=of(head)) for head in heads))
    assert harness.is_flooded
    assert ErrorCodes.ENHANCE_YOUR_CALM.to_bytes(4, "big") in harness.sent[-50:]


@pytest.mark.parametrize(
    "flooding",
    [
        frame(0x6, b"12345678"),  # PING: CVE-2019-9512
        frame(0x4),  # SETTINGS: CVE-2019-9515
        frame(0x2, b"\0\0\0\0\x01", stream=1),  # PRIORITY: CVE-2019-9513
        frame(0x0, stream=1),  # empty DATA: CVE-2019-9518
        frame(0x8, b"\0\0\0\x01", stream=1),  # WINDOW_UPDATE
        frame(0x8, b"\0\0\0\x01"),
        frame(0xA, b"\0\0"),  # ALTSVC
        frame(0xFE),
        frame(0x7, b"\0\0\0\0\0\0\0\0"),
    ],
)
def test_frames_that_carry_nothing_end_the_connection(
    harness: ServerHarness, flooding: bytes
) -> None:
    harness.begin()
    harness.flush()
    harness.takes = False
    harness.feed(flooding * 1900)
    assert not harness.closed
    harness.feed(flooding * 200)
    assert harness.is_flooded


def test_as_many_of_them_over_a_long_time_do_not(harness: ServerHarness) -> None:
    harness.flush()
    for _ in range(10):
        harness.feed(frame(0x6, b"12345678") * 1000)
        harness.now += 10
    assert not harness.closed


def test_windows_that_open_as_responses_are_read_are_no_flood() -> None:
    harness = ServerHarness(window=65_535)
    harness.acknowledges = False
    number, call = harness.call()
    call.respond({"content": [{"type": "text", "text": "x" * 1_500_000}]}, now=0.0)
    harness.turn()
    for _ in range(1500):
        harness.peer.increment_flow_control_window(1024)
        if not harness.answers[number].has_ended:
            harness.peer.increment_flow_control_window(1024, number)
        harness.flush()
    assert harness.answers[number].has_ended
    assert not harness.closed


def test_windows_of_one_byte_end_the_connection() -> None:
    # CVE-2019-9511
    harness = ServerHarness(window=1)
    harness.acknowledges = False
    number, call = harness.call()
    call.respond({"content": [{"type": "text", "text": "x" * 100_000}]}, now=0.0)
    harness.turn()
    harness.takes = False
    for _ in range(3000):
        harness.feed(frame(0x8, b"\0\0\0\x01", stream=number))
    assert harness.is_flooded


def test_a_header_block_in_many_frames_is_bounded_in_bytes(harness: ServerHarness) -> None:
    # CVE-2024-27316
    harness.flush()
    harness.takes = False
    harness.feed(frame(0x1, b"\0" * 16_000, stream=1))
    for _ in range(4):
        harness.feed(frame(0x9, b"\0" * 16_000, stream=1))
    assert harness.is_flooded


def test_a_header_block_in_many_frames_is_bounded_in_frames(harness: ServerHarness) -> None:
    harness.flush()
    harness.takes = False
    harness.feed(frame(0x1, b"", stream=1) + frame(0x9, b"", stream=1) * 64)
    assert harness.closed
    assert harness.refusals == ["malformed_http2"]


def test_headers_that_are_small_and_become_large_end_the_connection(harness: ServerHarness) -> None:
    # CVE-2016-6581
    harness.peer.send_headers(1, [*request_headers(modern(1)), ("x", "y" * 4000)])
    harness.flush()
    harness.takes = False
    harness.feed(frame(0x1, b"\xbe" * 10_000, flags=0x5, stream=3))  # an index of the table
    assert harness.closed
    assert harness.refusals == ["malformed_http2"]


@pytest.mark.parametrize(
    "data",
    [
        frame(0x0, b"x", stream=1),  # DATA of a stream that is not open
        frame(0x0, b"x", stream=2),
        frame(0x1, b"\xff\xff\xff", flags=0x5, stream=1),  # no HPACK
        frame(0x1, b"\x82", flags=0x5, stream=2),  # a stream of the server
        frame(0x1, b"\x82", flags=0x5, stream=1),  # a method alone
        frame(0x5, b"\0\0\0\x02\x82", flags=0x4, stream=1),  # PUSH_PROMISE
        frame(0x8, b"\x7f\xff\xff\xff") * 2,  # a window of more than 2 GiB
        frame(0x8, b"\0\0\0\0"),  # and by nothing
        frame(0x4, b"\0\x04\xff\xff\xff\xff"),  # the same as a setting
        frame(0x4, b"\0\x05\0\0\0\x01"),  # frames of one byte
        frame(0x4, b"\0"),
        frame(0x6, b"1"),
        frame(0x3, b"1", stream=1),
        frame(0x9, b"", flags=0x4, stream=1),  # CONTINUATION of nothing
        frame(0x0, b"\x09x", flags=0x8, stream=1),  # padding that is longer than the frame
        b"\x00\x40\x01\x00\x00\x00\x00\x00\x01",  # one byte more than a frame may have
        b"Hello world\n",  # text
    ],
)
def test_what_breaks_http2_ends_the_connection(harness: ServerHarness, data: bytes) -> None:
    harness.flush()
    harness.takes = False
    harness.feed(data)
    assert harness.closed
    assert harness.refusals == ["malformed_http2"]
    assert harness.sent[-17:-14] == b"\0\0\x08"  # GOAWAY is the last frame


def test_more_streams_than_allowed_end_the_connection(harness: ServerHarness) -> None:
    *heads, one_more = harness.heads(MAX_STREAMS)  # and there is one
    harness.feed(b"".join(heads))
    assert not harness.closed
    harness.takes = False
    assert harness.feed(one_more).closed
    assert harness.refusals == ["malformed_http2"]


def test_a_server_that_stops_sends_nothing_on_a_connection_that_has_ended(
    harness: ServerHarness,
) -> None:
    harness.call()
    harness.connection.connection_lost(now=0.0)
    assert harness.turn().closed
    harness.machine.server.shut_down(now=0.0)
    harness.turn()  # which fails if there is anything after the end
