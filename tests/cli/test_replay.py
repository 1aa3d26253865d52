"""Recordings: what is in them and what is not, and both sides of a conversation played again."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sansmcp.http import BodyData, BodyEnd, ResponseHead
from sansmcp_cli import _compare, _recording, _replay, _replay_http
from sansmcp_cli._compare import BodyReader, difference_lines, parse_messages
from sansmcp_cli._output import UsageError
from sansmcp_cli._recording import REDACTED, Recorder, read_recording

from .conftest import command, failed, run, run_in_process, serving, started
from .plain_server import plain_server

ADD = ("add", "a=1", "b=2")
SLOW = ("slow", "steps=4", "delay=0.05")


@pytest.fixture(scope="module")
def http_sse() -> Generator[str, None, None]:
    with serving("--http-sse") as url:
        yield url.replace("/mcp", "/sse")


def record(file: Path, *words: str) -> list[dict[str, Any]]:
    """Record a command. Return the lines of the recording."""
    done = run_in_process(words[0], "--record", str(file), *words[1:])
    assert done.status == 0, done.err
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


@contextmanager
def played(file: Path, *options: str) -> Generator[str, None, None]:
    """Serve a recording; gives the URL."""
    with started("replay", str(file), "--serve", "--http", "127.0.0.1:0", *options) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_the_format(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("older")
    head, *lines = record(file, "call", url, *ADD)
    assert (head["recording"], head["redacted"], head["target"]) == (1, True, url)
    assert file.stat().st_mode & 0o777 == 0o600
    times = [line["t"] for line in lines]
    assert times == sorted(times)
    first = [line for line in lines if line["exchange"] == 1]
    assert [line["from"] for line in first] == ["client"] * 3 + ["server"] * 3
    assert (first[0]["method"], first[0]["target"]) == ("POST", "/mcp")
    assert json.loads(first[1]["body"])["method"] == "server/discover"
    assert (first[3]["status"], first[2]["end"], first[5]["end"]) == (200, True, True)


def test_no_credentials_are_recorded(http_sse: str, tmp_path: Path) -> None:
    file, open_file = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    words = ("call", f"{http_sse}?key=sesame", *ADD, "--revision", "2024-11-05")
    headers = ("--header", "Authorization: Bearer sesame", "--header", "X-Key: sesame")
    lines = record(file, *words, *headers)
    text = file.read_text()
    assert "sesame" not in text
    assert '["authorization", "REDACTED"]' in text
    record(open_file, *words, *headers, "--record-secrets")
    assert open_file.read_text().count("sesame") >= 3
    (endpoint,) = (line["body"] for line in lines if "event: endpoint" in line.get("body", ""))
    assert "data: /sse?REDACTED\n" in endpoint or "?REDACTED" in endpoint


def test_no_session_is_recorded(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *ADD, "--revision", "2025-11-25")
    assert '["mcp-session-id", "REDACTED"]' in file.read_text()


def test_a_recording_is_shown(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *ADD)
    shown = run_in_process("replay", str(file)).out
    assert " #1 > POST /mcp\n" in shown
    assert " #1 < 200\n" in shown
    assert max(map(len, shown.splitlines())) < 150


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_server_that_answers_as_before(url: str, tmp_path: Path, revision: str) -> None:
    file = str(tmp_path / "a.jsonl")
    record(Path(file), "call", url, *SLOW, "--revision", revision)
    replayed = run_in_process("replay", file, "--to", url)
    assert replayed.status == 0, replayed.out
    lines = replayed.out.splitlines()
    assert all(line.endswith(": same") for line in lines)
    assert any("tools/call" in line for line in lines)


@pytest.mark.parametrize(
    "ending",
    [
        {"from": "client", "abort": True},
        {"from": "server", "lost": "reset"},
        None,
    ],
    ids=["left", "lost", "open"],
)
def test_over_the_deprecated_transport(
    http_sse: str, tmp_path: Path, ending: dict[str, Any] | None
) -> None:
    """The event stream is the session until it ends, while a call has its response elsewhere."""
    file = tmp_path / "a.jsonl"
    *lines, last = record(file, "call", http_sse, *SLOW, "--revision", "2024-11-05")
    (call,) = (line for line in lines if "tools/call" in line.get("body", ""))
    assert (last["exchange"], last["abort"]) != (call["exchange"], True)
    if ending is not None:
        lines.append({"t": last["t"], "exchange": last["exchange"], **ending})
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    replayed = run_in_process("replay", str(file), "--to", http_sse)
    assert (replayed.status, "different" in replayed.out) == (0, False), replayed.out
    if ending is not None and "lost" in ending:
        return  # served, it is lost again, and the call with it
    with played(file) as url:
        assert run_in_process("call", url, *SLOW, "--revision", "2024-11-05").out == (
            "4 steps done\n"
        )


def test_a_server_that_asks_gets_the_recorded_answer(tmp_path: Path) -> None:
    """Its ids and its signed state are others than in the recording."""
    file = tmp_path / "a.jsonl"
    for revision in ("2025-11-25", "2026-07-28"):
        with serving("tests.cli.asking") as url:
            look = ("call", url, "look", "--root", str(tmp_path), "--revision", revision)
            record(file, *look)
        with serving("tests.cli.asking") as url:
            replayed = run_in_process("replay", str(file), "--to", url)
        assert (replayed.status, "different" in replayed.out) == (0, False), replayed.out


def test_a_server_that_answers_otherwise(url: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *ADD)
    text = file.read_text().replace('\\"text\\":\\"3\\"', '\\"text\\":\\"4\\"')
    file.write_text(text.replace('"status": 200', '"status": 201', 1))
    replayed = run_in_process("replay", str(file), "--to", url)
    assert replayed.status == 1
    assert "#1 POST server/discover: different\n    status is 200, was 201\n" in replayed.out
    assert replayed.out.endswith(
        '#3 POST tools/call: different\n    result.content[0].text is "3", was "4"\n'
    )
    replayed = run_in_process("replay", str(file), "--to", url, "--ignore", "text")
    assert "#3 POST tools/call: same\n" in replayed.out


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_client_gets_what_the_server_sent(url: str, tmp_path: Path, revision: str) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *SLOW, "--revision", revision)
    with played(file) as replayed:
        called = run_in_process("call", replayed, *SLOW, "--revision", revision)
        assert (called.status, called.out) == (0, "4 steps done\n")
        assert called.err.count("progress") == 4


def test_a_client_with_other_ids_gets_it_as_well(url: str, tmp_path: Path) -> None:
    """``call`` with JSON does not read the list of tools first, so its ids are others."""
    file = tmp_path / "a.jsonl"
    record(file, "call", url, *SLOW)
    with played(file) as replayed:
        called = run_in_process("call", replayed, "slow", '{"steps": 4, "delay": 0.05}')
        assert (called.status, called.out) == (0, "4 steps done\n")
        assert called.err.count("progress") == 4
        again = run_in_process("call", replayed, "slow", "{}")
        assert "The recording has no further request of this kind" in again.err


def test_on_stdio(tmp_path: Path) -> None:
    file, server = tmp_path / "a.jsonl", command("serve", "--stdio")
    lines = record(file, "call", *SLOW, "--", *server)
    assert {line.get("exchange") for line in lines} == {None}
    assert lines[-1]["exit"] == 0
    replayed = run("replay", str(file), "--", *server)
    assert (replayed.status, replayed.out) == (0, "stdio: same\n")
    player = command("replay", str(file), "--serve")
    called = run("call", "slow", '{"steps": 4, "delay": 0.05}', "--", *player)
    assert (called.status, called.out) == (0, "4 steps done\n")
    text = file.read_text().replace("4 steps done", "5 steps done")
    file.write_text(text)
    replayed = run("replay", str(file), "--", *server)
    assert replayed.status == 1
    assert 'result.content[0].text is "4 steps done", was "5 steps done"' in replayed.out


def test_the_times_can_be_kept(url: str, tmp_path: Path) -> None:
    """How long that takes is not asserted, since it depends on the machine."""
    file = tmp_path / "a.jsonl"
    lines = record(file, "call", url, *ADD)
    last = max(line["exchange"] for line in lines[1:])
    for line in lines[1:]:
        line["t"] += 2.0 if line["exchange"] == last else 0.0
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_in_process("replay", str(file), "--to", url, "--keep-times").status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch.jsonl",), "Cannot read 'nosuch.jsonl'"),
        (("setup.cfg",), "is no recording of this release"),
        (("{file}", "--to", "http://a/", "--serve"), "Either --serve or a server, not both"),
        (("{file}", "--to", "http://a/", "--", "x"), "One server: --to URL"),
        (("{file}", "--", "x"), "was recorded over HTTP; name a URL with --to"),
        (("{file}", "--serve", "--http", "x"), "--http takes HOST:PORT, got 'x'"),
        (("{broken}",), "Line 2 of "),
    ],
)
def test_wrong_usage_is_explained_in_one_line(
    url: str, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    file, broken = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    record(file, "list", url, "tools")
    broken.write_text('{"recording": 1}\n{"t": 1}\n')
    names = {"{file}": str(file), "{broken}": str(broken)}
    end = words.index("--") if "--" in words else len(words)
    given = [*(names.get(word, word) for word in words[:end]), *words[end:]]
    assert said in failed(run_in_process("replay", *given))


def test_a_recording_that_cannot_be_written(url: str, tmp_path: Path) -> None:
    said = failed(run_in_process("call", url, *ADD, "--record", str(tmp_path)))
    assert said.startswith("Cannot record to ")


def test_a_server_that_has_gone(tmp_path: Path, url: str) -> None:
    file = tmp_path / "a.jsonl"
    record(file, "list", url, "tools")
    replayed = run_in_process("replay", str(file), "--to", "http://127.0.0.1:1/mcp")
    assert replayed.status == 1
    assert "no complete response: " in replayed.out


TOKEN = "Zk3Tq9sLr7Xw2Vb8Nm4C"
ENDPOINTS: dict[str, str] = {
    "usual": "event: endpoint\ndata: /messages?session_id={}\n\n",
    "no space": "event:endpoint\ndata:/messages?session_id={}\n\n",
    "data first": "data: /messages?session_id={}\nevent: endpoint\n\n",
    "fields between": "event: endpoint\nid: 1\n: hi\nretry: 5\ndata: /messages?session_id={}\n\n",
    "another event first": "event: ping\ndata: x\n\nevent: endpoint\ndata: /m?session_id={}\n\n",
    "lines of CRLF": "event: endpoint\r\ndata: /messages?session_id={}\r\n\r\n",
    "lines of CR": "event: endpoint\rdata: /messages?session_id={}\r\r",
    "a byte order mark": "\ufeffevent: endpoint\ndata: /messages?session_id={}\n\n",
    "in the path": "event: endpoint\ndata: /messages/{}\n\n",
    "two lines": "event: endpoint\ndata: /messages?\ndata: session_id={}\n\n",
    "a long comment": f": {'x' * 70_000}\nevent: endpoint\ndata: /messages?session_id={{}}\n\n",
    "a long comment within": f"data: /m?session_id={{}}\n: {'x' * 70_000}\nevent: endpoint\n\n",
    "a long line": f"event: endpoint\ndata: /m?session_id={{}}&x={'x' * 70_000}\n\n",
    "many comments": ": x\n" * 50_000 + "event: endpoint\ndata: /messages?session_id={}\n\n",
    "the end of the stream": "event: endpoint\ndata: /messages?session_id={}",
    "later again": "data: {{}}\n\nevent: endpoint\ndata: /messages?session_id={}\n\ndata: {{}}\n\n",
}


def stream_head(status: int) -> ResponseHead:
    return ResponseHead(status=status, headers=((b"content-type", b"text/event-stream"),))


@pytest.mark.parametrize("size", [1, 7, 50, 1 << 20])
@pytest.mark.parametrize("spelling", ENDPOINTS)
@pytest.mark.parametrize("status", [200, 400])
def test_no_token_of_http_sse_is_recorded(spelling: str, size: int, status: int) -> None:
    """However its event is spelled, and however the stream is cut."""
    if size < 50 and len(ENDPOINTS[spelling]) > 1000:
        pytest.skip("many small pieces show no more")
    file = io.StringIO()
    recorder = Recorder(file, "http://a.example/", redacts=True)
    stream = ENDPOINTS[spelling].format(TOKEN).encode()
    recorder.part_received(1, stream_head(status))
    for place in range(0, len(stream), size):
        recorder.part_received(1, BodyData(stream[place : place + size]))
    recorder.part_received(1, BodyEnd())
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    recorded = "".join(line.get("body", "") for line in lines)
    assert TOKEN[:8] not in recorded
    assert TOKEN[-8:] not in recorded
    assert REDACTED in recorded
    assert recorded.count("data") == stream.count(b"data")


def test_an_event_that_no_client_reads_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor what comes after it, since where it ends is not known."""
    monkeypatch.setattr(_recording, "LONGEST", 1000)
    file = io.StringIO()
    recorder = Recorder(file, "http://a.example/", redacts=True)
    recorder.part_received(1, stream_head(200))
    for piece in (
        b"event: x\ndata: 1\n\ndata: /m?id=",
        TOKEN.encode(),
        b"x" * 2000,
        b"\n\nid:1\n\n",
    ):
        recorder.part_received(1, BodyData(piece))
    recorder.part_received(1, BodyEnd())
    bodies = [json.loads(line).get("body") for line in file.getvalue().splitlines()]
    assert [body for body in bodies if body] == ["event: x\ndata: 1\n\n", f": {REDACTED}\n\n"]


