"""Lines of stdio: any chunking gives the same, and what is no message harms no other line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Limits
from sansmcp.events import InvalidLine

from .harness import LATEST, initialize, notification, request
from .pipe_harness import Pipe, line, reason, result

requirement = pytest.mark.requirement
PING = request(7, "ping")
NOISE = {
    b"Listening on port 80": (-32700, "malformed_json"),
    b'{"jsonrpc":"2.0","id":1,': (-32700, "malformed_json"),
    b"[1,": (-32700, "malformed_json"),
    b"\xff\xfe{}": (-32700, "invalid_utf8"),
    b'{"a":1,"a":1}': (-32700, "duplicate_name"),
    b"[" * 70 + b"]" * 70: (-32700, "too_deep"),
    b"{}": (-32600, "invalid_message"),
    b'"done"': (-32600, "invalid_message"),
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}': (-32600, "invalid_message"),
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}': (-32600, "invalid_message"),
    b'{"jsonrpc":"2.0","method":"ping","params":[]}': (-32600, "invalid_message"),
    b"[0" + b",0" * 100 + b"]": (-32600, "batch_too_large"),
}


# Framing


@requirement("STDIO-B-001", "STDIO-S-001")
def test_lines_go_out_with_a_line_feed_alone() -> None:
    pipe = Pipe().feed(line(initialize()).replace(b"\n", b"\r\n"))
    pipe.feed(b"\r\n\n \t\r\n" + line(PING) + b"\n" + line(PING))
    assert pipe.output.count(b"\n") == 3
    assert b"\r" not in pipe.output
    assert pipe.output.endswith(b'{"jsonrpc":"2.0","id":7,"result":{}}\n')
    assert [answer["id"] for answer in pipe.said] == [0, 7, 7]
    assert not any(isinstance(event, InvalidLine) for event in pipe.harness.events)


def test_a_line_may_have_spaces_around_it_and_within() -> None:
    pretty = json.dumps(PING, indent=1).replace("\n", " ").encode()
    assert Pipe().say(b"  " + pretty + b"\t ").said == [result(7)]


def test_a_client_that_speaks_http2_is_told_of_its_mistake() -> None:
    pipe = Pipe().feed(b"PRI * HTTP/2.0\r\n")
    (answer,) = pipe.said
    assert reason(answer) == (-32600, "not_stdio")
    assert "stdio-v2" in answer["error"]["message"]


def test_half_a_line_is_no_line_yet() -> None:
    pipe = Pipe().feed(line(PING)[:-1])
    assert pipe.said == []
    assert pipe.feed(b"\n").said == [result(7)]


# Noise


@requirement("JSONRPC-B-023", "JSONRPC-B-024", "JSONRPC-B-012", "JSONRPC-B-037", "JSONRPC-B-004")
@pytest.mark.parametrize("noise", NOISE, ids=repr)
def test_what_is_no_message_is_answered_and_reported(noise: bytes) -> None:
    pipe = Pipe().open().say(noise, PING)
    answer, pong = pipe.said
    assert reason(answer) == NOISE[noise]
    assert "id" not in answer
    assert pong == result(7)
    (event,) = pipe.harness.events
    assert isinstance(event, InvalidLine)
    assert event.line == noise[:200]
    assert event.error.reason == NOISE[noise][1]


def test_noise_is_shown_by_its_start() -> None:
    pipe = Pipe().say(b"x" * 10_000)
    (event,) = pipe.harness.events
    assert isinstance(event, InvalidLine)
    assert event.line == b"x" * 200


@pytest.mark.parametrize("chunk", [1, 100, 10_000])
def test_a_line_that_is_too_long_is_told_once_and_skipped(chunk: int) -> None:
    pipe = Pipe(limits=Limits(max_message_bytes=300))
    data = b"[" + b"1" * 1000 + b"]\n" + line(PING)
    for start in range(0, len(data), chunk):
        pipe.feed(data[start : start + chunk])
    answer, pong = pipe.said
    assert reason(answer) == (-32600, "message_too_large")
    assert answer["error"]["data"]["limit"] == 300
    assert pong == result(7)
    (event,) = pipe.harness.events
    assert isinstance(event, InvalidLine)
    assert event.line == b""


def test_the_longest_line_that_is_taken() -> None:
    pipe = Pipe(limits=Limits(max_message_bytes=300))
    data = line(PING).strip()
    assert pipe.say(data + b" " * (300 - len(data))).said == [result(7)]
    (answer,) = pipe.say(data + b" " * (301 - len(data))).said
    assert reason(answer) == (-32600, "message_too_large")


@pytest.mark.parametrize("id", [5, "a"])
def test_a_message_that_is_wrong_is_answered_with_its_id_where_it_has_one(id: int | str) -> None:
    (answer,) = Pipe().say({"jsonrpc": "1.0", "id": id, "method": "ping"}).said
    assert (answer["id"], reason(answer)) == (id, (-32600, "invalid_message"))


@requirement("JSONRPC-B-012", "JSONRPC-B-028")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
def test_an_error_without_id_says_null_before_2025_11_25(version: str) -> None:
    (answer,) = Pipe().open(version).say(b"stray").said
    assert answer["id"] is None
    assert "id" in answer
    (early,) = Pipe(versions=(version,)).say(b"stray").said
    assert "id" in early


@requirement("JSONRPC-B-012")
def test_an_error_without_id_has_none_since_2025_11_25_and_before_initialize() -> None:
    pipe = Pipe().say(b"stray")
    assert "id" not in pipe.said[0]
    assert "id" not in pipe.open(LATEST).say(b"stray").said[0]


@requirement("JSONRPC-B-028")
def test_errors_of_the_client_are_not_answered() -> None:
    pipe = Pipe().open()
    error = {"code": -32700, "message": "what?"}
    pipe.say({"jsonrpc": "2.0", "id": None, "error": error}, {"jsonrpc": "2.0", "error": error})
    assert (pipe.said, pipe.events) == ([], [])


# Chunks

CONVERSATION = b"".join(
    (
        line(PING),
        line(request(1)),
        b"stray print\r\n\r\n \n\n",
        line(initialize("2025-03-26")).replace(b"\n", b"\r\n"),
        line(notification("notifications/initialized")),
        line(json.dumps(request("ä", text="\u2028"), ensure_ascii=False).encode()),
        b"\xff\n",
        b'{"jsonrpc":"2.0","id":4,"method":"' + b"x" * 400 + b'"}\n',
        line([request(2), request(3, "ping"), 1]),
        line(request(2, "ping")),
        json.dumps(request(5, "ping")).encode(),
    )
)


def converse(chunks: list[bytes]) -> tuple[bytes, list[str]]:
    pipe = Pipe(limits=Limits(max_message_bytes=300))
    for chunk in chunks:
        pipe.feed(chunk)
    pipe.end().wait(5)
    assert pipe.closed
    return pipe.output, [repr(event) for event in pipe.harness.events]


WHOLE = converse([CONVERSATION])


def test_the_whole_conversation() -> None:
    said: list[Any] = [json.loads(each) for each in WHOLE[0].splitlines()]
    assert [answer.get("id") for answer in said[:-1]] == [7, 1, None, 0, None, 4, 2, 5]
    assert [answer.get("id") for answer in said[-1]] == [3, None]


@given(st.lists(st.integers(0, len(CONVERSATION))))
def test_any_chunking_gives_the_same(cuts: list[int]) -> None:
    ends = sorted({*cuts, len(CONVERSATION)})
    chunks = [CONVERSATION[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert b"".join(chunks) == CONVERSATION
    assert converse(chunks) == WHOLE


def test_bytes_that_come_one_by_one_give_the_same() -> None:
    assert converse([bytes([byte]) for byte in CONVERSATION]) == WHOLE


@pytest.mark.parametrize(
    ("request_line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"x":"%b"}}', 5),
        (b'{"id":"a","jsonrpc":"2.0","params":{"id":6,"x":"%b"},"method":"tools/call"}', "a"),
        (b'{"jsonrpc":"2.0","id":5,"result":{"x":"%b"}}', None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":6,"x":"%b"},"id":5}', None),
        (b"%b", None),
    ],
)
def test_a_request_that_is_too_long_gets_an_error_with_its_id(request_line: bytes, id: Any) -> None:
    pipe = Pipe(limits=Limits(max_request_bytes=2000)).open()
    pipe.feed(request_line % (b"x" * 2001) + b"\n")
    (error,) = pipe.say(PING).said[:1]
    assert reason(error) == (-32600, "message_too_large")
    assert error.get("id") == id


# Null for nothing, and a byte order mark: clients that mean one thing only


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_params_that_are_null_are_none(start: bytes) -> None:
    pipe = Pipe()
    pipe.feed(start + line(initialize()))
    pipe.feed(start + b'{"jsonrpc":"2.0","method":"notifications/initialized","params":null}\n')
    pipe.feed(start + b'{"jsonrpc":"2.0","id":7,"method":"ping","params":null}\n')
    opened, pong = pipe.said
    assert (opened["id"], pong) == (0, result(7))
    assert not any(isinstance(event, InvalidLine) for event in pipe.harness.events)
