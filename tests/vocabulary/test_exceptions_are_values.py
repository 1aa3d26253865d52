"""Exceptions can be sent to another process, and copied.

A process pool, or a task queue, pickles what a function raises. A class whose constructor takes
more than its text cannot be made again from the text alone, and breaks the pool.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from sansmcp import CallError, Disconnected, JsonRpcError, ProtocolError

ABSTRACT: set[type[BaseException]] = {ProtocolError}
INTERNAL = {"NeedsInput"}
"""What never leaves the call in which it is raised."""

VALUES: dict[str, Any] = {
    "attempts": (Disconnected("lost", method="m"),),
    "body": b"body",
    "challenges": ("Bearer",),
    "code": -1,
    "data": {"a": [1]},
    "headers": ((b"allow", b"GET"),),
    "http_method": "POST",
    "http_status": 406,
    "is_permanent": True,
    "is_request": True,
    "jsonrpc_code": -32000,
    "lines": ("one", "two\x07"),
    "log": ("logged",),
    "message": "what \x1b was wrong",
    "method": "tools/call",
    "output": ("noise",),
    "reason": "why",
    "request_id": 3,
    "result": {"isError": True},
    "scopes": ("read", "write"),
    "seconds": 2.5,
    "status": 404,
    "url": "http://a.example/?token=1",
    "was_sent": False,
    "was_not_run": True,
}
"""A value for each parameter of each constructor."""


def _exceptions() -> Iterator[type[BaseException]]:
    """Every class of exceptions of the core and the adapters."""
    root = Path(__file__).parents[2]
    for package in pkgutil.iter_modules([str(root), str(root / "adapters")]):
        if package.name.startswith("sansmcp"):
            yield from _exceptions_of(package.name)


def _exceptions_of(package: str) -> Iterator[type[BaseException]]:
    path = importlib.import_module(package).__path__
    for found in pkgutil.walk_packages(path, f"{package}."):
        if not found.name.endswith("__main__"):
            try:
                module = importlib.import_module(found.name)
            except ImportError:  # of an extra that this Python has not
                continue
            for value in vars(module).values():
                is_own = isinstance(value, type) and value.__module__ == found.name
                if is_own and issubclass(value, BaseException) and value not in ABSTRACT:
                    yield value


CLASSES = [each for each in _exceptions() if each.__name__ not in INTERNAL]


def _made(kind: type[BaseException]) -> BaseException:
    if not inspect.isfunction(kind.__init__):  # that of a class of Python
        return kind("what was wrong")
    parameters = list(inspect.signature(kind).parameters.values())
    positional = [
        VALUES[each.name] for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    named = {each.name: VALUES[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
    return kind(*positional, **named)


def _seen(value: Any) -> Any:
    """What there is to see of an exception, and of exceptions within it."""
    if isinstance(value, BaseException):
        return type(value), str(value), value.args, {n: _seen(v) for n, v in vars(value).items()}
    if isinstance(value, tuple):
        parts: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return list(map(_seen, parts))
    return value


COPIES: list[Callable[[Any], Any]] = [
    *(
        lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ),
    copy.copy,
    copy.deepcopy,
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_exception_survives_pickle_and_copy(kind: type[BaseException]) -> None:
    error = _made(kind)
    error.__dict__["task_id"] = "task"  # which clients set later
    for copied in COPIES:
        again = copied(error)
        assert again is not error
        assert _seen(again) == _seen(error)


def test_the_classes_are_found() -> None:
    names = {each.__name__ for each in CLASSES}
    assert {"JsonRpcError", "ToolFailed", "RemoteProtocolError", "ToolError"} <= names


def test_notes_of_attempts_survive() -> None:
    error = Disconnected("lost", method="m", request_id=1)
    error.note_attempts([Disconnected("lost"), JsonRpcError(-1, "no")])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert [type(each) for each in again.attempts] == [Disconnected, JsonRpcError]


class OwnError(CallError):
    """An exception of an application, with a constructor of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(f"number {number}")
        self.number = number


def test_subclasses_of_applications_survive() -> None:
    again = pickle.loads(pickle.dumps(OwnError(3)))
    assert (again.number, str(again)) == (3, "number 3")


def _raise() -> None:
    raise JsonRpcError(-32000, "Not now", {"after": 3}, method="tools/call")


def test_a_process_pool_raises_what_its_function_raised() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(JsonRpcError, match="Not now") as raised,
    ):
        pool.submit(_raise).result()
    assert (raised.value.code, raised.value.data) == (-32000, {"after": 3})
