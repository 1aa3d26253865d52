"""What an import brings along: names of modules, since times differ with every machine."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from .sources import ROOT, Module, adapters, core

VOCABULARY = {
    "app",
    "codecs",
    "errors",
    "http",
    "_lazy",
    "limits",
    "messages",
    "revisions",
    "scopes",
    "store",
    "types",
}
"""The parts of the core that everybody gets."""

MACHINE = {
    "addresses",
    "credentials",
    "effects",
    "events",
    "meta_keys",
    "observer",
    "process",
    "rates",
    "reclaim",
    "server_call",
    "states",
    "tasks",
    "timers",
    "trace",
    "input_required",
    "http11_parser",
}
SERVER = {"authentication", "protected_resource", "security", "server", "shares"}

BRINGS = {
    "import sansmcp": VOCABULARY,
    "from sansmcp import SseDecoder": VOCABULARY,
    "from sansmcp import Client": VOCABULARY | MACHINE | {"auth", "client"},
    "from sansmcp import Server": VOCABULARY | MACHINE | SERVER,
    "from sansmcp import ClientConnection": VOCABULARY | MACHINE | {"auth", "client", "http11"},
    "from sansmcp import ServerConnection": VOCABULARY
    | MACHINE
    | SERVER
    | {"h11_parser", "http11"},
    "import sansmcp_blocking": VOCABULARY,
}
"""The parts of the core that are there after an import, and no others."""

MORE_OF_PYTHON = {
    "base64",
    "binascii",
    "gc",
    "hashlib",
    "heapq",
    "hmac",
    "importlib",
    "ipaddress",
    "json",
    "math",
    "struct",
    "typing_extensions",
    "urllib",
}
"""What the core brings of the standard library that ``attrs`` and ``msgspec`` have not, in some
version of Python; before 3.11 with typing_extensions, for what came to the standard library then.
"""

FOR_BLOCKING = MORE_OF_PYTHON | {
    "array",
    "atexit",
    "bisect",
    "dataclasses",
    "errno",
    "fcntl",
    "locale",
    "logging",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "string",
    "subprocess",
    "traceback",
}

EXTRA = {
    "import sansmcp": MORE_OF_PYTHON,
    "from sansmcp import Client": MORE_OF_PYTHON,
    "from sansmcp import Server": MORE_OF_PYTHON,
    "import sansmcp_blocking": MORE_OF_PYTHON,
    "from sansmcp_blocking import Client, PendingCall, connect": FOR_BLOCKING,
}

APART = {
    "from sansmcp_local import ConcurrentClient, ThreadPool, ThreadedServerDriver, connect_fetch": {
        "asyncio",
        "sansmcp_local._loop",
        "trio",
        "yaml",
    },
    "from sansmcp_local import Client, ClientGroup, HttpServing, RunningServer": {
        "asyncio.events",
        "trio",
        "yaml",
    },
    "from sansmcp_local import ConnectOptions, ServeOptions, read_servers": {
        "asyncio",
        "sansmcp_local._loop",
        "sansmcp_local._threads",
        "yaml",
    },
    "from sansmcp_auth import FileCredentials, KeyringCredentials, LoopbackLogin, print_login": {
        "joserfc",
        "keyring",
        "sansmcp_auth._fetch",
    },
    "from sansmcp_auth import IntrospectionVerifier, JoseSigner, JwtVerifier, fetch": {
        "keyring",
        "sansmcp_auth._loopback",
        "webbrowser",
    },
    "from sansmcp_telemetry import RequestFilter, send_logs": {"opentelemetry"},
    "from sansmcp_telemetry import ClientObserver, ServerObserver, trace_handlers": {
        "sansmcp_telemetry._logging",
    },
    "from sansmcp_pytest import Answer, client_checks, server_checks": {
        "pytest",
        "sansmcp_pytest._client",
    },
    "from sansmcp_pytest import Client, Network, Server": {"sansmcp_pytest._checks"},
    "import sansmcp_pytest._plugin": {"sansmcp", "sansmcp_pytest._checks"},
}
"""Imports of one part of a package, and modules that only another part needs."""

HALVES = {
    "sansmcp_asgi": ("", "AsgiApp, Call, asgi_app"),
    "sansmcp_asyncio": ("Client, connect", "Call, RunningServer, serve"),
    "sansmcp_blocking": ("Client, PendingCall, connect", "Call, RunningServer, serve"),
    "sansmcp_httpx": (
        "Client, BlockingClient, connect, connect_blocking, events, events_blocking",
        "",
    ),
    "sansmcp_pyodide": ("Client, connect", ""),
    "sansmcp_trio": ("Client, connect", "Call, RunningServer, serve"),
    "sansmcp_wsgi": ("", "Call, WsgiApp"),
}
"""The names for clients and those for servers."""

CLIENT_HALF = [f"from {adapter} import {names}" for adapter, (names, _) in HALVES.items() if names]
SERVER_HALF = [f"from {adapter} import {names}" for adapter, (_, names) in HALVES.items() if names]


def loaded(code: str) -> set[str]:
    """The modules that some code loads, beyond those of ``attrs``, ``jiter`` and ``msgspec``."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, attrs, jiter, msgspec.json\nbefore = set(sys.modules)\n"
            f"{code}\nprint(*set(sys.modules) - before)",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "adapters")))},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(done.stdout.split())


