"""HTTP/1.1 from raw bytes: any pieces, connections used again, hostile peers refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Idle, Limits
from sansmcp.effects import Wake
from sansmcp.states import ExchangeState

from .bench import HEADERS, INITIALIZE, Bench, chunked, peer_loses_interest, post

requirement = pytest.mark.requirement
PING = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'
CALL = b'{"jsonrpc":"2.0","id":8,"method":"tools/call"}'


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("size", [1, 2, 7, 64, None])
@pytest.mark.parametrize("form", [post, chunked])
def test_requests_in_any_pieces(
    bench: Bench, size: int | None, form: Callable[[bytes, bytes], bytes]
) -> None:
    session = bench.session()
    bench.feed(form(PING, session), size)
    answer = bench.answer()
    assert (answer.status, answer.json["id"]) == (200, 7)
    assert answer.headers[b"content-length"] == b"%d" % len(answer.body)
    assert not bench.closed


def test_a_connection_is_used_again(bench: Bench) -> None:
    session = bench.session()
    for _ in range(5):
        bench.feed(post(PING, session))
    assert [answer.status for answer in bench.answers()] == [200] * 5
    first = bench.connection.exchange
    bench.feed(post(PING, session))
    assert bench.connection.exchange is not first


@pytest.mark.parametrize("size", [1, 50, None])
def test_pipelined_requests_are_answered_in_order(bench: Bench, size: int | None) -> None:
    session = bench.session()
    bench.feed(post(CALL, session) + post(PING, session) + post(b"{", session), size)
    assert bench.sent == b""
    (call,) = bench.calls
    call.respond({}, now=0)
    bench.settle()
    answers = bench.answers()
    assert [answer.json.get("id") for answer in answers] == [8, 7, None]
    assert [answer.status for answer in answers] == [200, 200, 400]


def test_pipelining_is_bounded(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    assert bench.idle is Idle.NEED_DATA
    many = post(PING, session) * 500
    fed = 0
    while bench.idle is Idle.NEED_DATA:
        bench.feed(many[fed : fed + 5000])
        fed += 5000
    assert fed < 80_000
    bench.calls[0].respond({}, now=0)
    bench.settle()
    assert bench.idle is Idle.NEED_DATA
    assert len(bench.answers()) > 100


def test_event_streams_come_in_chunks(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    (call,) = bench.calls
    call.notify("x", now=0)
    bench.settle()
    assert b"transfer-encoding: chunked" in bench.sent.lower()
    assert b"HTTP/1.1 200" in bench.sent
    bench.wait(20)
    call.respond({}, now=bench.now)
    bench.settle()
    assert bench.sent.endswith(b"0\r\n\r\n")
    (answer,) = bench.answers()
    assert answer.body.count(b"event: message") == 2
    assert b":\n\n" in answer.body
    bench.sent = b""
    bench.feed(post(PING, session))
    assert bench.answer().json["id"] == 7


def test_http_1_0_and_close(bench: Bench) -> None:
    bench.feed(post(INITIALIZE).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert bench.answer().status == 200
    assert bench.closed
    bench = Bench()
    bench.feed(post(INITIALIZE, b"connection: close\r\n"))
    assert bench.answer().status == 200
    assert bench.closed
    bench.feed(b"more")
    assert bench.idle is Idle.NEED_DATA


def test_an_event_stream_over_http_1_0(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session).replace(b"HTTP/1.1", b"HTTP/1.0"))
    bench.calls[0].notify("x", now=0)
    bench.calls[0].respond({}, now=0)
    bench.settle()
    assert bench.closed
    assert bench.answer().body.count(b"event: message") == 2


# Expect: 100-continue


def test_a_client_that_waits_for_100_continue(bench: Bench) -> None:
    session = bench.session()
    request = post(PING, session + b"expect: 100-continue\r\n")
    head, _, body = request.partition(b"\r\n\r\n")
    bench.feed(head + b"\r\n\r\n")
    assert bench.sent.startswith(b"HTTP/1.1 100 ")
    assert bench.sent.count(b"HTTP/1.1") == 1
    bench.feed(body)
    assert bench.answer().json["id"] == 7
    assert not bench.closed


def test_a_client_that_waits_is_refused_without_its_body(bench: Bench) -> None:
    request = post(PING, b"expect: 100-continue\r\n", path=b"/nope")
    bench.feed(request.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    answer = bench.answer()
    assert (answer.status, answer.headers[b"connection"]) == (404, b"close")
    assert not bench.closed
    bench.wait(2)
    assert bench.closed


# Refusals


@pytest.mark.parametrize("size", [1, 100, None])
def test_a_refused_request_gets_its_answer_whatever_it_still_sends(size: int | None) -> None:
    bench = Bench(limits=Limits(max_message_bytes=1000))
    bench.feed(post(b"x" * 5000)[:-10], size)
    answer = bench.answer()
    assert (answer.status, answer.reason) == (413, "message_too_large")
    bench.feed(b"x" * 1_000_000, 65536)
    assert not bench.closed
    peer_loses_interest(bench)
    assert bench.closed
    assert len(bench.answers()) == 1


def test_a_refused_request_whose_body_is_garbage_still_gets_its_answer(bench: Bench) -> None:
    request = chunked(PING).replace(b"/mcp", b"/nope").replace(b"\r\n7\r\n", b"\r\nzz\r\n", 1)
    bench.feed(request)
    assert bench.answer().status == 404
    assert bench.answer().headers[b"connection"] == b"close"
    bench.feed(b"more")
    assert not bench.closed
    bench.wait(2)
    assert bench.closed


def test_a_refusal_of_a_complete_request_keeps_the_connection(bench: Bench) -> None:
    bench.feed(post(PING, path=b"/nope"))
    assert bench.answer().status == 404
    assert b"connection" not in bench.answer().headers
    bench.feed(post(INITIALIZE))
    assert [answer.status for answer in bench.answers()] == [404, 200]


def test_the_body_of_a_refusal_is_not_sent_to_head(bench: Bench) -> None:
    bench.feed(b"HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = bench.answer("HEAD")
    assert (answer.status, answer.body) == (405, b"")
    assert int(answer.headers[b"content-length"]) > 0
    bench.feed(post(INITIALIZE))
    assert [a.status for a in bench.answers("HEAD", "POST")] == [405, 200]


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n",
        b"GET /mcp\r\n\r\n",
        b"GET /mcp HTTP/2.0\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\n\r\n",  # no Host
        b"GET /mcp HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"GET /m cp HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: +1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"content-length: 1_0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: gzip\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked, identity\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n-1\r\n",
        b"POST /mcp HTTP/1.1\r\n" + HEADERS + b"transfer-encoding: chunked\r\n\r\n1\r\nabXX",
        b"POST /mcp HTTP/1.1\r\n"
        + HEADERS
        + b"transfer-encoding: chunked\r\n\r\n1;"
        + b"x" * 300_000,
    ],
)
@pytest.mark.parametrize("size", [1, 4096, None])
def test_what_is_no_http_is_refused_and_the_connection_closed(
    data: bytes, size: int | None
) -> None:
    if size == 1 and len(data) > 100_000:
        return  # the same bytes in 300,000 pieces say nothing new
    bench = Bench().feed(data, size)
    if bench.sent:
        answer = bench.answer()
        assert answer.status in (400, 431, 501, 505)
        assert answer.reason in ("malformed_http", "head_too_large")
        assert answer.headers[b"connection"] == b"close"
    bench.wait(100)
    assert bench.closed
    assert bench.sent or len(data) < 40  # only an incomplete head goes without an answer


@pytest.mark.parametrize("size", [1, 4096, 65536, None])
def test_heads_are_bounded_in_any_pieces(size: int | None) -> None:
    limits = Limits(max_head_bytes=1000)
    start = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: "
    end = b"\r\n\r\n"
    fits = start + b"y" * (1000 - len(start) - len(end)) + end
    assert len(fits) == 1000
    bench = Bench(limits=limits).feed(fits, size)
    assert bench.answer("GET").status == 406
    bench = Bench(limits=limits).feed(fits.replace(b"yy", b"yyy", 1), size)
    answer = bench.answer("GET")
    assert (answer.status, answer.reason) == (431, "head_too_large")
    bench = Bench(limits=limits).feed(post(INITIALIZE) + fits.replace(b"yy", b"yyy", 1), size)
    assert [answer.status for answer in bench.answers("POST", "GET")] == [200, 431]


def test_header_lines_are_bounded(bench: Bench) -> None:
    lines = b"".join(b"x-%d: y\r\n" % number for number in range(99))
    bench.feed(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n" + lines + b"\r\n")
    assert bench.answer("GET").status == 406
    bench = Bench()
    bench.feed(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: y\r\n" + lines + b"\r\n")
    answer = bench.answer("GET")
    assert (answer.status, answer.reason) == (431, "head_too_large")


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://localhost/mcp", b"evil.example", 406),
        (b"http://localhost:1/mcp?x", b"localhost", 406),
        (b"http://evil.example/mcp", b"localhost", 403),
        (b"http://localhost", b"localhost", 404),
        (b"ftp://localhost/mcp", b"localhost", 404),
        (b"localhost:80", b"localhost", 404),
        (b"*", b"localhost", 404),
    ],
)
def test_absolute_targets(bench: Bench, target: bytes, host: bytes, status: int) -> None:
    bench.feed(b"GET " + target + b" HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
    assert bench.answer("GET").status == status


def test_an_upgrade_is_not_taken(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(PING, session + b"connection: upgrade\r\nupgrade: websocket\r\n"))
    assert bench.answer().json["id"] == 7
    bench.feed(post(PING, session))
    assert len(bench.answers()) == 2


# Slow peers


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx"])
def test_a_head_has_to_come_in_time_in_all(bench: Bench, begun: bytes) -> None:
    if not begun:
        assert bench.connection.next_deadline() == 75
        bench.wait(74)
        assert not bench.closed
        bench.wait(1)
        assert bench.closed
        assert bench.sent == b""
        return
    bench.wait(50)
    bench.feed(begun)
    for _ in range(29):
        bench.wait(1)
        bench.feed(b"y")
        assert not bench.sent
    bench.wait(1)
    answer = bench.answer("GET")
    assert (answer.status, answer.reason) == (408, "request_timeout")
    bench.wait(2)
    assert bench.closed


def test_a_body_has_to_come_in_time_in_all(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(b" " * 1000 + PING, session)[:-900])
    for _ in range(59):
        bench.wait(1)
        bench.feed(b" ")
    assert not bench.sent
    bench.wait(1)
    assert bench.answer().status == 408
    bench.wait(2)
    assert bench.closed


def test_a_refused_peer_that_goes_on_sending_is_left(bench: Bench) -> None:
    bench.feed(post(b"x" * 100, path=b"/nope")[:-50])
    assert bench.answer().status == 404
    bench.wait(1)
    bench.feed(b"x")
    assert not bench.closed
    bench.wait(1)
    assert bench.closed


def test_an_answer_may_take_any_time(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    assert bench.connection.next_deadline() is None
    bench.wait(1000)
    assert not bench.closed
    bench.calls[0].respond({}, now=bench.now)
    bench.settle()
    assert bench.connection.next_deadline() == bench.now + 75


def test_deadlines_may_be_handled_early_late_and_twice(bench: Bench) -> None:
    bench.connection.handle_timeout(now=1)
    bench.connection.handle_timeout(now=74)
    assert bench.connection.next_deadline() == 75
    bench.connection.handle_timeout(now=99)
    bench.connection.handle_timeout(now=99)
    bench.settle()
    assert bench.closed


# Peers that go


def test_a_peer_that_leaves_a_stream(bench: Bench) -> None:
    session = bench.session()
    bench.feed(post(CALL, session))
    bench.calls[0].notify("x", now=0)
    bench.settle()
    exchange = bench.connection.exchange
    bench.connection.connection_lost(now=0)
    bench.connection.connection_lost(now=0)
    bench.settle()
    assert exchange.state is ExchangeState.DONE
    assert bench.closed
    assert bench.calls[0].is_running
    assert bench.calls[0].respond({}, now=0) is True


def test_a_stream_that_cannot_go_on_is_broken_off() -> None:
    bench = Bench(limits=Limits(stored_entries=2, max_unsent_bytes=1))
    session = bench.session()
    bench.feed(post(CALL, session))
    (call,) = bench.calls
    call.notify("x", now=0)
    bench.settle()
    for _ in range(9):  # nobody pulls: the reader falls behind what is kept
        call.notify("x", now=0)
        while not isinstance(effect := bench.server.next_effect(), Idle):
            if not isinstance(effect, Wake):
                bench.server.use_store(effect, bench.store, now=0)
    bench.settle()
    assert bench.closed
    assert not bench.sent.endswith(b"0\r\n\r\n")


@given(cut=st.integers(0, 400), size=st.integers(1, 100))
def test_a_request_that_is_cut_anywhere_leaves_nothing(cut: int, size: int) -> None:
    bench = Bench()
    request = post(INITIALIZE)
    bench.feed(request[:cut], size)
    peer_loses_interest(bench)
    assert bench.closed
    assert len(bench.server.sessions) == (cut >= len(request))
    assert bench.connection.next_deadline() is None


@given(data=st.binary(max_size=300), size=st.integers(1, 50))
def test_garbage_is_refused_or_waited_for(data: bytes, size: int) -> None:
    bench = Bench().feed(data, size)
    bench.wait(200)
    assert bench.closed
    assert bench.server.sessions == ()


def outcome(bench: Bench) -> tuple[int, bytes | str] | None:
    if not bench.sent:
        return None
    answer = bench.answers()[0]
    return (answer.status, answer.body if answer.status == 200 else answer.reason)


@given(
    place=st.integers(0, 350),
    junk=st.sampled_from(
        [b"\0", b"\r", b"\n", b"\r\n", b" ", b":", b"\xff", b"0\r\n\r\n", b"GET "]
    ),
    size=st.integers(1, 400),
)
def test_damaged_requests_do_not_depend_on_pieces(place: int, junk: bytes, size: int) -> None:
    request = post(INITIALIZE)
    damaged = request[:place] + junk + request[place:]
    whole, pieces = Bench().feed(damaged).wait(200), Bench().feed(damaged, size).wait(200)
    assert outcome(whole) == outcome(pieces)
    assert whole.closed
    assert pieces.closed
