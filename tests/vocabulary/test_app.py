"""The application table."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sansmcp import App, LocalProtocolError

requirement = pytest.mark.requirement


@requirement("LIFECYCLE-S-007", "LIFECYCLE-S-001")
def test_a_handler_declares_its_capability() -> None:
    app = App("name", "1.2", "hint", capabilities={"tools": {"listChanged": True}, "x": {}})

    @app.handler("tools/list")
    @app.handler("resources/list")
    def handler() -> None: ...

    assert app.handlers["tools/list"] is handler
    assert app.initialize_result("2025-11-25") == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "resources": {}, "x": {}},
        "serverInfo": {"name": "name", "version": "1.2"},
        "instructions": "hint",
    }
    app.handler("resources/subscribe")(handler)
    assert app.initialize_result("x")["capabilities"]["resources"] == {"subscribe": True}


def test_an_app_without_anything() -> None:
    assert App("name").initialize_result("v") == {
        "protocolVersion": "v",
        "capabilities": {},
        "serverInfo": {"name": "name", "version": "0"},
    }


@requirement("JSONRPC-B-021")
@pytest.mark.parametrize("method", ["initialize", "ping", "rpc.discover", "taken"])
def test_methods_that_have_their_answer_already_are_refused(method: str) -> None:
    app = App("name")
    app.handler("taken")(lambda: None)
    with pytest.raises(LocalProtocolError):
        app.handler(method)


def test_a_decorator_that_was_not_called() -> None:
    def call_tool(call: object) -> None: ...

    with pytest.raises(LocalProtocolError, match="Name the method"):
        App("a").handler(cast(Any, call_tool))