def test_an_endpoint_that_is_no_text_is_not_recorded() -> None:
    file = io.StringIO()
    recorder = Recorder(file, "http://a.example/", redacts=True)
    recorder.part_received(1, stream_head(200))
    recorder.part_received(1, BodyData(b"event: endpoint\ndata: /\xff?" + TOKEN.encode() + b"\n\n"))
    assert TOKEN not in file.getvalue()
    assert "event: endpoint" in json.loads(file.getvalue().splitlines()[-1])["body"]


POST: dict[str, Any] = {
    "t": 0,
    "from": "client",
    "exchange": 1,
    "method": "POST",
    "target": "/mcp",
    "headers": [],
}
BODY = {"t": 0, "from": "client", "exchange": 1, "body": '{"id": 1, "method": "tools/list"}'}
END = {"t": 0, "from": "client", "exchange": 1, "end": True}
HEAD: dict[str, Any] = {
    "t": 1,
    "from": "server",
    "exchange": 1,
    "status": 200,
    "headers": [["content-type", "application/json"]],
}
ANSWER = {"t": 1, "from": "server", "exchange": 1, "body": '{"id": 1, "result": {}}'}
SOUND: list[dict[str, Any]] = [POST, BODY, END, HEAD, ANSWER, {**END, "from": "server"}]


