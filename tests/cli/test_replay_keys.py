"""Keys of calls (docs/reclaim.md) are secrets: no recording has them, and a replay needs none."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sansmcp_blocking
from sansmcp import App
from sansmcp.effects import OpenExchange, WriteStdin
from sansmcp.http import RequestHead
from sansmcp.reclaim import CANCEL, EXTENSION
from sansmcp_blocking import Call
from sansmcp_cli._compare import difference_lines
from sansmcp_cli._recording import Recorder

from ..client.modern.test_call_keys import KeyedHarness, secret
from .conftest import run_in_process
from .test_replay import played

URL = "http://a.example/mcp"
ODD = 'C:\\u002f\\users\\"ß'
"""A text in which nothing is an escape."""


class Server:
    """A server that takes keys of calls, and has a tool that waits until it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.params = threading.Event(), list[Any]()
        self.app = App("keyed", "1.0")
        self.app.handler("tools/list")(self._list)
        self.app.handler("tools/call")(self._call)

    def _list(self, call: Call) -> dict[str, Any]:
        names = ("echo", "wait")
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}

    def _call(self, call: Call) -> dict[str, Any]:
        self.params.append(call.params)
        if call.params["name"] == "wait":
            self.begun.set()
            call.cancelled.wait()
        return {"content": [], "structuredContent": dict(call.params.get("arguments", {}))}


@contextmanager
def serving() -> Generator[tuple[Server, str], None, None]:
    server = Server()
    with sansmcp_blocking.serve(server.app, http=("127.0.0.1", 0)) as running:
        yield server, running.url


@contextmanager
def recording(
    file: Path, url: str, *, redacts: bool
) -> Generator[sansmcp_blocking.Client, None, None]:
    """Connect a client that makes keys, and record what it does."""
    with file.open("w", encoding="utf-8") as lines:
        recorder = Recorder(lines, url, redacts=redacts)
        with sansmcp_blocking.connect(url, observer=recorder) as client:
            yield client


def echo(client: sansmcp_blocking.Client, **arguments: Any) -> Any:
    called = client.call("tools/call", {"name": "echo", "arguments": arguments})
    return called["structuredContent"]


def lines_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()[1:]]


def sent_in(lines: list[dict[str, Any]], method: str) -> list[dict[str, Any]]:
    """Return the messages of the client with a method."""
    bodies = [line["body"] for line in lines if line["from"] == "client" and "body" in line]
    return [message for message in map(json.loads, bodies) if message["method"] == method]


@pytest.mark.parametrize("redacts", [True, False])
def test_a_recorded_call_is_sent_again_without_its_key(tmp_path: Path, redacts: bool) -> None:
    """To another server, whose place is another one."""
    file = tmp_path / "a.jsonl"
    with serving() as (server, url), recording(file, url, redacts=redacts) as client:
        assert [echo(client, text=ODD), echo(client, text="2")] == [{"text": ODD}, {"text": "2"}]
    lines = lines_in(file)
    calls = sent_in(lines, "tools/call")
    assert [call["params"]["_meta"][EXTENSION] for call in calls] == ["...", "..."]
    assert [call["params"]["arguments"]["text"] for call in calls] == [ODD, "2"]
    (declared,) = (line["body"] for line in lines if '"place"' in line.get("body", ""))
    with serving() as (server, url):
        replayed = run_in_process("replay", str(file), "--to", url)
    assert (replayed.status, "different" in replayed.out) == (0, False), replayed.out
    assert replayed.out.count("tools/call: same") == 2
    assert [call["arguments"]["text"] for call in server.params] == [ODD, "2"]
    instance = json.loads(declared)["result"]["capabilities"]["extensions"][EXTENSION]["place"]
    assert instance not in json.dumps(calls)


def test_a_recording_that_is_served_answers_a_call_with_another_key(tmp_path: Path) -> None:
    file, again = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    with serving() as (_, url), recording(file, url, redacts=True) as client:
        assert echo(client, text="1") == {"text": "1"}
    with played(file) as url, recording(again, url, redacts=True) as client:
        assert echo(client, text="1") == {"text": "1"}
    (called,) = sent_in(lines_in(again), "tools/call")
    assert called["params"]["_meta"][EXTENSION] == "..."


