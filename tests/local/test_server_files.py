"""Files of servers as clients write them: members, variables, comments, entries that are wrong."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sansmcp import LocalProtocolError
from sansmcp_local import ServerFile, parse_servers, read_servers

URL = "http://127.0.0.1:1/mcp"
PROCESS = {"command": "run", "args": ["a"]}
REMOTE = {"url": URL}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES_SET", "v")
    monkeypatch.setenv("FILES_EMPTY", "")
    monkeypatch.setenv("FILES_NESTED", "${FILES_SET}")
    monkeypatch.setenv("FILES_PORT", "8000")
    monkeypatch.delenv("FILES_UNSET", raising=False)


def read(**entries: Any) -> ServerFile:
    return read_servers({"mcpServers": entries})


def settings(entry: Any) -> dict[str, Any]:
    """What ``connect()`` is given for an entry."""
    found = read(it=entry)
    assert found.failures == {}
    server = found.servers["it"]
    return {"target": server.target, **server.settings}


def why(entry: Any) -> str:
    """Why an entry cannot be used."""
    found = read(it=entry, good=PROCESS)
    assert [*found.servers] == ["good"]
    return str(found.failures["it"])


@pytest.mark.parametrize(
    ("document", "names"),
    [
        ({"mcpServers": {"a": PROCESS}}, ["a"]),
        ({"mcpServers": {}}, []),
        ({"servers": {"a": PROCESS}, "inputs": []}, ["a"]),
        ({"mcp": {"servers": {"a": PROCESS}}, "editor.fontSize": 12}, ["a"]),
        ({"a": PROCESS, "b": REMOTE}, ["a", "b"]),
        ({}, []),
    ],
)
def test_where_the_table_is(document: Any, names: list[str], tmp_path: Path) -> None:
    assert [*read_servers(document).servers] == names
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))
    assert [*read_servers(file).servers] == names


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"context_servers": {}, "theme": "One"}, "at its top it has 'context_servers', 'theme'"),
        ({"mcpServers": []}, "'mcpServers' must be a table of servers"),
        ({"mcp": {"servers": 1}}, "'mcp.servers' must be a table of servers"),
        ([], "at its top it has none"),
    ],
)
def test_no_table(document: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))
    with pytest.raises(LocalProtocolError, match=said):
        read_servers(file)


PLAIN = json.dumps({"mcpServers": {"a": {"command": "run", "args": ["// ,]", "/* */"]}}}, indent=1)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        b"\xef\xbb\xbf" + PLAIN.encode(),
        PLAIN.encode("utf-16"),
        b"\xfe\xff" + PLAIN.encode("utf-16-be"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace('"args"', '// "mine\n"args"').encode(),
        PLAIN.replace('"args"', '/* "off\n for now */ "args"').encode(),
        PLAIN.replace("\n   ]", ",/* end */\n ]").replace("}", ",\n}").encode(),
    ],
)
def test_json_as_people_have_it(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(data)
    server = read_servers(file).servers["a"]
    assert server.target == ["run", "// ,]", "/* */"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{\n  // one\n  "a": oops\n}', "line 3 column 8"),
        (b"\xff\xff", "Cannot read"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": /*' * 50_000, "is not JSON: "),
        (b'"' + b"\\" * 50_001, "is not JSON: "),
        (b" " * (4 << 20) + b"{}", "more than 4194304 bytes"),
    ],
    ids=["line", "bytes", "deep", "comments", "text", "big"],
)
def test_what_is_no_json(data: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(data)
    with pytest.raises(LocalProtocolError, match=said):
        read_servers(file)
    with pytest.raises(LocalProtocolError, match="Cannot read"):
        read_servers(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("entry", "given"),
    [
        ({**PROCESS, "type": "stdio"}, {"target": ["run", "a"], "env": {}}),
        (
            {**PROCESS, "type": "stdio-v2"},
            {"target": ["run", "a"], "env": {}, "transport": "stdio-v2"},
        ),
        (
            {**PROCESS, "type": "local", "cwd": "/x"},
            {"target": ["run", "a"], "env": {}, "cwd": "/x"},
        ),
        ({"command": "run"}, {"target": ["run"], "env": {}}),
        ({"type": "http", "url": URL}, {"target": URL, "headers": []}),
        ({"type": "streamableHttp", "url": URL}, {"target": URL, "headers": []}),
        ({"transport": "streamable_http", "url": URL}, {"target": URL, "headers": []}),
        (
            {"type": "sse", "url": URL},
            {"target": URL, "headers": [], "transports": ("http+sse",)},
        ),
        ({"serverUrl": URL}, {"target": URL, "headers": []}),
        ({"httpUrl": URL, "url": "http://other/"}, {"target": URL, "headers": []}),
        ({"command": "", "url": URL}, {"target": URL, "headers": []}),
        ({**PROCESS, "url": URL, "type": "stdio"}, {"target": ["run", "a"], "env": {}}),
        ({**PROCESS, "url": URL, "type": "http"}, {"target": URL, "headers": []}),
        (
            {"command": None, "args": None, "env": None, "headers": None, "cwd": None, "url": URL},
            {"target": URL, "headers": []},
        ),
        (
            {"command": "run", "args": [8080, True, 1.5], "env": {"A": 1, "B": False, "C": None}},
            {"target": ["run", "8080", "true", "1.5"], "env": {"A": "1", "B": "false"}},
        ),
        ({"url": URL, "headers": {"X": 5}}, {"target": URL, "headers": [("X", "5")]}),
    ],
)
def test_what_an_entry_means(entry: Any, given: dict[str, Any]) -> None:
    assert settings(entry) == given


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${FILES_SET}", "v"),
        ("a${env:FILES_SET}b${FILES_SET}", "avbv"),
        ("${FILES_UNSET:-d}", "d"),
        ("${FILES_EMPTY:-d}", "d"),
        ("${FILES_EMPTY}", ""),
        ("${env:FILES_SET:-d}", "v"),
        ("${FILES_UNSET:-}", ""),
        ("${FILES_UNSET:-a:-b}", "a:-b"),
        ("${FILES_NESTED}", "${FILES_SET}"),
        ("$${FILES_SET}", "${FILES_SET}"),
        ("$$${FILES_SET}", "$${FILES_SET}"),
        ("$FILES_SET $ %FILES_SET% {FILES_SET}", "$FILES_SET $ %FILES_SET% {FILES_SET}"),
    ],
)
def test_variables(text: str, value: str) -> None:
    process = {"command": text, "args": [text], "env": {"A": text}}
    found = settings(process if value else {**process, "command": "x"})
    assert found["target"][1:] == [value]
    assert found["target"][0] == (value or "x")
    assert found["env"] == {"A": value}
    assert settings({"url": URL, "headers": {"A": text}})["headers"] == [("A", value)]
    assert settings({"command": "x", "cwd": f"/{text}"})["cwd"] == f"/{value}"


def test_variables_of_a_url() -> None:
    url = "http://127.0.0.1:${FILES_PORT}/${FILES_UNSET:-mcp}"
    assert settings({"url": url})["target"] == "http://127.0.0.1:8000/mcp"
    assert settings({"url": "${FILES_UNSET:-http://a.example}/x"})["target"] == "http://a.example/x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${FILES_UNSET}", "needs the environment variable FILES_UNSET, which is not set"),
        ("${env:FILES_UNSET}", "needs the environment variable FILES_UNSET, which is not set"),
        ("${input:key}", "has '${input:key}', and only ${NAME}, ${env:NAME} and"),
        ("${}", "has '${}'"),
        ("a${FILES_SET", "has '${FILES_SET'"),
        ("${FILES_UNSET:=d}", "has '${FILES_UNSET:=d}'"),
        ("${FILES_UNSET:-${FILES_SET}}", "has '${FILES_UNSET:-${FILES_SET}'"),
        (
            "${workspaceFolder}/x",
            "needs the environment variable workspaceFolder",
        ),
    ],
)
def test_a_variable_that_is_not_understood_is_named(text: str, said: str) -> None:
    for entry, place in (
        ({"command": text}, '"command"'),
        ({"command": "x", "args": [text]}, '"args"'),
        ({"command": "x", "cwd": text}, '"cwd"'),
        ({"command": "x", "env": {"A": text}}, '"env.A"'),
        ({"url": text}, "the URL"),
        ({"url": URL, "headers": {"A": text}}, '"headers.A"'),
    ):
        assert f"the mapping: it: {place} {said}" in why(entry)


def test_no_value_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES_KEY", "sesame")
    entry = {"command": "${FILES_KEY}", "args": ["${FILES_KEY}"], "env": {"A": "${FILES_KEY}"}}
    assert "sesame" not in repr(read(it={**entry, "cwd": "${FILES_KEY}"}))
    assert "sesame" not in repr(read(it={"url": "http://${FILES_KEY}/", "headers": {"A": "b"}}))
    monkeypatch.setenv("FILES_KEY", "ses ame\n")
    for wrong in (
        {"url": "http://a.example/${FILES_KEY}"},
        {"url": "${FILES_KEY}"},
        {"url": URL, "headers": {"X": "${FILES_KEY}"}},
    ):
        assert "ses" not in why(wrong)


WRONG: list[tuple[Any, str]] = [
    ({}, 'needs either a "url" or a "command"; it has no members'),
    ({"comand": "x", "é": 1}, "; it has 'comand' (did you mean 'command'?), 'é'"),
    ({"args": ["x"]}, 'needs either a "url" or a "command"'),
    ({**PROCESS, **REMOTE}, 'needs either a "url" or a "command"'),
    ("oops", "must be a table of members"),
    (None, "must be a table of members"),
    ({"type": "http", **PROCESS}, 'has no "url", which its type needs'),
    ({"type": "stdio", **REMOTE}, 'has no "command", which its type needs'),
    ({"type": "stdio-v2", **REMOTE}, 'has no "command", which its type needs'),
    ({"type": "sse"}, 'has no "url", which its type needs'),
    ({"type": "ws", **REMOTE}, "\"type\" must be stdio, stdio-v2, http or sse, got 'ws'"),
    ({"transport": 5, **REMOTE}, '"transport" must be stdio, stdio-v2, http or sse, got 5'),
    ({"url": "not a url"}, "Not an http or https URL"),
    ({"url": "http://127.0.0.1:1/a b"}, "percent-encode"),
    ({"url": 5}, "Not an http or https URL"),
    ({"url": URL, "headers": {"X": "ä\n"}}, "'x' has characters that cannot be sent"),
    ({"url": URL, "headers": {"a b": "c"}}, "A header name must be"),
    ({"url": URL, "headers": {"host": "c"}}, "is set by the client itself"),
    ({"url": URL, "headers": ["a"]}, '"headers" must be a table of texts'),
    ({"url": URL, "headers": {"X": ["a"]}}, '"headers.X" must be a text'),
    ({"command": ["a"]}, '"command" must be a text'),
    ({"command": "a", "args": "b"}, '"args" must be a list'),
    ({"command": "a", "args": [{}]}, '"args" must be a text'),
    ({"command": "a", "args": [None]}, '"args" must be a text'),
    ({"command": "a", "env": {"B": {}}}, '"env.B" must be a text'),
    ({"command": "a", "cwd": ["b"]}, '"cwd" must be a text'),
    ({"command": "a\0b"}, '"command" has a NUL character'),
    ({"command": "a", "disabled": "perhaps"}, '"disabled" must be true or false'),
]


@pytest.mark.parametrize(("entry", "said"), WRONG)
def test_an_entry_that_is_wrong_leaves_the_others(entry: Any, said: str) -> None:
    assert said in why(entry)


@pytest.mark.parametrize(
    ("flags", "is_off"),
    [
        ({"disabled": True}, True),
        ({"enabled": False}, True),
        ({"disabled": "true"}, True),
        ({"disabled": False, "enabled": True}, False),
        ({"disabled": None, "enabled": None}, False),
        ({"disabled": False, "enabled": False}, True),
    ],
)
def test_disabled(flags: dict[str, Any], is_off: bool) -> None:
    found = read(it={**PROCESS, **flags}, good=PROCESS)
    assert ("it" in found.servers) is not is_off
    assert found.disabled == (("it",) if is_off else ())
    assert found.failures == {}


def test_a_disabled_entry_may_be_wrong_otherwise() -> None:
    assert read(it={"disabled": True, "command": "${FILES_UNSET}"}).failures == {}


def test_what_is_ignored_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sansmcp")
    read(
        a={**PROCESS, "autoApprove": [], "timeout": 60, "tools": ["*"]},
        b={**REMOTE, "envFile": "${workspaceFolder}/.env", "headres": {"X": "secret"}},
    )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the mapping has members that are ignored here: b: envFile, headres"),
        ("INFO", "the mapping has members that are ignored here: a: autoApprove, timeout"),
    ]


def test_no_name_of_a_file_begins_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """A file can come from anyone."""
    evil = "a\nsansmcp: all is well\u2028\x1b[2J"
    found = parse_servers(
        {
            evil: 5,
            f"{evil}1": {"command": "x", "env": {evil: []}},
            f"{evil}2": {"command": "x", "type": "odd"},
            f"{evil}3": {"command": "x", evil: 1},
        },
        "file",
    )
    assert len(found.failures) == 3
    texts = [*map(str, found.failures.values()), *caplog.messages]
    assert len(texts) == 4
    assert all(text.isprintable() for text in texts)
    strict = parse_servers({evil: {"command": "x", "odd": 1}}, "file", is_strict=True)
    assert str(strict.failures[evil]).isprintable()