def recording(tmp_path: Path, *lines: Any) -> str:
    file = tmp_path / "hostile.jsonl"
    text = "\n".join(json.dumps(line) for line in ({"recording": 1}, *lines))
    file.write_text(text + "\n", "utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("place", "members", "said"),
    [
        (0, {"target": None}, '"target" is not'),
        (0, {"target": "/\r\nx: y"}, '"target" is not'),
        (0, {"target": "/\u001b[2J"}, '"target" is not'),
        (0, {"headers": None}, '"headers" is not'),
        (0, {"headers": [["a"]]}, '"headers" is not'),
        (0, {"headers": "ab"}, '"headers" is not'),
        (0, {"headers": [[1, 2]]}, '"headers" is not'),
        (0, {"headers": [["x", "a\r\nhost: evil"]]}, '"headers" is not'),
        (0, {"exchange": [1]}, '"exchange" must be'),
        (0, {"exchange": True}, '"exchange" must be'),
        (0, {"exchange": None}, '"method" needs an exchange'),
        (0, {"method": 5}, '"method" is not'),
        (0, {"method": "GET / HTTP/1.1\r\n\r\nPOST"}, '"method" is not'),
        (1, {"body": 5}, '"body" is not'),
        (1, {"body": None}, '"body" is not'),
        (1, {"body": {"base64": "!!!"}}, '"body" is not'),
        (1, {"body": {}}, '"body" is not'),
        (2, {"end": 1}, '"end" is not'),
        (3, {"status": "\u001b[2J"}, '"status" is not'),
        (3, {"status": 1.5}, '"status" is not'),
        (3, {"status": 99}, '"status" is not'),
        (3, {"status": 10**30}, '"status" is not'),
        (3, {"headers": [["x", "a\r\nb: c"]]}, '"headers" is not'),
        (3, {"t": 1e308}, '"t" must be'),
        (3, {"t": float("nan")}, '"t" must be'),
        (3, {"t": True}, '"t" must be'),
        (3, {"t": 10**400}, '"t" must be'),
        (3, {"from": "me"}, '"from" must be'),
    ],
)
def test_a_line_that_is_wrong_is_named(
    place: int, members: dict[str, Any], said: str, tmp_path: Path
) -> None:
    lines = [*SOUND]
    lines[place] = {**lines[place], **members}
    told = failed(run_in_process("replay", recording(tmp_path, *lines)))
    assert f"Line {place + 2} of " in told
    assert said in told


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"exchange": 1, "stderr": "x"}, "what a process does has no exchange"),
        ({"exchange": 1, "exit": 1}, "what a process does has no exchange"),
        ({"exit": {"\u001b": 1}}, '"exit" is not'),
        ({"exchange": 1, "lost": ["\u001b[2J"]}, '"lost" is not'),
        ({"exchange": 1, "method": "POST", "target": "/", "headers": []}, "comes from client"),
        ({"exchange": 1, "end": True, "body": ""}, "it must have one of "),
        ({"exchange": 1}, "it must have one of "),
    ],
)
def test_a_line_of_the_server_that_is_wrong_is_named(
    members: dict[str, Any], said: str, tmp_path: Path
) -> None:
    line = {"t": 1.0, "from": "server", **members}
    told = failed(run_in_process("replay", recording(tmp_path, *SOUND, line)))
    assert f"Line {len(SOUND) + 2} of " in told
    assert said in told


