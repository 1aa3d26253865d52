"""Wrong uses of a client say what to write instead: in all adapters."""

from __future__ import annotations

import datetime
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import sansmcp
import sansmcp_blocking

from .conftest import Use

Ask = Callable[[Use], Any]

SETTINGS = "idempotent, meta, reset_on_progress, timeout, total_timeout"


WRONG: list[tuple[Use, str]] = [
    (
        lambda client: client.call_tool("price", nights=1),
        "call_tool() got an unexpected keyword argument 'nights'. The settings of a call are "
        f"{SETTINGS}. Arguments of the tool are one dict: call_tool(name, {{'nights': 1}})",
    ),
    (
        lambda client: client.call_tool("price", time_out=1),
        "call_tool() got an unexpected keyword argument 'time_out'; did you mean 'timeout'?",
    ),
    (
        lambda client: client.call("tools/list", time_out=1),
        "call() got an unexpected keyword argument 'time_out'; did you mean 'timeout'?",
    ),
]


@pytest.mark.parametrize(("use", "text"), WRONG)
def test_an_argument_that_is_none_is_named(ask: Ask, use: Use, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        ask(use)
    assert str(caught.value).startswith(text)


def test_another_wrong_type_of_an_argument_is_told_as_before(ask: Ask) -> None:
    with pytest.raises((TypeError, sansmcp.LocalProtocolError)) as caught:
        ask(lambda client: client.call_tool("price", timeout="soon"))
    assert "keyword" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (datetime.date(2026, 7, 28), "date; write it as text with isoformat()"),
        (datetime.datetime(2026, 7, 28, 1, 2), "datetime; write it as text with isoformat()"),
        ({1}, "set"),
    ],
)
def test_an_argument_that_is_not_json_is_named_without_our_recursion(
    ask: Ask, value: Any, what: str
) -> None:
    with pytest.raises(sansmcp.LocalProtocolError) as caught:
        ask(lambda client: client.call_tool("price", {"on": [{"day": value}]}))
    assert str(caught.value) == f"Not a JSON value: $.arguments.on[0].day is of type {what}"
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback (most recent call last)") == 1
    assert "_encodable" not in shown


def test_a_blocking_client_in_two_threads(url: str) -> None:
    entered, leave = threading.Event(), threading.Event()
    with sansmcp_blocking.connect(url) as client:

        def use() -> None:
            with client._calls.using():  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
                entered.set()
                assert leave.wait(30)

        thread = threading.Thread(target=use)
        thread.start()
        assert entered.wait(30)
        with pytest.raises(sansmcp.LocalProtocolError, match="open one in each thread"):
            client.call_tool("fits")
        leave.set()
        thread.join()


class Failing(sansmcp.Observer):
    """Raises TypeError for a reason of its own."""

    def call_started(
        self, call: int, method: str, params: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        if method == "tools/call":
            raise TypeError("of the observer")
        return {}


def test_a_type_error_of_the_application_is_not_explained(url: str) -> None:
    with (
        sansmcp_blocking.connect(url, observer=Failing()) as client,
        pytest.raises(TypeError, match="of the observer"),
    ):
        client.call_tool("fits", timeout=30)
