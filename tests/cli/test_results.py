"""What is printed of results, also of those that no schema allows."""

from __future__ import annotations

import base64
import io
import json
import time
from typing import Any

import pytest

from sansmcp_cli._display import show_text, show_value

from .conftest import failed, run, run_in_process
from .plain_server import plain_server


def text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value}


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", ["[" * 2_000_000, "[a" * 1_000_000], ids=lambda text: text[:6])
def test_drawing_a_text_takes_linear_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for links from each bracket to the end of the text would take hours."""
    terminal = _Tty()
    monkeypatch.setattr("sys.stdout", terminal)
    show_text(text)
    assert text[:20] in terminal.getvalue()


@pytest.mark.parametrize("language", ["ng2", "amdgpu", "actionscript", "ambienttalk"])
def test_no_language_of_a_block_of_code_makes_it_slow(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name would choose a lexer, and those take time that is quadratic in some texts."""
    monkeypatch.setattr("sys.stdout", _Tty())
    code = {"ng2": "(", "amdgpu": "a"}.get(language, '"\\') * 20_000
    began = time.process_time()
    show_text(f"```{language}\n{code}\n```")
    assert time.process_time() - began < 4


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_text_within_json_begins_a_line(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = _Tty() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    value = {"a": "x\u2028sansmcp: y\u2029sansmcp: z\x85sansmcp: \nsansmcp: "}
    show_value(value)
    assert not any(line.startswith("sansmcp") for line in stream.getvalue().splitlines())
    if not is_terminal:
        assert json.loads(stream.getvalue()) == value


RESULTS: list[tuple[dict[str, Any], str]] = [
    ({"content": [text("fine")]}, "fine\n"),
    ({"content": [], "structuredContent": {"sum": 3}}, '{\n  "sum": 3\n}\n'),
    ({"structuredContent": {"sum": 3}}, '{\n  "sum": 3\n}\n'),
    ({"content": None, "structuredContent": [3]}, "[\n  3\n]\n"),
    ({"content": [text("fine")], "structuredContent": None}, "fine\n"),
    (
        {"content": [text("see structuredContent")], "structuredContent": {"sum": 3}},
        'see structuredContent\n{\n  "sum": 3\n}\n',
    ),
    ({"content": [text('{"sum":3}')], "structuredContent": {"sum": 3}}, '{"sum":3}\n'),
    ({"content": [text("5")], "structuredContent": {"result": 5}}, "5\n"),
    ({"content": [text("five")], "structuredContent": {"result": "five"}}, "five\n"),
    ({}, ""),
    ({"content": "fine"}, "fine\n"),
    ({"content": text("fine")}, "fine\n"),
    ({"content": ["fine", 3]}, "fine\n3\n"),
    ({"content": [{"text": "fine"}, {"type": "error", "text": "bad"}]}, "fine\nbad\n"),
    ({"content": [{"type": "json", "json": 3}]}, '{\n  "type": "json",\n  "json": 3\n}\n'),
    ({"content": [{"type": "text"}, text(None), None, text("fine")]}, "fine\n"),
    ({"content": [text(42), text({"sum": 3})]}, '42\n{\n  "sum": 3\n}\n'),
    ({"content": [{"type": "resource"}]}, '{\n  "type": "resource"\n}\n'),
    ({"content": [{"type": "image"}]}, '{\n  "type": "image"\n}\n'),
    (
        {"content": [{"type": "image", "data": "data:image/png;base64,AAAA", "mimeType": "a/b"}]},
        "[image, a/b, 3 bytes]\n",
    ),
    ({"toolResult": "fine"}, "fine\n"),
    ({"content": [text("fine")], "isError": None}, "fine\n"),
]


@pytest.mark.parametrize(("result", "shown"), RESULTS)
def test_the_result_of_a_tool(result: dict[str, Any], shown: str) -> None:
    with plain_server({"tools/call": result}) as url:
        called = run_in_process("call", url, "t", "{}")
        assert (called.status, called.out, called.err) == (0, shown, "")
        called = run_in_process("call", url, "t", "{}", "--json")
        assert json.loads(called.out) == result


@pytest.mark.parametrize("content", ["fine", ["fine"], [text("fine")], text("fine")])
def test_a_message_of_a_prompt(content: Any) -> None:
    with plain_server({"prompts/get": {"messages": [{"role": "user", "content": content}]}}) as url:
        assert run_in_process("prompt", url, "p").out == "user:\nfine\n"


DATA = bytes({*range(256)} - {13}) * 2  # text streams would change a carriage return


@pytest.mark.parametrize(
    "blob",
    [
        base64.b64encode(DATA).decode(),
        base64.encodebytes(DATA).decode(),
        base64.encodebytes(DATA).decode().replace("\n", "\r\n"),
        base64.urlsafe_b64encode(DATA).decode(),
        base64.urlsafe_b64encode(DATA).decode().rstrip("="),
        "data:image/png;base64," + base64.b64encode(DATA).decode(),
    ],
)
def test_the_bytes_of_a_resource(blob: str) -> None:
    with plain_server({"resources/read": {"contents": [{"uri": "a:b", "blob": blob}]}}) as url:
        read = run("read", url, "a:b", encoding="latin-1")
    assert (read.status, read.err) == (0, "")
    assert read.out.encode("latin-1") == DATA


@pytest.mark.parametrize("blob", ["!", "A", "ä", None, 5])
def test_bytes_that_are_none_are_an_error(blob: Any) -> None:
    with plain_server({"resources/read": {"contents": [{"uri": "a:b", "blob": blob}]}}) as url:
        said = failed(run_in_process("read", url, "a:b"))
    assert said == "The server sent bytes of a:b that are not base64"