@pytest.mark.parametrize("line", ["[" * 300_000, "nonsense", "", '{"t":' + "1" * 5000 + "}"])
def test_a_line_that_is_no_json_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "hostile.jsonl"
    file.write_text(f'{{"recording": 1}}\n{line}\n')
    assert "Line 2 of " in failed(run_in_process("replay", str(file)))
    file.write_text(line)
    assert "is no recording of this release" in failed(run_in_process("replay", str(file)))


@pytest.mark.parametrize(
    ("place", "members"),
    [
        (0, {"headers": [["Host", "evil"], ["Content-Length", "5"], ["x", "\x80"]]}),
        (0, {"target": "http://other.example/mcp"}),
        (1, {"body": "[" * 200_000}),
        (1, {"body": '{"id": {"a": 1}, "method": ["x"], "params": [1]}'}),
        (1, {"body": "\ud800"}),
        (1, {"body": '{"id": 1, "method": "x", "params": {"requestState": "\\ud800"}}'}),
        (4, {"body": '{"a":' * 900 + "1" + "}" * 900}),
        (4, {"body": "a\u2028b\u0085c"}),
        (3, {"headers": [["content-length", "3"], ["content-type", "text/event-stream"]]}),
        (4, {"body": "event: endpoint\ndata: http://other.example\x7f/\n\n"}),
        (5, {"from": "client"}),
    ],
)
def test_a_recording_that_is_odd_is_shown_and_sent(
    place: int, members: dict[str, Any], tmp_path: Path
) -> None:
    lines = [*SOUND]
    lines[place] = {**lines[place], **members}
    file = recording(tmp_path, *lines)
    assert run_in_process("replay", file).status == 0
    with plain_server({"tools/list": {}}) as url:
        sent = run_in_process("replay", file, "--to", url)
    assert sent.out.startswith("#1 POST"), sent.err


