"""The library has no error codes but those that the protocol has."""

from __future__ import annotations

import pytest

from .sources import core

STANDARD = {32700, 32600, 32601, 32602, 32603}
MODERN = {32020, 32021, 32022}
"""Header mismatch, missing capability, unsupported version."""

RETIRED = {32002, 32042}
"""Known to be replaced, and never sent."""


@pytest.mark.requirement("JSONRPC-B-047", "JSONRPC-B-048", "JSONRPC-B-050")
def test_error_codes_are_those_of_the_protocol() -> None:
    codes = {
        literal.value
        for module in core()
        for literal in module.literals()
        if type(literal.value) is int and 32000 <= literal.value <= 32768
    }
    assert codes == STANDARD | MODERN | RETIRED