def parts(modules: Iterable[str]) -> set[str]:
    """The parts of the core that modules belong to."""
    return {name.split(".")[1] for name in modules if name.startswith("sansmcp.")}


def packages(modules: Iterable[str]) -> set[str]:
    """The packages that are not ours, without the inner parts of the interpreter."""
    tops = {name.partition(".")[0] for name in modules}
    return {top for top in tops if not top.startswith(("_", "sansmcp"))}


@pytest.mark.parametrize("code", BRINGS)
def test_an_import_brings_what_is_used_of_it(code: str) -> None:
    assert parts(loaded(code)) == BRINGS[code]


@pytest.mark.parametrize("code", EXTRA)
def test_an_import_brings_no_more_of_the_standard_library(code: str) -> None:
    assert packages(loaded(code)) <= EXTRA[code]


@pytest.mark.parametrize("code", CLIENT_HALF)
def test_who_connects_imports_no_server(code: str) -> None:
    modules = loaded(code)
    assert "server" not in parts(modules)
    assert "sansmcp.drivers.server" not in modules


@pytest.mark.parametrize("code", CLIENT_HALF)
def test_a_client_imports_the_flow_of_oauth_if_it_has_authorization(code: str) -> None:
    assert not loaded(code) & {"sansmcp.auth.flow", "sansmcp.client.authorizing"}


@pytest.mark.parametrize("code", SERVER_HALF)
def test_who_serves_imports_no_client(code: str) -> None:
    assert "client" not in parts(loaded(code))


@pytest.mark.parametrize("code", APART)
def test_a_part_of_a_package_needs_nothing_of_another(code: str) -> None:
    assert loaded(code) & APART[code] == set()


# Names that come later


def told(module: Module) -> dict[str, str]:
    """The names that a package tells to type checkers alone, and where they are."""
    return {
        name: home
        for part in module.imports()
        if part.is_for_types
        for home, _, name in (part.name.rpartition("."),)
    }


PACKAGES = [
    module
    for module in (*core(), *(package[0] for package in adapters().values()))
    if module.is_package and told(module)
]


@pytest.mark.parametrize("module", PACKAGES, ids=lambda module: module.name)
def test_what_type_checkers_are_told_is_what_there_is(module: Module) -> None:
    package = importlib.import_module(module.name)
    for name, home in told(module).items():
        assert getattr(package, name) is getattr(importlib.import_module(home), name)
    assert set(dir(package)) == vars(package).keys(), "type checkers are not told of these"
    assert set(package.__all__) <= vars(package).keys()


def test_a_name_that_comes_later_is_known_before_and_kept_then() -> None:
    code = """
import sansmcp
assert "Client" in dir(sansmcp) and "Client" not in vars(sansmcp)
sansmcp.Client
assert "Client" in dir(sansmcp) and "Client" in vars(sansmcp)
"""
    assert "sansmcp.client.client" in loaded(code)