LINES: dict[str, Any] = {
    "method": {"method": "POST", "target": "/", "headers": []},
    "status": {"status": 200, "headers": []},
    "body": {"body": "x"},
    "end": {"end": True},
    "abort": {"abort": True},
    "lost": {"lost": "x"},
    "stderr": {"stderr": "x"},
    "exit": {"exit": 1},
}
WRITTEN = {
    ("client", True): {"method", "body", "end", "abort"},
    ("client", False): {"body", "end"},
    ("server", True): {"status", "body", "end", "lost"},
    ("server", False): {"body", "end", "stderr", "exit"},
}


@pytest.mark.parametrize("has_exchange", [True, False])
@pytest.mark.parametrize("side", ["client", "server"])
def test_a_line_of_each_side_is_one_that_this_side_writes_or_refused(
    side: str, has_exchange: bool, tmp_path: Path
) -> None:
    place: dict[str, Any] = {"t": 1, "from": side, **({"exchange": 1} if has_exchange else {})}
    begun = {**SOUND[0], "exchange": 1}
    read: set[str] = set()
    for first, second in [*product(LINES, LINES)]:
        try:
            file = recording(tmp_path, begun, {**place, **LINES[first], **LINES[second]})
            found = read_recording(file)
        except UsageError as error:
            assert str(error).startswith("Line 3 of ")
            continue
        assert len(found.exchanges()) == 1
        assert first == second, "a line says one thing"
        read.add(first)
    assert read == WRITTEN[side, has_exchange]