def test_the_key_of_a_cancellation_is_not_recorded(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    with serving() as (server, url), recording(file, url, redacts=True) as client:
        pending = client.start_call("tools/call", {"name": "wait"})
        assert server.begun.wait(60)
        pending.cancel()
        echo(client)
    (cancelled,) = sent_in(lines_in(file), CANCEL)
    assert cancelled["params"]["_meta"][EXTENSION] == "..."


def test_what_needs_a_key_is_not_sent_again(tmp_path: Path) -> None:
    """A request for the rest of a call: the call itself is sent, and its connection closed."""
    file = tmp_path / "a.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        harness = KeyedHarness(observer=Recorder(lines, URL, redacts=True)).connect()
        _, call = harness.call()
        call.cut()
        rest = harness.repeated()
        assert rest.json["method"] == EXTENSION
        rest.result({"content": []})
        _, call = harness.call()
        call.result({"content": []})
    text = file.read_text("utf-8")
    assert [secret(number) in text for number in (1, 2)] == [False, False]
    (asked,) = sent_in(lines_in(file), EXTENSION)
    assert asked["params"]["_meta"][EXTENSION] == "..."
    with serving() as (server, url):
        replayed = run_in_process("replay", str(file), "--to", url)
    assert len(server.params) == 2, replayed.out
    assert replayed.out.endswith(
        f"#3 POST {EXTENSION}: not sent, since recordings do not have the keys of calls\n"
    )


KEY = "process.3.a-secret-of-the-call,a-secret-of-another"
CALL = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "add", "arguments": {"text": ODD}, "_meta": {EXTENSION: KEY}},
    }
)
BODIES = {
    "a message": CALL,
    "a batch": f"[{CALL}, {CALL}]",
    "lines": f"{CALL}\n{CALL}\n",
    "with blanks": CALL.replace(f'"{EXTENSION}":', f'"{EXTENSION}" \t: '),
    "a slash escaped": CALL.replace(EXTENSION, EXTENSION.replace("/", r"\/")),
    "a slash as a number": CALL.replace(EXTENSION, EXTENSION.replace("/", r"\u002F")),
    "letters escaped": CALL.replace(EXTENSION, EXTENSION.replace("s", r"\u0073")),
    "escapes within the key": CALL.replace(KEY, KEY.replace("-", r"\u002d") + r"\"secret\\"),
    "no key": CALL.replace(EXTENSION, "other").replace("secret", ""),
}


def messages_in(text: str) -> list[dict[str, Any]]:
    lines: list[Any] = [json.loads(line) for line in text.splitlines()]
    return [*lines[0]] if text.startswith("[") else lines


@pytest.mark.parametrize("is_stdio", [True, False])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_no_key_is_recorded_and_all_else_is(body: str, is_stdio: bool) -> None:
    file = io.StringIO()
    recorder = Recorder(file, URL, redacts=True)
    head = RequestHead(method=b"POST", target=b"/mcp", headers=())
    recorder.effect_pulled(
        WriteStdin(body.encode())
        if is_stdio
        else OpenExchange(exchange=1, url=URL, head=head, body=body.encode())
    )
    assert "secret" not in file.getvalue()
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    (recorded,) = (line["body"] for line in lines if "body" in line)
    messages = messages_in(body)
    for message in messages:
        if EXTENSION in message["params"]["_meta"]:
            message["params"]["_meta"][EXTENSION] = "..."
    assert messages_in(recorded) == messages


def test_a_server_that_stops_taking_keys_is_different() -> None:
    """What its declaration has differs by nature."""

    def declared(**extensions: Any) -> dict[str, Any]:
        return {"id": 1, "result": {"capabilities": {"extensions": extensions}}}

    old = declared(**{EXTENSION: {"place": "a.1", "timeoutSeconds": 60.0}})
    new = declared(**{EXTENSION: {"place": "b.0", "timeoutSeconds": 30.0}})
    assert difference_lines([old], [new], ()) == []
    assert difference_lines([old], [declared()], ()) == [
        f"result.capabilities.extensions.{EXTENSION} is missing"
    ]
