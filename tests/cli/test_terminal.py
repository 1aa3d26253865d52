"""At a terminal the command asks what a server asks, and shows tables, Markdown and progress."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sansmcp import JsonRpcError
from sansmcp_cli._display import markdown_of
from sansmcp_cli._form import interview
from sansmcp_cli._output import broken

from .conftest import command, run_in_process, serving
from .plain_server import plain_server
from .terminal import Terminal, at_terminal


@pytest.fixture(scope="module")
def asking() -> Generator[str, None, None]:
    with serving("tests.cli.asking") as url:
        yield url


def answered(terminal: Terminal) -> Any:
    """What the server was told, from the end of the screen."""
    assert terminal.end() == 0, terminal.shown
    _, start, result = terminal.shown.rpartition('{"resultType"')
    return json.loads((start + result).replace("\n", ""))["structuredContent"]


def test_a_form_is_asked_field_by_field(asking: str) -> None:
    with at_terminal("call", "--json", asking, "book") as terminal:
        terminal.expect(f"{asking} asks:\n  Who travels?\\u0007\n")
        terminal.expect("* name (string)\n  As on the\n  ticket\n")
        terminal.answer("name: ", "")
        terminal.answer("name is required\n  name: ", "A")
        terminal.answer("name must have 2 or more characters, got 1\n  name: ", "Ann")
        terminal.answer("* age (integer from 18)\n  age [30]: ", "5")
        terminal.answer("age must be 18 or more, got 5\n  age [30]: ", "")
        terminal.answer("mail [leave out]: ", "nowhere")
        terminal.answer("mail must be an email, got 'nowhere'\n  mail [leave out]: ", "a@b.c")
        terminal.answer("  1) 1st: First\n  2) 2nd: Second\n  class [2nd]: ", "1")
        terminal.answer("  1) fish\n  2) rice\n  meals [leave out]: ", "fish, 2")
        terminal.answer("* At a \\u001b[31mwindow (yes or no)\n  seat: ", "perhaps")
        terminal.answer("seat must be yes or no, got 'perhaps'\n  seat: ", "yes")
        terminal.answer("(yes, no or edit) ", "edit")
        for line in ("Bea", "", "", "", "", "no"):
            terminal.answer(": ", line)
        terminal.answer("(yes, no or edit) ", "yes")
        content = {"name": "Bea", "age": 30, "class": "2nd", "seat": False}
        assert answered(terminal) == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("tool", "question", "key", "told"),
    [
        ("confirm", "(yes or no) ", "y\n", {"action": "accept", "content": {}}),
        ("confirm", "(yes or no) ", "no\n", {"action": "decline"}),
        ("confirm", "(yes or no) ", "\x04", {"action": "cancel"}),
        (
            "pay",
            "page of pay.example:\nhttps://pay.example/now?id=1\nOpen it? (yes or no) ",
            "yes\n",
            {"action": "accept"},
        ),
        ("pay", "Open it? (yes or no) ", "no\n", {"action": "decline"}),
    ],
)
def test_a_person_decides(
    asking: str, tool: str, question: str, key: str, told: dict[str, Any]
) -> None:
    with at_terminal("call", "--json", asking, tool) as terminal:
        terminal.expect(question)
        terminal.type(key)
        assert answered(terminal) == told


def test_one_question_of_yes_or_no_is_asked_once(asking: str) -> None:
    with at_terminal("call", "--json", asking, "agree") as terminal:
        terminal.answer("* agreed (yes or no)\n  agreed: ", "no")
        assert answered(terminal) == {"action": "accept", "content": {"agreed": False}}


FORM = ("--answer", "name=Ann", "--answer", "seat=yes", "--answer", "meals=fish")


@pytest.mark.parametrize("adapter", ["asyncio", "blocking", "trio"])
def test_a_form_can_be_answered_by_options(asking: str, adapter: str) -> None:
    """Without a terminal, on any adapter."""
    words = ("call", "--json", asking, "book", "--adapter", adapter)
    called = run_in_process(*words, *FORM)
    content = {"name": "Ann", "age": 30, "class": "2nd", "meals": ["fish"], "seat": True}
    told = json.loads(called.out)["structuredContent"]
    assert told == {"action": "accept", "content": content}
    called = run_in_process(*words, "--answer", "name=A")
    assert called.err == "sansmcp: --answer name must have 2 or more characters, got 1\n"
    assert json.loads(called.out)["structuredContent"] == {"action": "decline"}
    called = run_in_process(*words, "--answer", "name=Ann")
    assert called.err == "sansmcp: no --answer for seat, which the server asks\n"


def test_what_options_do_not_answer_is_asked_at_a_terminal(asking: str) -> None:
    with at_terminal("call", "--json", asking, "book", *FORM) as terminal:
        assert answered(terminal)["action"] == "accept"
    with at_terminal("call", "--json", asking, "book", "--answer", "name=Ann") as terminal:
        terminal.expect("no --answer for seat")
        terminal.expect("name: ")
        terminal.type("\x04")
        assert answered(terminal) == {"action": "cancel"}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_it_is_asked_at_earlier_revisions(asking: str, revision: str) -> None:
    with at_terminal("call", "--json", "--revision", revision, asking, "confirm") as terminal:
        terminal.answer("(yes or no) ", "yes")
        assert terminal.end() == 0
        assert '"action": "accept"' in terminal.shown.replace("\n", "")


def test_a_server_on_stdio_asks_as_well() -> None:
    """It is named by what it says of itself, and by the command that has started it."""
    server = command("serve", "tests.cli.asking", "--stdio")
    with at_terminal("call", "confirm", "--", *server) as terminal:
        terminal.expect(") asks:\n  Really?\n")
        terminal.answer(") ", "yes")
        terminal.expect("told")
        assert terminal.end() == 0
    # The command is a path of any length, so the line may be broken anywhere.
    assert f"{server[0]}('asking')asks:" in re.sub(r"\s", "", terminal.shown)


def test_ctrl_c_at_a_question(asking: str) -> None:
    with at_terminal("call", asking, "confirm") as terminal:
        terminal.expect("(yes or no) ")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "Traceback" not in terminal.shown


def test_no_page_but_of_the_web_is_opened(asking: str) -> None:
    with at_terminal("call", asking, "steal") as terminal:
        assert terminal.end() == 1
        assert "url must be an http or https URL" in terminal.shown


OTHER_HOSTS = [
    r"https://evil.example\@good.example/",
    r"https:\\evil.example",
    "https://%65vil.example/",
    "https://127%2e0.0.1/",
    "https://\uff11\uff12\uff17.0.0.1/",
    "https://p\u0430y.example/",
]


@pytest.mark.parametrize("url", OTHER_HOSTS)
def test_no_page_is_opened_of_another_host_than_the_one_shown(url: str) -> None:
    """Browsers take a backslash for a slash, undo escapes, and map what looks alike."""
    asked = {"mode": "url", "message": "Pay", "url": url}
    with pytest.raises(JsonRpcError, match="url must be"):
        next(interview(asked, "server", lambda url: None))


@pytest.mark.parametrize(
    "char", ["\0", "\x01", "\t", "\n", "\r", " ", "\x7f", "\x85", "\u2028", "\ud800"]
)
@pytest.mark.parametrize(
    "url",
    [
        "{}https://a.example/",
        "https://a.ex{}ample/",
        "https://a.example/{}x",
        "https://a.example/{}",
    ],
)
def test_no_page_is_opened_of_a_url_with_blanks_or_control_characters(url: str, char: str) -> None:
    """The parser leaves some of them out, and a program of the browser gets them or cannot."""
    asked = {"mode": "url", "message": "Pay", "url": url.format(char)}
    with pytest.raises(JsonRpcError, match="url must be"):
        next(interview(asked, "server", lambda url: None))


@pytest.mark.parametrize("mode", ["url", "form"])
def test_no_line_of_a_question_looks_like_one_of_the_command(mode: str) -> None:
    line = "It wants you to open this page of good.example:"
    asked = {"mode": mode, "message": f"Pay\n{line}\n", "url": "https://evil.example/"}
    shown = next(interview(asked, "server", lambda url: None)).splitlines()
    assert f"  {line}" in shown
    assert line not in shown
    assert ("It wants you to open this page of evil.example:" in shown) == (mode == "url")


FORGED = "sansmcp: your login has ended. Password of https://bank.example"


def test_no_name_of_a_field_begins_a_line() -> None:
    field = {"type": "string"}
    schema = {"properties": {FORGED: field}, "required": [FORGED]}
    asking = interview({"message": "Hi", "requestedSchema": schema}, "server", lambda url: None)
    shown = [next(asking), asking.send("")]
    lines = [line for text in shown for line in text.split("\n")]
    assert sum(FORGED in line for line in lines) == 4
    assert not any(line.startswith("sansmcp") for line in lines)


@pytest.mark.parametrize("filling", ["x", "\u4e2d", "\u4dc0", "\u2630"])
def test_no_text_of_a_question_goes_on_in_the_first_column(filling: str, tmp_path: Path) -> None:
    """A terminal breaks a long line there."""
    columns = 2 if filling != "x" else 1
    params = {
        "message": filling * (78 // columns) + FORGED,
        "requestedSchema": {
            "properties": {filling * (78 // columns) + FORGED: {"type": "boolean"}}
        },
    }
    server = tmp_path / "server.py"
    server.write_text(ASKING.format(params=params, name="s"), "utf-8")
    words = ("call", "t", "{}", "--", sys.executable, "-X", "utf8", str(server))
    with at_terminal(*words) as terminal:
        terminal.answer("]: ", "yes")
        assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    assert sum(FORGED[:20] in line for line in lines) == 3
    shown = [line.removesuffix("yes") for line in lines if "sansmcp" in line]
    assert max(sum(1 + (char > "\u1100") for char in line) for line in shown) <= 80
    assert not any(line.startswith("sansmcp") for line in lines)


@pytest.mark.parametrize(
    "name", ["sansmcp: your login has ended. Password:", f"x{' ' * 33}sansmcp: Password:"]
)
def test_no_name_of_a_server_begins_a_line(name: str, tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    schema = {"properties": {"name": {"type": "string"}}}
    params = {"message": "Who?", "requestedSchema": schema}
    server.write_text(ASKING.format(params=params, name=name), "utf-8")
    with at_terminal("call", "t", "{}", "--", sys.executable, str(server)) as terminal:
        terminal.answer("]: ", "Ada")
        terminal.answer("(yes, no or edit) ", "yes")
        assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    assert sum("Password" in line for line in lines) == 2
    assert not any(line.startswith("sansmcp") for line in lines)


@pytest.mark.parametrize("width", range(24, 90))
def test_a_long_question_is_broken_between_words(width: int) -> None:
    question = f"Send the answer to {'a/path' * 3} of \u4e2d\u4e2d\u4e2d\u4e2d? (yes or no) "
    lines = broken(question, width)
    assert " ".join(lines).split() == question.split()
    assert max(sum(1 + (char > "\u1100") for char in line) for line in lines) <= width
    assert all(line.startswith("  ") for line in lines[1:])


ASKING = """
import json, sys
def send(message):
    print(json.dumps({{"jsonrpc": "2.0", **message}}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}}}}
        result["serverInfo"] = {{"name": {name!r}, "version": "1"}}
        send({{"id": message["id"], "result": result}})
    elif message.get("method") == "tools/call":
        call = message["id"]
        send({{"id": 77, "method": "elicitation/create", "params": {params!r}}})
    elif message.get("id") == 77:
        send({{"id": call, "result": {{"content": []}}}})
    elif "id" in message:
        send({{"id": message["id"], "error": {{"code": -32601, "message": "no"}}}})
