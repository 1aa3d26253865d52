"""The keys that we put into ``_meta``: well formed, and only those that the protocol has."""

from __future__ import annotations

import re

import pytest

from sansmcp import meta

LABEL = r"[a-zA-Z](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
NAME = r"[a-zA-Z0-9](?:[a-zA-Z0-9._-]*[a-zA-Z0-9])?"
KEY = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*/)?(?:{NAME})?")

OURS = [
    value
    for name, value in vars(meta).items()
    if name[0].isupper() and isinstance(value, str) and "protocol/" in value
]


@pytest.mark.requirement(
    "JSONRPC-B-041", "JSONRPC-B-042", "JSONRPC-B-043", "JSONRPC-B-044", "JSONRPC-B-045"
)
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