def test_what_a_server_process_has_started_ends_with_it(tmp_path: Path) -> None:
    asked = {"t": 0, "from": "client", "body": '{"id": 1, "method": "ping"}\n'}
    held = tmp_path / "held"
    os.mkfifo(held)
    script = 'exec 3>"$0"; sleep 1000 & cat > /dev/null'
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    try:
        run("replay", recording(tmp_path, asked), "--", "sh", "-c", script, str(held))
        assert select.select([reader], [], [], 20)[0], "it runs"
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_what_a_server_process_logs_is_shown_line_by_line(tmp_path: Path) -> None:
    asked = {"t": 0, "from": "client", "body": '{"id": 1, "method": "ping"}\n'}
    script = "printf 'a\\033[2Jb\\nc' >&2; cat > /dev/null"
    sent = run("replay", recording(tmp_path, asked), "--", "sh", "-c", script)
    assert sent.err == "server: a\\u001b[2Jb\nserver: c\n"


@contextmanager
def answering(*parts: bytes, again: bool = False) -> Generator[str, None, None]:
    """Serve one connection that gets these bytes for any request; then the last ones for ever."""

    def serve() -> None:
        with suppress(OSError):
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                for part in parts:
                    peer.sendall(part)
                while again:
                    peer.sendall(parts[-1])
                peer.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            with suppress(OSError):  # where no connection came
                listener.shutdown(socket.SHUT_RDWR)
            serving.join()


INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n" * 50
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("parts", "members", "said"),
    [
        ((INTERIM,), {}, "does not answer"),
        ((SWITCH, b""), {"headers": [["upgrade", "x"]]}, "switches to another protocol"),
        ((JSON, b""), {"method": "CONNECT"}, "switches to another protocol"),
        ((STREAM, b"data: {}\n\n" * 1000), {}, "more than 5000 messages"),
        ((STREAM, b"id: 1\n\n" * 1000), {}, "more than 5000 messages"),
        ((STREAM, b"data: " + b"x" * 65536), {}, "larger than"),
        ((JSON, b" " * 65536), {}, "more than 1000000 bytes"),
    ],
    ids=["interim", "switched", "tunnel", "messages", "events", "event", "body"],
)
def test_a_server_without_an_end_is_left(
    parts: tuple[bytes, ...],
    members: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_compare, "MOST_MESSAGES", 5000)
    monkeypatch.setattr(_compare, "LONGEST", 500_000)
    monkeypatch.setattr(_replay_http, "_MOST_BYTES", 1_000_000)
    file = recording(tmp_path, {**POST, **members}, *SOUND[1:])
    with answering(*parts, again=bool(parts[-1])) as url:
        sent = run_in_process("replay", file, "--to", url)
    assert sent.status == 1
    assert "no complete response" in sent.out
    assert said in sent.out