"""


@pytest.mark.parametrize(
    ("tool", "capability"), [("confirm", "elicitation"), ("look", "roots"), ("think", "sampling")]
)
def test_nothing_is_asked_without_a_terminal(asking: str, tool: str, capability: str) -> None:
    called = run_in_process("call", asking, tool)
    assert called.status == 1
    assert f"capability {capability} " in called.err


def test_roots_are_those_of_the_options(asking: str, tmp_path: Path) -> None:
    called = run_in_process("call", "--json", asking, "look", "--root", str(tmp_path))
    root = {"uri": tmp_path.as_uri(), "name": tmp_path.name}
    assert json.loads(called.out)["structuredContent"] == {"roots": [root]}
    called = run_in_process("call", asking, "look", "--root", str(tmp_path / "nosuch"))
    assert called.err.startswith("sansmcp: --root takes a directory, got ")


def test_a_table_fits_the_terminal(url: str) -> None:
    with at_terminal("list", url) as terminal:
        assert terminal.end() == 0
    lines = terminal.shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b[" in terminal.raw
    assert any(line.startswith(" slow ") for line in lines)


WIDE = {
    "tools": [
        {
            "name": f"a_tool_whose_name_is_rather_long_{n}",
            "description": "Describes itself in several words, none of which is torn apart.",
            "inputSchema": {"properties": {"argument_of_the_tool": {"type": "string"}}},
        }
        for n in range(3)
    ]
}


@pytest.mark.parametrize("columns", [40, 80])
def test_names_and_words_stay_whole(columns: int) -> None:
    with plain_server({"tools/list": WIDE}) as url:
        with at_terminal("list", url, "tools", COLUMNS=str(columns)) as terminal:
            assert terminal.end() == 0
        lines = terminal.shown.splitlines()
        assert max(map(len, lines)) <= columns
        for word in (
            "a_tool_whose_name_is_rather_long_2",
            "Describes",
            "apart.",
            "argument_of_the",
        ):
            assert any(word in line for line in lines), terminal.shown
        with at_terminal("call", url, "nosuch", "a=1", COLUMNS=str(columns)) as terminal:
            assert terminal.end() == 1
        lines = terminal.shown.splitlines()
        assert max(map(len, lines)) <= columns
        assert " ".join(line.strip() for line in lines).startswith("sansmcp: There is no tool")


def test_no_name_of_wide_characters_is_cut() -> None:
    """Two tools would have the same name."""
    names = ["\u6f22" * 20 + end for end in ("AAA", "BBB")]
    tools: Any = [{"name": name, "description": "d", "inputSchema": {}} for name in names]
    answers = {"tools/list": {"tools": tools}}
    with plain_server(answers) as url, at_terminal("list", url, "tools") as terminal:
        assert terminal.end() == 0
    assert all(name in terminal.shown for name in names)


def test_markdown_and_json_are_drawn(url: str) -> None:
    with at_terminal("call", url, "echo", "text=# Head\n\n* **bold** [a](http://x.example/)") as it:
        assert it.end() == 0
    assert "Head" in it.shown
    assert "**" not in it.shown
    assert "\x1b]8" not in it.raw  # a link leads where it says, in plain sight
    assert "http://x.example/" in it.shown
    text = "# Head\n```python\nx\n```\n1. a\n1. b\n\n| c | d |\n|---|---|\n| e | \U0001f600 |"
    with at_terminal("call", url, "echo", f"text={text}") as it:
        assert it.end() == 0
    assert "```" not in it.shown
    assert "|---" not in it.shown
    with at_terminal("call", url, "echo", 'text={"a": [1]}') as it:
        assert it.end() == 0
    assert '{\n  "a": [\n    1\n  ]\n}' in it.shown


@pytest.mark.parametrize(
    "text",
    [
        "<a>\n- b\n</a>",
        "**a** <b c=d>",
        "<!-- a -->\n# b",
        "# b\n\n[//]: # (hidden)",
        "# b\n\n> [x]: http://x.example/",
        "# b [x][]\n\n[x]: http://x.example/ 'hidden'",
        "# b [x][]\n\n[x]: http://x.example/\n[x]: http://hidden.example/",
        "# b [x](http://x.example/ 'hidden')",
        "# b [![x](http://hidden.example/)](http://x.example/)",
        "# b\n```hidden words\nx\n```",
    ],
)
def test_markdown_of_which_something_is_not_drawn_is_shown_whole(url: str, text: str) -> None:
    with at_terminal("call", url, "echo", f"text={text}") as terminal:
        assert terminal.end() == 0
    assert text in terminal.shown


@pytest.mark.parametrize(
    "text",
    [
        "# b [x][hidden]\n\n[hidden]: http://x.example/",
        f"{'> ' * 25}hidden",
        "\n".join(f"{'  ' * each}- {each}" for each in range(12)),
        "| b |\n|---|\n| c | hidden |",
        f"|{'b|' * 30}\n|{'-|' * 30}\n|{'b|' * 28}hidden|hidden|",
        f"|{'b|' * 30}\n|{'-|' * 30}\n|{'b|' * 29}\U0001f600|",
    ],
)
def test_markdown_of_which_the_parser_or_rich_leaves_something_out_is_not_drawn(text: str) -> None:
    console = Console(file=io.StringIO(), width=80)
    assert markdown_of(text, console) is None
    assert markdown_of("# b\n\n- **c**\n\n| d | e |\n|---|---|\n| 1 | 2 |", console)


def test_a_text_that_would_take_long_to_draw_is_shown_as_it_is(url: str) -> None:
    with at_terminal("call", url, "echo", f"text=# Head\n{'- x ' * 25_000}") as terminal:
        assert terminal.end() == 0
    assert terminal.shown.startswith("# Head\n- x - x")


def test_no_character_of_a_server_acts_on_the_terminal(url: str) -> None:
    text = "a\u001b[2Jb\u0007\r**c**\u202e [red]d[/red] :smile:"
    with at_terminal("call", url, "echo", f"text={text}") as terminal:
        assert terminal.end() == 0
    assert "\x1b[2J" not in terminal.raw
    assert "\x07" not in terminal.raw
    assert "\u202e" not in terminal.raw
    assert "\\u001b[2Jb\\u0007" in terminal.shown
    assert "[red]d[/red] :smile:" in terminal.shown


def test_progress_is_a_bar(url: str) -> None:
    with at_terminal("call", url, "slow", "steps=3", "delay=0.2") as terminal:
        terminal.expect("step 1 of 3")
        terminal.expect("3 steps done")
        assert terminal.end() == 0
    assert "progress 1 of 3" not in terminal.shown
    assert "━" in terminal.shown


def test_without_rich_it_is_plain_text(url: str, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError('rich')\n")
    with at_terminal("list", url, "prompts", PYTHONPATH=_first(tmp_path)) as terminal:
        assert terminal.end() == 0
    assert terminal.raw == terminal.shown.replace("\n", "\r\n")
    assert terminal.shown.startswith("prompts:\n  greet")


def _first(folder: Path) -> str:
    from .conftest import environment

    return f"{folder}:{environment()['PYTHONPATH']}"
