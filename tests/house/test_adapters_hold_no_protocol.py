"""Adapters only perform, and are small: all that MCP and HTTP say is said in the core."""

from __future__ import annotations

import functools
import re

import pytest

from .sources import Module, adapter_parts, core

NO_ADAPTERS = {
    "sansmcp_bridge",
    "sansmcp_cli",
    "sansmcp_local",
    "sansmcp_local._loop",
    "sansmcp_pytest._checks",
    "sansmcp_telemetry",
    "sansmcp_tools",
}
"""A bridge, a command and what is built of handlers, such as tools made from functions, are
applications: they may name methods and headers. Checks of adapters are the other side of the
protocol. What adapters share of the local machine and of event loops is no adapter: it never sees
the protocol.
"""

COMMON = {"127.0.0.1", "http", "https", "latin-1", "localhost", "replace", "sansmcp", "utf-8"}
"""Words of the core that are no protocol: about addresses and encodings, and our own name."""

OWN_WORDS = {
    "sansmcp_asgi": {"body", "client", "headers", "method", "path", "status", "type"},
    "sansmcp_auth": {"alg", "ec", "es", "es256", "es384", "p-256", "p-384", "ps", "rs", "rsa"}
    | {"g", "json", "lock", "s"},
    "sansmcp_httpx": {"asyncclient", "client"},
    "sansmcp_pyodide": {"body", "headers", "method", "redirect"},
    "sansmcp_pytest": {"client", "connection", "failed", "refuse", "s", "server"},
    "sansmcp_stores": {"0", "1", "data", "message", "result", "retry", "subscribe", "type"},
    "sansmcp_wsgi": {"_", "request_method"},
}
"""What an adapter has to call things because the interface that it serves does so."""

WORD = re.compile(r"\w[\w./+*-]*")
TELLING = re.compile(r"\w[-/_]\w|[a-z][A-Z]")
"""What no plain English word has: ``content-type``, ``tools/call``, ``request_id``, ``isError``."""

NAMESPACE = re.compile(r"\b([a-z]+s|logging|sampling|elicitation|text|application)/\w")
"""How methods and media types begin, of those that the core does not know, too."""


@functools.cache
def words_of_the_core() -> set[str]:
    return {
        text.lower()
        for module in core()
        for literal in module.literals()
        for text in [as_text(literal.value)]
        if WORD.fullmatch(text)
    } - COMMON


def as_text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else ""


def is_protocol(value: object, known: set[str]) -> bool:
    """Whether a literal says something that only the core may know."""
    if type(value) is int:
        return 100 <= value <= 599 or 32000 <= value <= 32768
    text = as_text(value).strip()
    if text.lower() in known or NAMESPACE.search(text):
        return True
    return any(word.lower() in known for word in WORD.findall(text) if TELLING.search(word))


def protocol_in(module: Module, known: set[str]) -> list[str]:
    literals = [
        f"{module.name}:{literal.lineno} has {literal.value!r}"
        for literal in module.literals()
        if is_protocol(literal.value, known)
    ]
    imports = [
        f"{module.name}:{imported.line} imports {imported.name}"
        for imported in module.imports()
        if imported.name.partition(".")[0] in ("http", "json", "h11")
    ]
    return literals + imports


ADAPTERS = {name: modules for name, modules in adapter_parts().items() if name not in NO_ADAPTERS}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_holds_no_protocol(adapter: str) -> None:
    known = words_of_the_core() - OWN_WORDS.get(adapter, set())
    assert [line for module in ADAPTERS[adapter] for line in protocol_in(module, known)] == []


@pytest.mark.parametrize(
    "source",
    [
        "name = b'mcp-session-id'",
        "name = 'Content-Type'",
        "line = b'Content-Type: application/json\\r\\n'",
        "line = f'Last-Event-ID: {cursor}'",
        "accept = 'text/event-stream'",
        "accept = 'image/png' if text else 'text/html'",
        "method = 'initialize'",
        "call('tools/call')",
        "call('notifications/anything')",
        "method = b'POST'",
        "if status == 404: pass",
        "match head.status:\n    case 200: pass",
        "fail(code=-32601)",
        "result = answer['result']",
        "message = {'jsonrpc': version}",
        "token = params['_meta']['progressToken']",
        "version = '2025-11-25'",
        "from http import HTTPStatus",
        "import json",
        "import h11",
    ],
)
def test_protocol_is_found(source: str) -> None:
    assert protocol_in(Module("sansmcp_trio._client", source), words_of_the_core()) != []


@pytest.mark.parametrize(
    "source",
    [
        '"""Answers ``tools/call`` with 200."""',
        "def run():\n    'Sends content-type.'",
        "def run():\n    return 1  # tools/call, 404",
        "log.error('answering %s failed', method)",
        "scheme = 'https'",
        "size = 65536",
        "port = 8000",
        "timeout = 300.0",
        "last = -1",
        "__all__ = ['result', 'initialize']",
    ],
)
def test_what_is_no_protocol_is_not_found(source: str) -> None:
    assert protocol_in(Module("sansmcp_trio._client", source), words_of_the_core()) == []
