"""The keys that we put into ``_meta``: well formed, and only those that the protocol has."""

from __future__ import annotations

import re

import pytest

from sansmcp import meta_keys

LABEL = r"[a-zA-Z](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
NAME = r"[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?"
KEY = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*/)?(?:{NAME})?")

OURS = [
    value
    for name, value in vars(meta_keys).items()
    if name[0].isupper() and isinstance(value, str) and "protocol/" in value
]


RESERVED = re.compile(
    r"(?:[^/]+\.)?(?:mcp|modelcontextprotocol)\.[^./]+/.*"  # 2025-06-18
    r"|[^./]+\.(?:mcp|modelcontextprotocol)(?:\.[^/]+)?/.*"  # since 2025-11-25
)


@pytest.mark.requirement("JSONRPC-B-044", "JSONRPC-B-045")
def test_names_that_the_protocol_does_not_have_have_no_prefix_of_its_own() -> None:
    names = [value for value in vars(meta_keys).values() if isinstance(value, str) and "/" in value]
    assert meta_keys.MULTI_TURN in names
    minted = [name for name in names if not name.startswith("io.modelcontextprotocol/")]
    assert [name for name in minted if RESERVED.fullmatch(name)] == []


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("mcp.dev/x", True),
        ("tools.mcp.com/x", True),
        ("dev.mcp/x", True),
        ("io.modelcontextprotocol/x", True),
        ("com.example.mcp/x", False),
        ("mcp/x", False),
    ],
)
def test_which_prefixes_are_reserved(key: str, reserved: bool) -> None:
    assert (RESERVED.fullmatch(key) is not None) is reserved


@pytest.mark.requirement("JSONRPC-B-041", "JSONRPC-B-042", "JSONRPC-B-043")
def test_our_keys_are_well_formed_and_those_of_the_protocol() -> None:
    assert all(KEY.fullmatch(key) for key in OURS)
    assert sorted(OURS) == [
        f"io.modelcontextprotocol/{name}"
        for name in (
            "clientCapabilities",
            "clientInfo",
            "logLevel",
            "protocolVersion",
            "serverInfo",
            "subscriptionId",
        )
    ]


@pytest.mark.parametrize("key", ["1a.b/x", "a-.b/x", "a..b/x", "_x", "x_", "/x", "a/b/c"])
def test_keys_that_are_not_well_formed(key: str) -> None:
    assert KEY.fullmatch(key) is None
