"""The core is pure: it neither imports nor calls what does I/O, keeps time or is random."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sansmcp

from .sources import Import, Module, core

PURE = {
    "__future__",
    "abc",
    "attrs",
    "base64",
    "binascii",
    "collections",
    "contextlib",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "hmac",
    "inspect",
    "itertools",
    "json",
    "math",
    "re",
    "sansmcp",
    "types",
    "typing",
    "urllib.parse",
}
"""What any module may import, with everything in it."""

IN_ONE_PLACE = {
    "datetime": ("sansmcp.server.modern.task_record",),
    "gc": ("sansmcp.codecs.json",),
    "h11": ("sansmcp.h11_parser",),
    "h2": ("sansmcp.http2",),
    "httptools": ("sansmcp.httptools_parser",),
    "importlib": ("sansmcp._lazy",),
    "ipaddress": ("sansmcp.addresses", "sansmcp.http11.proxy", "sansmcp.server.addresses"),
    "jiter": ("sansmcp.codecs.json",),
    "msgspec": ("sansmcp.codecs.conversion", "sansmcp.codecs.json", "sansmcp.codecs.members"),
    "sys": ("sansmcp.types",),
    "typing_extensions": ("sansmcp.types",),
    "unicodedata": ("sansmcp.relay",),
}
"""What only some modules or packages may import."""

IMPURE_NAMES = {
    "__builtins__",
    "__import__",
    "breakpoint",
    "eval",
    "exec",
    "input",
    "open",
    "print",
}

NOT_LOADED = {
    "asyncio",
    "http.client",
    "logging",
    "mcp",
    "socket",
    "ssl",
    "trio",
}
"""What must not be there after an import of the core; its dependencies bring some other things."""


def impurities(module: Module) -> list[str]:
    found = [
        f"{module.name}:{imported.line}: imports {imported.name}"
        for imported in module.imports()
        if not is_allowed(imported, module.name)
    ]
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id in IMPURE_NAMES
        ):
            found.append(f"{module.name}:{node.lineno}: uses {node.id}")
    return found


def is_allowed(imported: Import, importer: str) -> bool:
    parts = imported.name.split(".")
    names = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return not names.isdisjoint(PURE) or importer.startswith(IN_ONE_PLACE.get(parts[0], ()))


def test_the_core_is_pure() -> None:
    assert [line for module in core() for line in impurities(module)] == []


def test_everything_on_the_lists_is_needed() -> None:
    imported = {part.name for module in core() for part in module.imports()}
    listed = PURE | IN_ONE_PLACE.keys()
    assert {
        name for name in listed if not any(f"{each}.".startswith(f"{name}.") for each in imported)
    } == set()


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import random",
        "from urllib import request",
        "import urllib.request",
        "import asyncio as json",
        "from logging import *",
        "def later():\n    import threading",
        "if TYPE_CHECKING:\n    import socket",
        "import h11",
        "from msgspec.json import decode",
        "from typing_extensions import Unpack",
        "import sansmcp_trio",
        "print('hello')",
        "def read(path):\n    return open(path).read()",
        "show = print",
        "eval('1')",
        "exec('')",
        "breakpoint()",
        "__import__('time')",
    ],
)
def test_what_is_not_pure_is_found(source: str) -> None:
    assert len(impurities(Module("sansmcp.codecs.sse", source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sansmcp.h11_parser", "import h11"),
        ("sansmcp.codecs.json", "import msgspec.json as fast"),
        ("sansmcp.http", "from urllib.parse import urlsplit"),
        ("sansmcp.http", "from collections.abc import Callable"),
        ("sansmcp.http", "from .client import client"),
        ("sansmcp.types", "from typing_extensions import Unpack"),
    ],
)
def test_what_is_allowed_is_not_found(name: str, source: str) -> None:
    assert impurities(Module(name, source)) == []


def test_importing_the_core_loads_nothing_that_does_io() -> None:
    code = """if True:
        import sys
        before = set(sys.modules)
        import sansmcp.testing
        from sansmcp import *
        print(*set(sys.modules) - before)
    """
    place = str(Path(sansmcp.__file__).parents[1])
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": place},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert {"sansmcp.testing", "sansmcp.client.client", "sansmcp.server.server"} <= set(loaded)
    assert NOT_LOADED.intersection(loaded) == set()