def test_a_body_is_parsed_seldom_however_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = Counter[str]()

    def counted(text: bytes) -> list[Any]:
        parsed["bytes"] += len(text)
        return parse_messages(text)

    monkeypatch.setattr(_compare, "parse_messages", counted)
    body = json.dumps({"id": 1, "result": {"text": "x" * 10_000}}).encode()
    reader = BodyReader.of("application/json")
    for place in range(len(body)):
        reader.receive(body[place : place + 1])
    reader.end()
    assert [message["id"] for message in reader.messages] == [1]
    assert parsed["bytes"] < 4 * len(body)


def test_few_differences_of_many_are_shown() -> None:
    now = [{"method": "a", "params": {"b" * 1000: {str(n): n for n in range(1000)}}}]
    old: list[Any] = [{"method": "a", "params": {"b" * 1000: {}}}, {"id": 1}]
    lines = difference_lines(old, now, ())
    assert len(lines) == 201
    assert lines[-1] == "and more"
    assert max(map(len, lines)) < 200
    assert difference_lines([{"id": 1}, {"id": 1}], [{"id": 2}, {"id": 1}], ()) == [
        'missing: {"id": 1}',
        'not in the recording: {"id": 2}',
    ]


@pytest.mark.parametrize(
    "code",
    [
        "while True: os.write(1, b'\\n' * 65536)",
        "while True: os.write(1, b'x' * 65536)",
        "while True: os.write(2, b'x' * 65536)",
        "os.write(1, b'[' + b'{},' * 2_000_000 + b'{}]\\n')",
    ],
    ids=["lines", "line", "log", "batch"],
)
def test_a_process_without_an_end_is_left(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_replay, "_LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(_replay, "_PATIENCE", 0.5)
    asked = {"t": 0, "from": "client", "body": '{"id": 1, "method": "ping"}\n'}
    answer = {"t": 0, "from": "server", "body": '{"id": 1, "result": {}}\n'}
    file = recording(tmp_path, asked, answer)
    words = ("replay", file, "--", sys.executable, "-c", f"import os\n{code}")
    sent = run_in_process(*words)
    assert sent.status == 1
    assert 'missing: {"id": 1, "result": {}}' in sent.out


def ask_for(url: str, *headers: str) -> str:
    """Return the response to a request with these headers."""
    address = (url.split(":")[1].strip("/"), int(url.split(":")[2].split("/")[0]))
    body = '{"id": 1, "method": "tools/list"}'
    head = ["POST /mcp HTTP/1.1", *headers, "Connection: close", f"Content-Length: {len(body)}"]
    with socket.create_connection(address) as connection:
        connection.sendall("\r\n".join([*head, "", body]).encode())
        with connection.makefile("rb") as file:
            return file.read().decode()


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: evil.example",),
        ("Host: evil.example:8000", "Origin: http://evil.example:8000"),
        ("Host: 127.0.0.1", "Origin: http://evil.example"),
        ("Host: 127.0.0.1", "Origin: null"),
    ],
)
def test_no_web_page_reads_a_recording(headers: tuple[str, ...], tmp_path: Path) -> None:
    """The page of a host whose name leads here now (DNS rebinding), or any page."""
    file = recording(tmp_path, *SOUND)
    with played(Path(file)) as url:
        refused = ask_for(url, *headers)
        assert refused.startswith("HTTP/1.1 403 ")
        assert "result" not in refused
        assert '"result"' in ask_for(url, "Host: 127.0.0.1", "Origin: http://localhost:3000")
    with played(Path(file), "--allow-host", "evil.example") as url:
        assert '"result"' in ask_for(url, "Host: evil.example")


@pytest.mark.parametrize("target", ["@evil.example/mcp", ".evil.example/", "http://evil.example/"])
def test_the_url_of_a_recording_is_of_this_machine(target: str, tmp_path: Path) -> None:
    with played(Path(recording(tmp_path, {**POST, "target": target}, *SOUND[1:]))) as url:
        assert urlsplit(url).hostname == "127.0.0.1"
        assert '"result"' in ask_for(url, "Host: 127.0.0.1")
