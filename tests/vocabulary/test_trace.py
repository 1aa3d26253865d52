"""The trace: readable, complete, and without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    App,
    BodyData,
    Client,
    ConnectionLost,
    Idle,
    RequestHead,
    Server,
    ServerCall,
    ServerPipe,
    encode_event,
)
from sansmcp.effects import (
    Abort,
    AbortExchange,
    CloseStdin,
    KillProcess,
    OpenExchange,
    SendBody,
    SendBytes,
    SendEnd,
    SendHead,
    StartProcess,
    TerminateProcess,
    WriteStdin,
)
from sansmcp.events import Closed, Reconnecting
from sansmcp.http import BodyEnd, ResponseHead
from sansmcp.process import ProcessExited, ProcessStartFailed, StderrData, StdoutClosed, StdoutData
from sansmcp.revisions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from sansmcp.testing import Link, Pair, sequential_tokens
from sansmcp.trace import Tracer

STREAM = ((b"content-type", b"text/event-stream"),)


def talk(versions: tuple[str, ...]) -> list[str]:
    """The trace of a short conversation."""
    lines: list[str] = []
    app = App("x")

    @app.handler("tools/call")
    def handler(call: ServerCall) -> dict[str, str]:
        return {"a": "x" * 200}

    trace = Tracer("client", lines.append)
    client = Client("http://localhost/mcp", jitter=float, versions=versions, trace=trace)
    server = Server(
        app, new_token=sequential_tokens(), resumable=False, trace=Tracer("server", lines.append)
    )
    pair = Pair(client, server, Link(float))
    client.start(now=0.0)
    client.call("tools/call", now=0.0)
    pair.run(1.0)
    client.close(now=pair.clock.now)
    pair.run(2.0)
    assert max(map(len, lines)) < 200
    return lines


def test_a_conversation_without_handshake() -> None:
    lines = talk(MODERN_VERSIONS)
    assert [line for line in lines if line.startswith("client #") and " > P" in line] == [
        "client #1 > POST /mcp",
        "client #2 > POST /mcp",
    ]
    assert '"method":"server/discover"' in lines[1]


def test_a_conversation() -> None:
    lines = talk(HANDSHAKE_VERSIONS)
    assert lines[:8] == [
        "client #1 > POST /mcp",
        lines[1],
        "server #1 < POST /mcp",
        lines[3],
        "server #1 > 200 application/json",
        lines[5],
        "client #1 < 200 application/json",
        lines[7],
    ]
    assert '"method":"initialize"' in lines[1]
    assert any(line.startswith("client #") and line.endswith("> GET /mcp") for line in lines)
    assert "server #4 > end of stream" in lines or "client #4 > aborted" in lines
    assert not any("token-000" in line for line in lines)


def test_streams_are_shown_event_by_event() -> None:
    lines: list[str] = []
    tracer = Tracer("c", lines.append)
    cursor = (b"last-event-id", b"abcdefgh-3")
    head = RequestHead(method=b"GET", target=b"/mcp", headers=(cursor,))
    tracer.effect_pulled(OpenExchange(exchange=1, url="", head=head, body=b""))
    tracer.part_received(1, ResponseHead(status=200, headers=STREAM))
    block = encode_event(b"", id="abcdefgh-4", retry=5) + encode_event(b'{"x":1}', event="e")
    tracer.part_received(1, BodyData(block[:10]))
    tracer.part_received(1, BodyData(block[10:]))
    tracer.part_received(1, BodyEnd())
    tracer.part_received(1, BodyEnd())
    tracer.part_received(1, ResponseHead(status=200, headers=STREAM))
    tracer.part_received(1, ConnectionLost("cut"))
    tracer.effect_pulled(AbortExchange(exchange=1))
    assert lines == [
        "c #1 > GET /mcp after event abcd...-3",
        "c #1 < 200 text/event-stream",
        "c #1 < no data, id abcd...-4, retry 5 ms",
        'c #1 < event e, {"x":1}',
        "c #1 < end of stream",
        "c #1 < 200 text/event-stream",
        "c #1 < connection lost: cut",
        "c #1 > aborted",
    ]


def test_a_server_shows_what_it_sends() -> None:
    lines: list[str] = []
    tracer = Tracer("s", lines.append)
    tracer.part_sent(1, SendHead(ResponseHead(status=200, headers=STREAM)))
    tracer.part_sent(1, SendBody(encode_event(b"{}")))
    tracer.part_sent(1, SendEnd())
    tracer.part_sent(2, SendHead(ResponseHead(status=202)))
    tracer.part_sent(2, Abort())
    assert lines == [
        "s #1 > 200 text/event-stream",
        "s #1 > event message, {}",
        "s #1 > end of stream",
        "s #2 > 202 ",
        "s #2 > connection aborted",
    ]


def test_a_process_is_shown_line_by_line() -> None:
    lines: list[str] = []
    tracer = Tracer("c", lines.append)
    tracer.effect_pulled(StartProcess(("python", "server.py")))
    tracer.effect_pulled(WriteStdin(b'{"id":0}\n'))
    tracer.process_part_received(StdoutData(b'{"id":0,\n"result":"' + b"x" * 200 + b'"}\n'))
    tracer.process_part_received(StderrData(b"warning\r\n\xff"))
    tracer.effect_pulled(CloseStdin())
    tracer.process_part_received(StdoutClosed())
    tracer.effect_pulled(TerminateProcess())
    tracer.effect_pulled(KillProcess())
    tracer.process_part_received(ProcessExited(-9))
    tracer.process_part_received(ProcessStartFailed("no such file"))
    long = lines.pop(3)
    assert long.startswith('c < "result":"xxx')
    assert long.endswith("x... (212 bytes)")
    assert lines == [
        "c > starts python server.py",
        'c > {"id":0}',
        'c < {"id":0,',
        "c < stderr: warning",
        "c < stderr: \ufffd",
        "c > end of input",
        "c < end of output",
        "c > TerminateProcess",
        "c > KillProcess",
        "c < exit status -9",
        "c < not started: no such file",
    ]


META = {"io.modelcontextprotocol/clientInfo": {"name": "x" * 90}}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            {"id": 1, "method": "tools/call", "params": {"_meta": META, "name": "echo"}},
            '{"id":1,"method":"tools/call","params":{"_meta":"...","name":"echo"}}',
        ),
        ({"id": 1, "result": {"a": 1, "_meta": META}}, '{"id":1,"result":{"a":1,"_meta":"..."}}'),
        ({"id": 1, "params": {"_meta": {}}}, '{"id":1,"params":{"_meta":{}}}'),
    ],
)
def test_the_metadata_of_a_long_message_is_left_out_first(message: Any, shown: str) -> None:
    lines: list[str] = []
    data = json.dumps(message, separators=(",", ":")).encode()
    Tracer("c", lines.append).effect_pulled(WriteStdin(data + b"\n"))
    assert lines == [f"c > {shown}"]


@pytest.mark.parametrize(
    "data",
    [b'{"_meta"' + b"x" * 200, json.dumps(["_meta", "x" * 200]).encode(), b'{"_meta":1}' * 20],
)
def test_other_long_texts_are_cut(data: bytes) -> None:
    lines: list[str] = []
    Tracer("c", lines.append).effect_pulled(WriteStdin(data))
    assert lines == [f"c > {data[:100].decode()}... ({len(data)} bytes)"]


def test_a_full_trace_cuts_nothing() -> None:
    lines: list[str] = []
    tracer = Tracer("c", lines.append, is_full=True)
    text = json.dumps({"params": {"_meta": {"a": "x" * 200}}}) + "\u009b"
    tracer.effect_pulled(WriteStdin(text.encode()))
    head = ResponseHead(status=200, headers=((b"content-type", b"text/event-stream"),))
    tracer.part_received(1, head)
    tracer.part_received(1, BodyData(b"data: " + text.encode() + b"\n\n"))
    shown = text.replace("\u009b", "\\u009b")
    assert lines == [
        f"c > {shown}",
        "c #1 < 200 text/event-stream",
        f"c #1 < event message, {shown}",
    ]


def test_retries_are_shown() -> None:
    lines: list[str] = []
    tracer = Tracer("c", lines.append)
    tracer.event_pulled(Reconnecting(call=None, delay=0.5, attempt=1, reason="refused"))
    tracer.event_pulled(Reconnecting(call=3, delay=2, attempt=2, reason="cut"))
    tracer.event_pulled(Closed(None))
    assert lines == ["c retries the session in 0.50 s: refused", "c retries call 3 in 2.00 s: cut"]


def test_a_client_of_a_process_traces_both_ways() -> None:
    lines: list[str] = []
    client = Client(["server"], jitter=float, trace=Tracer("c", lines.append))
    client.start(now=0.0)
    while not isinstance(client.next_effect(), Idle):
        pass
    client.receive_process_part(ProcessExited(1), now=0.0)
    assert [line[:14] for line in lines] == ["c > starts ser", 'c > {"jsonrpc"', "c < exit statu"]


def test_a_server_on_stdio_is_shown_line_by_line() -> None:
    lines: list[str] = []
    server = Server(App("x"), new_token=sequential_tokens(), trace=Tracer("s", lines.append))
    pipe = ServerPipe(server, now=0.0)
    pipe.receive_data(b'{"jsonrpc":"2.0","id":0,"method":"ping"}\r\n' + b"x" * 200 + b"\n", now=0.0)
    assert isinstance(pipe.next_effect(), SendBytes)
    assert lines[:3] == [
        's < {"jsonrpc":"2.0","id":0,"method":"ping"}',
        f"s < {'x' * 100}... (200 bytes)",
        's > {"jsonrpc":"2.0","id":0,"result":{}}',
    ]


def test_the_body_of_a_request_is_shown_in_one_line_when_it_ends() -> None:
    lines: list[str] = []
    tracer = Tracer("s", lines.append)
    for exchange in (1, 2, 3):
        tracer.part_received(exchange, RequestHead(method=b"POST", target=b"/", headers=()))
        tracer.part_received(exchange, BodyData(b'{"a":'))
    tracer.part_received(1, BodyData(b"1}"))
    tracer.part_received(1, BodyEnd())
    tracer.part_received(2, ConnectionLost("cut"))
    tracer.part_sent(3, SendHead(ResponseHead(status=413, headers=())))
    assert lines[3:] == [
        's #1 < {"a":1}',
        's #2 < {"a":',
        "s #2 < connection lost: cut",
        's #3 < {"a":',
        "s #3 > 413 ",
    ]


def test_few_bodies_of_requests_are_kept() -> None:
    lines: list[str] = []
    tracer = Tracer("s", lines.append)
    for exchange in range(257):
        tracer.part_received(exchange, RequestHead(method=b"POST", target=b"/", headers=()))
    for exchange in range(257):
        tracer.part_received(exchange, BodyData(b"{}"))
        tracer.part_received(exchange, BodyEnd())
    assert lines[257:] == [f"s #{exchange} < {{}}" for exchange in range(1, 257)]


def test_connections_that_never_ask_are_not_shown() -> None:
    lines: list[str] = []
    server = Server(App("x"), new_token=sequential_tokens(), trace=Tracer("s", lines.append))
    exchange = server.open_exchange()
    server.receive_part(exchange, ConnectionLost(), now=0.0)
    assert server.next_effect_of(exchange) is Idle.NEED_DATA
    assert lines == []


def test_the_token_of_http_sse_is_not_shown() -> None:
    """It is the only credential of that transport."""
    lines: list[str] = []
    tracer = Tracer("c", lines.append)
    tracer.part_received(1, ResponseHead(status=200, headers=STREAM))
    tracer.part_received(
        1, BodyData(encode_event(b"/messages?session_id=hunter2", event="endpoint"))
    )
    head = RequestHead(method=b"POST", target=b"/messages?session_id=hunter2", headers=())
    tracer.effect_pulled(OpenExchange(exchange=2, url="", head=head, body=b""))
    tracer.part_received(
        1, BodyData(encode_event(b"/m/5f0c9a7e5f0c9a7e5f0c9a7e", event="endpoint"))
    )
    assert lines == [
        "c #1 < 200 text/event-stream",
        "c #1 < event endpoint, /messages?...",
        "c #2 > POST /messages?...",
        "c #1 < event endpoint, /m/...",
    ]


def test_event_ids_of_others_are_cut() -> None:
    lines: list[str] = []
    tracer = Tracer("c", lines.append)
    head = RequestHead(method=b"GET", target=b"/", headers=((b"last-event-id", b"abcdhunter2"),))
    tracer.effect_pulled(OpenExchange(exchange=1, url="", head=head, body=b""))
    assert lines == ["c #1 > GET / after event abcd..."]


def test_a_peer_cannot_forge_lines() -> None:
    """Nor can it move the cursor, or turn the text round."""
    lines: list[str] = []
    tracer = Tracer("c", lines.append)
    tracer.process_part_received(StdoutData(b"a\x1b[1A\xc2\x9b\x7f\n"))
    tracer.process_part_received(ProcessStartFailed("no\nc > forged"))
    tracer.part_received(1, ResponseHead(status=200, headers=((b"content-type", b"a\x9bb"),)))
    tracer.part_received(1, BodyData(b"x\nc > forged\r\xe2\x80\xae"))
    tracer.part_received(1, ConnectionLost("y\nc > forged"))
    assert lines == [
        r"c < a\u001b[1A\u009b\u007f",
        r"c < not started: no\u000ac > forged",
        r"c #1 < 200 a\u009bb",
        r"c #1 < x\u000ac > forged\u000d\u202e",
        r"c #1 < connection lost: y\u000ac > forged",
    ]
