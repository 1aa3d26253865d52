"""One run of a function for a call, in the event loop or in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from sansmcp import BaseCall, JsonRpcError, RequestCancelled
from sansmcp.drivers.server import exited

from ._context import Context, NeedsInput, Questions, ThreadContext
from ._function import Function
from ._log_levels import LogLevels


def run(
    function: Function,
    call: BaseCall[Any, Any],
    arguments: dict[str, Any],
    levels: LogLevels,
    *,
    conclude: Callable[[Any], Any],
    fail: Callable[[Exception], Any],
) -> Any:
    """Call a function, and return the result of the call; for an async function, a coroutine of it.

    Args:
        function: the function.
        call: the call.
        arguments: the arguments, converted already.
        levels: those of the log messages.
        conclude: makes the result of what the function returns.
        fail: makes the result of what the function, or ``conclude``, raises. JsonRpcError and
            cancellations are not passed to it.
    """
    kind = Context if function.is_async else ThreadContext
    keywords = function.with_context(arguments, lambda: kind(call, Questions(call), levels))
    if function.is_async:
        return _await(function, keywords, conclude, fail)
    try:
        return conclude(function.call(**keywords))
    except BaseException as error:
        return _failed(error, fail)


async def _await(
    function: Function,
    keywords: dict[str, Any],
    conclude: Callable[[Any], Any],
    fail: Callable[[Exception], Any],
) -> Any:
    try:
        return conclude(await function.call(**keywords))
    except BaseException as error:
        return _failed(error, fail)


def _failed(error: BaseException, fail: Callable[[Exception], Any]) -> Any:
    questions = _questions_in(error)
    if questions is not None:
        return questions.required
    if isinstance(error, SystemExit):
        error = exited(error)
    if isinstance(error, Exception) and not isinstance(error, JsonRpcError | RequestCancelled):
        return fail(error)
    raise error


def _questions_in(error: BaseException) -> Questions | None:
    """Return the questions for which a function was left, maybe from within a group of tasks."""
    if isinstance(error, NeedsInput):
        return error.questions
    # Before Python 3.11 groups are those of a backport. Other exceptions may have an attribute of
    # this name, too.
    parts = getattr(error, "exceptions", None)
    if not isinstance(parts, tuple):
        return None
    inner = map(_questions_in, cast("tuple[BaseException, ...]", parts))
    return next((found for found in inner if found is not None), None)
