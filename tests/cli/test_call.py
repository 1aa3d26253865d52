"""``sansmcp call``: the result on stdout, what happens on the way on stderr, errors to act on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import run


def text_of(output: str) -> Any:
    (block,) = json.loads(output)["content"]
    return block["text"]


def test_the_result_is_json_on_stdout(url: str) -> None:
    called = run("call", url, "echo", '{"text": "Grüße\\n"}')
    assert called.status == 0
    assert called.out.count("\n") == 1
    assert text_of(called.out) == "Grüße\n"
    assert called.err == ""


def test_progress_and_disconnections_are_told_on_stderr(url: str) -> None:
    called = run("call", url, "slow", '{"steps": 3, "delay": 0.05}')
    assert called.status == 0
    assert text_of(called.out) == "3 steps done"
    assert "progress 1 of 3: step 1 of 3\n" in called.err
    assert "disconnected (" in called.err
    assert called.err.count("progress") == 3


def test_a_big_result(url: str) -> None:
    called = run("call", url, "big", '{"bytes": 3000000}')
    assert len(text_of(called.out)) == 3_000_000


def test_the_trace_shows_the_conversation_and_no_secret(url: str) -> None:
    called = run("call", url, "echo", '{"text": "a"}', "--trace", "--header", "cookie: sesame")
    assert "client #1 > POST /mcp" in called.err
    assert "sesame" not in called.err
    assert called.status == 0


def test_a_tool_that_fails(url: str) -> None:
    called = run("call", url, "fail", '{"reason": "no paper"}')
    assert called.status == 1
    assert text_of(called.out) == "no paper"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nosuch",), "There is no tool 'nosuch' (code -32602)"),
        (("add", '{"a": 1}'), "add needs b (code -32602)"),
        (("echo", "{"), "The arguments of the tool are not JSON"),
        (("echo", "[]"), "must be a JSON object"),
        (("echo", "{}", "--header", "nonsense"), "Not a header: 'nonsense'; write 'Name: value'"),
        (("echo", "{}", "--header", "a b: c"), "Not the name of a header"),
        (("echo", "{}", "--header", "Host: c"), "'host' is set by the client itself"),
        (("echo", "{}", "--header", "a: b\r\nc: d"), "Not usable as an HTTP header value"),
        (("echo", "{}", "--timeout", "0"), "Not a number of seconds above zero"),
        (("slow", '{"steps": 1, "delay": 9}', "--timeout", "0.2"), "no answer within 0.2 s"),
    ],
)
def test_errors_are_one_line(url: str, arguments: tuple[str, ...], message: str) -> None:
    called = run("call", url, *arguments)
    assert called.status == 1
    assert called.out == ""
    assert called.err.startswith("sansmcp: ")
    assert message in called.err
    assert called.err.count("\n") == 1


def test_a_wrong_path_is_told_with_the_servers_own_words(url: str) -> None:
    called = run("call", url.replace("/mcp", "/other"), "echo")
    assert called.status == 1
    assert "/other was answered with HTTP 404: Nothing is served at this path" in called.err


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1/mcp", "Connection refused"),
        ("http://name.invalid/mcp", "initialize was not answered: "),
        ("ftp://127.0.0.1/", "Not an http or https URL"),
        ("localhost", "Not an http or https URL"),
        ("http://user:secret@localhost/", "must not contain a user name"),
    ],
)
def test_what_cannot_be_reached(url: str, message: str) -> None:
    called = run("call", url, "echo")
    assert called.status == 1
    assert message in called.err
    assert called.err.count("\n") == 1
    assert "secret" not in called.err
