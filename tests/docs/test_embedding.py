"""The code of the guide to embedding runs, and does what the guide says of it."""

from __future__ import annotations

from typing import Any

import pytest

from sansmcp.testing.check_adapter import Check, ClientSubject, client_checks
from sansmcp.testing.check_adapter.fake_server import FakeServer

from .documents import DOCS, blocks

GUIDE = DOCS / "embedding.md"


@pytest.fixture(scope="module")
def code() -> dict[str, Any]:
    """All that the guide defines."""
    names: dict[str, Any] = {"__name__": "embedding"}
    exec(compile("\n".join(blocks(GUIDE, "python")), GUIDE, "exec"), names)
    return names


@pytest.mark.parametrize("check", client_checks(), ids=str)
def test_the_toy_does_what_a_client_has_to_do(
    code: dict[str, Any], check: Check[ClientSubject]
) -> None:
    check(code["ToySubject"]())


def test_the_toy_greets(code: dict[str, Any]) -> None:
    with FakeServer() as server:
        assert code["greet"](server.url) == {"text": "hello"}
