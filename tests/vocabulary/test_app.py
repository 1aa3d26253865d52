"""The application table."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import pytest

from sansmcp import App, LocalProtocolError, Notification, Peer, Request
from sansmcp.app import is_async

from ..handlers import nothing

requirement = pytest.mark.requirement


@requirement("LIFECYCLE-S-007", "LIFECYCLE-S-001")
def test_a_handler_declares_its_capability() -> None:
    app = App("name", "1.2", "hint", capabilities={"tools": {"listChanged": True}, "x": {}})

    @app.handler("tools/list")
    @app.handler("resources/list")
    def handler(call: object) -> None: ...

    assert app.handlers["tools/list"] is handler
    assert app.initialize_result("2025-11-25") == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "resources": {}, "x": {}},
        "serverInfo": {"name": "name", "version": "1.2"},
        "instructions": "hint",
    }
    app.handler("resources/subscribe")(handler)
    assert app.initialize_result("x")["capabilities"]["resources"] == {"subscribe": True}


def test_what_a_server_says_about_itself() -> None:
    icons = [{"src": "https://example.com/i.png", "mimeType": "image/png"}]
    app = App("n", title="t", description="d", icons=icons, website_url="https://example.com")
    assert app.initialize_result("2025-11-25")["serverInfo"] == {
        "name": "n",
        "version": "0",
        "title": "t",
        "description": "d",
        "icons": icons,
        "websiteUrl": "https://example.com",
    }


@pytest.mark.parametrize(
    "info",
    [{"title": 1}, {"description": b"x"}, {"website_url": 1}, {"icons": "x"}, {"icons": ["x"]}],
    ids=str,
)
def test_what_a_server_cannot_say_about_itself(info: Any) -> None:
    with pytest.raises(LocalProtocolError):
        App("n", **info)


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
    app.handler("taken")(nothing)
    with pytest.raises(LocalProtocolError):
        app.handler(method)


def test_a_decorator_that_was_not_called() -> None:
    def call_tool(call: object) -> None: ...

    with pytest.raises(LocalProtocolError, match="needs a method"):
        App("a").handler(cast(Any, call_tool))


@pytest.mark.parametrize(
    ("method", "meant"),
    [
        ("tool/call", "tools/call"),
        ("tools/cal", "tools/call"),
        ("Tools/List", "tools/list"),
        ("resources/templates", "resources/templates/list"),
        ("completions/complete", "completion/complete"),
        ("initialise", "initialize"),
    ],
)
def test_a_method_that_is_misspelt(method: str, meant: str) -> None:
    """It was registered, and never called."""
    with pytest.raises(LocalProtocolError, match=f"did you mean '{meant}'"):
        App("a").handler(method)


@pytest.mark.parametrize("method", ["com.example/reindex", "example/tools/call", "tasks/get", "x"])
def test_methods_of_extensions_are_taken(method: str) -> None:
    app = App("a")
    app.handler(method)(print)
    assert app.handler_of(method) is print


def _without() -> None: ...


def _with_two(a: object, b: object) -> None: ...


def _with_keyword(*, call: object) -> None: ...


def _with_any(*_: object) -> None: ...


def _with_default(call: object, more: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("handler", "shown"),
    [
        (_without, "_without() -> 'None' does not take that"),
        (_with_two, "_with_two(a: 'object', b: 'object') -> 'None' does not take that"),
        (_with_keyword, "Write: def _with_keyword(call)"),
    ],
)
def test_a_handler_that_cannot_take_the_call_is_refused(handler: Any, shown: str) -> None:
    """It would fail at the first call otherwise, as an internal error."""
    for register in (App("a").handler("tools/call"), App("b").fallback):
        with pytest.raises(LocalProtocolError, match="gets one argument, the call") as caught:
            register(handler)
        assert shown in str(caught.value)
    with pytest.raises(LocalProtocolError, match="gets two arguments, the peer and the not"):
        App("c").on_notification("notifications/x")(_with_keyword)


@pytest.mark.parametrize("handler", [_with_any, _with_default, iter, dict])
def test_a_handler_that_can_take_the_call(handler: Any) -> None:
    """Some functions of C have no signature that can be read."""
    App("a").handler("tools/call")(handler)
    App("b").fallback(handler)


def test_a_fallback_answers_what_nothing_else_does() -> None:
    """Gateways pass on methods that they have never heard of."""
    app = App("a", capabilities={"tools": {}})
    assert app.handler_of("tools/list") is None

    @app.handler("tools/call")
    def call_tool(call: object) -> None: ...

    @app.fallback
    def pass_on(call: object) -> None: ...

    assert app.handler_of("tools/call") is call_tool
    assert app.handler_of("tools/list") is app.handler_of("com.example/x") is pass_on
    assert app.handler_of("initialize") is app.handler_of("rpc.discover") is None
    assert app.declared_capabilities() == {"tools": {}}
    assert not app.options_of("com.example/x").inline
    with pytest.raises(LocalProtocolError, match="already"):
        app.fallback(call_tool)
    with pytest.raises(LocalProtocolError, match="must be callable"):
        App("b").fallback(cast(Any, None))


async def _async(call: object) -> None: ...


class _AsyncObject:
    async def __call__(self, call: object) -> None: ...


def test_which_handlers_run_in_the_event_loop() -> None:
    """A plain function may block, unless it is said to be quick."""
    app = App("a")
    app.handler("1")(print)
    app.handler("2", inline=True)(print)
    app.handler("3")(_async)
    app.handler("4")(partial(partial(_async)))
    app.handler("5")(_AsyncObject())
    app.fallback(_async)
    inline = [app.options_of(method).inline for method in "123456"]
    assert inline == [False, True, True, True, True, True]


def test_requests_choose_where_they_run() -> None:
    app = App("test")
    app.handler("tools/call", inline=lambda request: request.id == 1)(print)
    app.handler("tools/list", inline=True)(print)
    requests = [Request(1, "tools/call"), Request(2, "tools/call"), Request(3, "tools/list")]
    assert [app.is_inline(request) for request in requests] == [True, False, True]


def _mark(text: str) -> Any:
    @contextmanager
    def enter(call: list[str]) -> Generator[None, None, None]:
        call.append(text)
        yield
        call.append(f"after {text}")

    return enter


def _say(text: str) -> Any:
    def handler(call: list[str]) -> None:
        call.append(text)

    return handler


def test_every_handler_runs_within_the_contexts() -> None:
    app = App("a")
    app.handler("1")(_say("1"))
    app.around(_mark("inner"))
    app.fallback(_say("fallback"))
    outer = _mark("outer")
    assert app.around(outer) is outer
    app.handler("2")(_say("2"))
    for method, last in (("1", "1"), ("2", "2"), ("4", "fallback")):
        said: list[str] = []
        handler = app.handler_of(method)
        assert handler is not None
        handler(said)
        assert said == ["outer", "inner", last, "after inner", "after outer"]


def test_async_handlers_run_within_the_contexts() -> None:
    app = App("a")
    app.around(_mark("a"))
    app.handler("1")(_async)
    app.handler("2")(_AsyncObject())
    for method in "12":
        said: list[str] = []
        handler = app.handler_of(method)
        assert handler is not None
        assert is_async(handler)
        assert app.options_of(method).inline
        with pytest.raises(StopIteration):
            handler(said).send(None)
        assert said == ["a", "after a"]


def test_mixed_handlers_run_within_the_contexts() -> None:
    """A handler of all tools returns an awaitable for those that are async functions."""
    app = App("a")
    app.around(_mark("a"))

    def handle(call: Talk) -> Any:
        return _async(call) if call.is_async else call.append("plain")

    app.handler("tools/call", inline=lambda request: True)(handle)
    app.around(_mark("b"))
    handler = app.handler_of("tools/call")
    assert handler is not None
    for is_blocking, is_async_tool in ((True, False), (False, True), (False, False)):
        call = Talk()
        call.is_blocking, call.is_async = is_blocking, is_async_tool
        result = handler(call)
        if not is_blocking:
            assert call == []
            with pytest.raises(StopIteration):
                result.send(None)
        done = [] if is_async_tool else ["plain"]
        assert call == ["b", "a", *done, "after a", "after b"]


class Talk(list[str]):
    """A call that keeps what happens."""

    is_blocking = is_async = False


def test_what_makes_no_context_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="around\\(\\) needs a function, got 1"):
        App("a").around(cast(Any, 1))


def test_handlers_of_notifications() -> None:
    app = App("a")

    def handler(peer: Peer, notification: Notification) -> None: ...

    async def unfit(peer: Peer, notification: Notification) -> None: ...

    assert app.notification_handler_of("x") is None
    app.on_notification("x")(handler)
    assert app.notification_handler_of("x") is handler
    with pytest.raises(LocalProtocolError, match="already has a handler"):
        app.on_notification("x")
    for wrong in (unfit, 1):
        with pytest.raises(LocalProtocolError, match="must be a plain function"):
            app.on_notification()(cast("Any", wrong))


def test_the_async_functions_of_an_app_are_told() -> None:
    app = App("x", "1")

    @app.handler("tools/list")
    def plain(call: Any) -> None: ...

    @app.handler("tools/call")
    async def waiting(call: Any) -> None: ...

    assert app.async_functions() == ["'tools/call'"]

    @app.fallback
    async def others(call: Any) -> None: ...

    assert app.async_functions() == ["'tools/call'", "the fallback"]
