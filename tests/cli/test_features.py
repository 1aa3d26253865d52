"""``sansmcp list``, ``read``, ``prompt`` and ``raw``, typed arguments, and names of servers."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from sansmcp import App, BaseCall
from sansmcp_cli import main

from .conftest import ADAPTERS, command, failed, run, run_in_process, serving

TYPES = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
        "deep": {"$ref": "#/$defs/deep"},
        "size": {"enum": ["s", "m"]},
        "is": {"type": "boolean"},
        "colours": {
            "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/colour"}}, {"type": "null"}]
        },
    },
    "required": ["n"],
    "$defs": {"deep": {"type": "object"}, "colour": {"enum": ["red", "green"]}},
}

app = App("shop", "1.0")


@app.handler("tools/list", inline=True)
def list_tools(call: BaseCall[Any, Any]) -> dict[str, Any]:
    if "cursor" not in call.params:
        return {"tools": [{"name": "typed", "inputSchema": TYPES}], "nextCursor": "2"}
    free: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {}},
        "additionalProperties": {"type": "integer"},
    }
    return {"tools": [{"name": "free", "description": "Any\u0007\nnumbers.", "inputSchema": free}]}


@app.handler("tools/call", inline=True)
def call_tool(call: BaseCall[Any, Any]) -> dict[str, Any]:
    return {"content": [], "structuredContent": dict(call.params["arguments"])}


@app.handler("resources/list", inline=True)
def list_resources(call: BaseCall[Any, Any]) -> dict[str, Any]:
    return {"resources": [{"uri": "shop://logo", "name": "logo", "mimeType": "image/png"}]}


@app.handler("resources/read", inline=True)
def read_resource(call: BaseCall[Any, Any]) -> dict[str, Any]:
    blob = base64.b64encode(b"\x00\xffPNG").decode()
    return {"contents": [{"uri": "shop://logo", "mimeType": "image/png", "blob": blob}]}


@app.handler("prompts/list", inline=True)
def list_prompts(call: BaseCall[Any, Any]) -> dict[str, Any]:
    arguments = [{"name": "who", "required": True}, {"name": "how", "description": "The tone."}]
    return {"prompts": [{"name": "greet", "arguments": arguments}]}


@app.handler("prompts/get", inline=True)
def get_prompt(call: BaseCall[Any, Any]) -> dict[str, Any]:
    link = {"type": "resource_link", "uri": "shop://logo", "name": "logo"}
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    text = {"type": "text", "text": f"Greet {call.params['arguments']['who']}\u001b[2J"}
    return {"messages": [{"role": "user", "content": each} for each in (text, link, image)]}


@pytest.fixture(scope="module")
def shop() -> Generator[str, None, None]:
    with serving("tests.cli.test_features") as url:
        yield url


def test_a_list_is_plain_text_elsewhere(shop: str) -> None:
    listed = run_in_process("list", shop)
    assert (listed.status, listed.err) == (0, "")
    assert listed.out == (
        "tools:\n"
        "  typed\n"
        "      n=integer from 1\n"
        "      [tags=list of string]\n"
        "      [deep=object]\n"
        "      [size=s | m]\n"
        "      [is=yes or no]\n"
        "      [colours=list of red | green or null]\n"
        "  free                     Any\\u0007 numbers.\n"
        "      [a=any value]\n"
        "\n"
        "resources:\n"
        "  shop://logo              logo (image/png)\n"
        "\n"
        "prompts:\n"
        "  greet\n"
        "      who=text\n"
        "      [how=text]  The tone.\n"
    )


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_all_pages_of_a_list_are_read(shop: str, adapter: str) -> None:
    listed = run_in_process("list", shop, "tools", "--json", "--adapter", adapter)
    assert [tool["name"] for tool in json.loads(listed.out)["tools"]] == ["typed", "free"]


endless = App("endless")


@endless.handler("prompts/list", inline=True)
def list_again(call: BaseCall[Any, Any]) -> dict[str, Any]:
    number = int((call.params or {}).get("cursor", 0))
    return {"prompts": [{"name": f"prompt {number}"}], "nextCursor": str(number + 1)}


bare = App("bare")
bare.handler("com.example/a")(list_again)


@pytest.mark.parametrize("kind", ["tools", "resources", "templates", "prompts"])
def test_a_list_of_what_a_server_does_not_offer(kind: str) -> None:
    with serving("tests.cli.test_features:bare") as url:
        listed = run_in_process("list", url, kind)
        assert (listed.status, listed.out, listed.err) == (0, "", f"no {kind}\n")
        listed = run_in_process("list", url, kind, "--json")
        assert [*json.loads(listed.out).values()] == [[]]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("call", "typed", "n=1"), "tools"),
        (("call", "typed", '{"n": 1}'), "tools"),
        (("read", "shop://logo"), "resources"),
        (("prompt", "greet", "who=Ada"), "prompts"),
        (("prompt", "greet", '{"who": "Ada"}'), "prompts"),
    ],
)
def test_a_use_of_what_a_server_does_not_offer(words: tuple[str, ...], kind: str) -> None:
    """The words are those of the user, and not the method of the protocol that is missing."""
    with serving("tests.cli.test_features:bare") as url:
        used = run_in_process(words[0], url, *words[1:])
    assert (used.status, used.out, used.err) == (1, "", f"sansmcp: The server has no {kind}\n")


forgetful = App("forgetful", capabilities={"tools": {}})


def test_an_offer_that_a_server_does_not_keep() -> None:
    """The fault is that of the server, so the error it sent is shown."""
    with serving("tests.cli.test_features:forgetful") as url:
        used = run_in_process("call", url, "typed", "{}")
    assert used.status == 1
    assert "'tools/call' is not supported (code -32601)" in used.err


def test_a_list_without_an_end_is_cut() -> None:
    with serving("tests.cli.test_features:endless") as url:
        listed = run_in_process("list", url, "prompts", "--json")
    assert len(json.loads(listed.out)["prompts"]) == 100
    assert listed.err == "sansmcp: prompts/list has more than 100 pages; the rest is left out\n"


def test_a_resource_of_bytes_goes_to_a_pipe_as_it_is(shop: str, tmp_path: Path) -> None:
    file = tmp_path / "logo.png"
    with file.open("wb") as stdout:
        import subprocess

        from .conftest import ROOT, environment

        words = command("read", shop, "shop://logo")
        subprocess.run(words, cwd=ROOT, env=environment(), stdout=stdout, check=True, timeout=60)
    assert file.read_bytes() == b"\x00\xffPNG"


def test_a_resource_of_text(url: str) -> None:
    assert run_in_process("read", url, "example://greeting").out == "Hello from sansmcp\n"
    read = run_in_process("read", url, "example://greeting", "--json")
    assert json.loads(read.out)["contents"][0]["mimeType"] == "text/plain"


def test_a_prompt(shop: str) -> None:
    shown = run_in_process("prompt", shop, "greet", "who=Ann")
    assert shown.out.splitlines() == [
        "user:",
        "Greet Ann\\u001b[2J",
        "user:",
        "[shop://logo logo]",
        "user:",
        "[image, image/png, 3 bytes]",
    ]


def test_any_request(shop: str) -> None:
    sent = run_in_process("raw", shop, "tools/list", '{"cursor": "2"}')
    assert json.loads(sent.out)["tools"][0]["name"] == "free"
    assert failed(run_in_process("raw", shop, "no/such")).endswith("(code -32601)")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_arguments_have_the_types_of_the_schema(shop: str, adapter: str) -> None:
    words = ("n=3", "tags=a=b", "tags=2", 'deep={"x": 1}', "size=m", "is=yes")
    called = run_in_process("call", shop, "typed", *words, "--adapter", adapter)
    given = {"n": 3, "tags": ["a=b", "2"], "deep": {"x": 1}, "size": "m", "is": True}
    assert json.loads(called.out) == given
    called = run_in_process("call", shop, "typed", "n=3", "colours=red")
    assert json.loads(called.out) == {"n": 3, "colours": ["red"]}
    called = run_in_process("call", shop, "free", "a=x", "other=5")
    assert json.loads(called.out) == {"a": "x", "other": 5}


SIGNATURE = (
    "; its arguments: typed n=integer from 1 [tags=list of string] [deep=object] [size=s|m] "
    "[is=yes or no] [colours=list of red|green or null]"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("call", "typed"), f"typed needs n{SIGNATURE}"),
        (("call", "typed", "n=1", "m=2"), f"typed takes no 'm'{SIGNATURE}"),
        (("call", "typed", "n=x"), "n must be an integer from 1, got 'x'"),
        (("call", "typed", "n=0"), "n must be 1 or more, got 0"),
        (("call", "typed", "n=1", "n=2"), "n is given 2 times, and takes one value"),
        (("call", "typed", "n=1", "size=l"), "size must be one of s | m, got 'l'"),
        (("call", "typed", "n=1", "colours=b"), "colours must be one of red | green, got 'b'"),
        (("call", "type", "n=1"), "There is no tool 'type'; did you mean typed?"),
        (("call", "xyz"), "There is no tool 'xyz'; there are typed, free"),
        (("call", "typed", "n=1", "2"), "got '2'"),
        (("list", "toys"), "What is 'toys'? Name one kind: tools, resources, templates, prompts"),
        (("read",), "Missing URI of a resource; usage: sansmcp read URL URI"),
        (("read", "a:b", "c"), "Too many words: 'c'; usage: sansmcp read URL URI"),
        (("prompt",), "Missing name of a prompt; usage: "),
        (("prompt", "greet", "Ann"), "The arguments of the prompt are not JSON: "),
        (("prompt", "greet", "who=a", "[]"), "Arguments are NAME=VALUE, or one JSON object"),
        (("prompt", "great", "who=a"), "There is no prompt 'great'; did you mean greet?"),
        (("prompt", "greet"), "greet needs who; its arguments: greet who=text [how=text]"),
        (("prompt", "greet", "who=a", "x=1"), "greet takes no 'x'; its arguments: greet who=text"),
        (("read", "logo"), "Not a URI: 'logo'; the server's are shown by: sansmcp list"),
        (("list", "--answer", "x"), "--answer takes NAME=VALUE, got 'x'"),
        (("raw",), "Missing method; usage: sansmcp raw URL METHOD [JSON]"),
        (("raw", "ping", "["), "The parameters are not JSON: "),
        (("raw", "ping", "[]"), "The parameters must be a JSON object"),
        (("raw", "ping", "--record-secrets"), "--record-secrets is for --record FILE"),
        (("listen", "--count", "0"), "--count must be 1 or more, got 0"),
    ],
)
def test_wrong_usage_is_explained_in_one_line(shop: str, words: tuple[str, ...], said: str) -> None:
    name, *others = words
    assert said in failed(run_in_process(name, shop, *others))


# Names of servers


@pytest.fixture
def folder(config: Path) -> Path:
    """The folder of the configuration."""
    config.parent.mkdir()
    return config.parent


def test_a_name_stands_for_a_url_and_its_headers(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "sesame")
    (folder / "config.toml").write_text(
        f'[servers.shop]\nurl = "{url}"\nheaders = {{ "X-Key" = "${{TOKEN}}" }}\n'
    )
    recording = folder / "recording.jsonl"
    recorded = ("--record", str(recording), "--record-secrets")
    assert run_in_process("call", "shop", "add", "a=1", "b=2", *recorded).out == "3\n"
    assert '["x-key", "sesame"]' in recording.read_text()
    run_in_process("call", "shop", "add", "a=1", "b=2", "--header", "x-key: ours", *recorded)
    assert "sesame" not in recording.read_text()
    assert run_in_process("probe", "shop").out.startswith(url)


def test_a_name_stands_for_a_command_in_the_form_of_other_clients(folder: Path) -> None:
    program, *arguments = command("serve", "--stdio")
    server = {"command": program, "args": arguments, "type": "stdio"}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": server}}))
    called = run("call", "mine", "add", "a=1", "b=2")
    assert (called.out, called.err) == ("3\n", "")
    assert failed(run_in_process("login", "mine")) == (
        "mine is started by a command, and has no URL"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[servers", "Cannot read "),
        ("servers = 1", "'servers' must be a table of servers"),
        ('[servers.a]\nurl = "http://x/"\ncommand = "y"', 'needs either a "url" or a "command"'),
        ('[servers.a]\nurl = "http://x/"\nuri = 1', "has the unknown member 'uri'"),
        ('[servers.a]\ncommand = "x"\nargs = "y"', '"args" must be a list'),
        ('[servers.a]\nurl = "http://x/"\nheaders = 1', '"headers" must be a table of texts'),
        (
            '[servers.a]\nurl = "http://x/"\nheaders = {b = "${NO_SUCH}"}',
            'a: "headers.b" needs the environment variable NO_SUCH, which is not set',
        ),
        ('[servers.ab]\nurl = "http://x/"', "did you mean 'ab'?"),
        (
            '[servers.a]\nurl = "http://x/"\ndisabled = true',
            "The configuration disables 'a'; remove that to use it",
        ),
    ],
)
def test_a_configuration_that_is_wrong(folder: Path, text: str, said: str) -> None:
    (folder / "config.toml").write_text(text)
    assert said in failed(run_in_process("call", "a", "add"))


def test_secrets_are_never_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.toml").write_text(
        '[servers.a]\nurl = "http://127.0.0.1:1/?key=sesame"\n'
        'headers = { authorization = "Bearer sesame" }\n'
    )
    assert main(["call", "--trace", "--timeout", "0.5", "a", "add"]) == 1
    shown = capsys.readouterr()
    assert "127.0.0.1:1" in shown.err
    assert "sesame" not in shown.err + shown.out


def test_the_transport_can_be_named(url: str, folder: Path) -> None:
    """In a file, and by an option: only the one of 2024-11-05 is tried then."""
    entry = {"type": "sse", "url": url}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"old": entry}}))
    for words in (("old",), ("--transport", "sse", url)):
        called = run_in_process("call", *words, "add", "a=1", "b=2")
        assert called.status == 1
        assert "GET" in called.err
    assert run_in_process("call", "old", "add", "a=1", "b=2", "--transport", "http").out == "3\n"
    said = failed(run_in_process("call", "add", "--transport", "sse", "--", "server"))
    assert said == "--transport http or sse is for a URL; a command has stdio-v2"
    said = failed(run_in_process("call", "--transport", "stdio-v2", url, "add"))
    assert said == "--transport stdio-v2 is for a command; a URL has http or sse"


def test_a_process_can_speak_http2(folder: Path) -> None:
    """By an option, and as a file has it."""
    pytest.importorskip("h2")
    command = [sys.executable, "-m", "sansmcp_cli", "serve", "--stdio-v2"]
    words = ("--transport", "stdio-v2", "--inherit-env", "--", *command)
    assert run_in_process("call", "add", "a=1", "b=2", *words).out == "3\n"
    entry = {
        "type": "stdio-v2",
        "command": command[0],
        "args": command[1:],
        # A value with a $ names a variable: make sets such ones.
        "env": {name: value for name, value in os.environ.items() if "$" not in value},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"new": entry}}))
    assert run_in_process("call", "new", "add", "a=1", "b=2").out == "3\n"


def test_the_arguments_of_a_prompt_may_be_an_object(shop: str) -> None:
    got = run_in_process("prompt", shop, "greet", '{"who": "Ann", "how": "well"}', "--json")
    assert "Greet Ann" in json.loads(got.out)["messages"][0]["content"]["text"]


def test_a_program_is_no_url() -> None:
    said = failed(run_in_process("list", "server.py"))
    assert said == "server.py is a program; write it after a double dash: -- python server.py"


def test_the_name_alone_lists_the_commands_in_groups() -> None:
    alone = run_in_process()
    assert (alone.status, alone.out) == (2, "")
    titles = [line for line in alone.err.splitlines() if line.endswith(":") and line[0].isupper()]
    assert titles == [
        "Use a server:",
        "Log in to a server:",
        "Serve:",
        "For developers:",
        "For your shell:",
    ]
    developers = alone.err.partition("For developers:")[2]
    assert all(f"  {name} " in developers for name in ("replay", "chaos", "bench", "demo"))


@pytest.mark.parametrize("name", ["list", "call", "read", "prompt", "raw", "listen"])
def test_the_help_of_a_command_has_groups_and_two_examples(name: str) -> None:
    told = run(name, "--help").out
    assert "\nthe server:\n" in told
    assert "\nwhat is shown:\n" in told
    assert told.partition("\nexamples:\n")[2].count("  sansmcp ") == 2
