"""Log records of handlers, and the calls that they belong to.

A context around all handlers keeps the current call in a context variable. Tasks and threads that a
handler starts inherit it, with ``asyncio.to_thread()`` too.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

import sansmcp
from sansmcp_local import Loop, current_loop

_NUMBERS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""The lowest level of records that a client gets, by the level that it has set."""

_LEVELS = [(name, _NUMBERS[name]) for name in ("critical", "error", "warning", "info")]
"""The levels of messages that come from records; other records are ``debug``."""

_MOST_WAITING = 1000
"""Messages of one call that wait until its client keeps up; further records are dropped."""
_MOST_CLIENTS = 10_000
"""Clients whose level is kept; the one that set its level first is forgotten first."""


@attrs.define(eq=False)
class _Current:
    """The call of a handler that runs."""

    call: Any
    loop: Loop | None
    """The loop of an async handler; None for a plain one."""
    waiting: int = 0
    """The messages that wait until the client keeps up."""


_current: ContextVar[_Current | None] = ContextVar("sansmcp_logging_call", default=None)


class RequestFilter(logging.Filter):
    """Adds ``mcp_request_id`` and ``mcp_method`` to each record; "-" outside of handlers.

    It needs :func:`send_logs`. Add it to a ``logging.Handler`` whose format names these fields.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True: no record is left out."""
        current = _current.get()
        record.mcp_request_id = "-" if current is None else current.call.request_id
        record.mcp_method = "-" if current is None else current.call.method
        return True


def send_logs(
    app: sansmcp.App, logger: str | logging.Logger = "", *, level: int = logging.INFO
) -> logging.Handler:
    """Send the records of a logger that handlers cause to the clients whose calls run.

    Clients set a lower or higher level with ``logging/setLevel`` (until 2025-11-25; kept in this
    process), or ask for messages with each request (2026-07-28). ``app`` gets a handler for
    ``logging/setLevel`` and declares the capability, unless it has one.

    A record is dropped if it belongs to no call, if it is logged while another one is sent, or if
    1,000 messages of its call wait for a client that does not keep up. Tracebacks are not sent. The
    text of a record can contain secrets: choose a logger whose records clients may read.

    Args:
        app: the application.
        logger: the logger or its name; "" is the root of all.
        level: the lowest level for a client that has set none.

    Returns:
        The handler that was added to the logger. Remove it there to end this.
    """
    handler = _ClientHandler(level)
    app.around(handler.current)
    if "logging/setLevel" not in app.handlers:
        app.handler("logging/setLevel", inline=True)(handler.set_level)
    target = logging.getLogger(logger) if isinstance(logger, str) else logger
    target.addHandler(handler)
    return handler


class _ClientHandler(logging.Handler):
    """Sends records to the client of the call that they belong to."""

    def __init__(self, level: int) -> None:
        super().__init__(logging.DEBUG)
        self._level = level
        self._levels: OrderedDict[sansmcp.PeerHandle[Any], int] = OrderedDict()
        """The levels that clients have set, the one that was set first in front."""

    def set_level(self, call: Any) -> dict[str, Any]:
        """Handle ``logging/setLevel``."""
        wanted = call.params.get("level")
        if wanted not in _NUMBERS:
            raise sansmcp.JsonRpcError(-32602, f"level must be one of {', '.join(_NUMBERS)}")
        self._levels[call.peer] = _NUMBERS[wanted]
        if len(self._levels) > _MOST_CLIENTS:
            self._levels.popitem(last=False)
        return {}

    @contextmanager
    def current(self, call: Any) -> Generator[None, None, None]:
        """Keep a call as the current one."""
        loop = None if call.is_blocking else current_loop()
        token = _current.set(_Current(call, loop))
        try:
            yield
        finally:
            _current.reset(token)

    def handle(self, record: logging.LogRecord) -> bool:
        """Send a record unless a filter leaves it out.

        Without the lock that other handlers hold: a plain handler waits in its thread until the
        loop has sent the message, and the loop may log something itself.
        """
        passed: Any = self.filter(record)  # since Python 3.12 this may be another record
        if passed:
            self.emit(record if passed is True else passed)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        current = _current.get()
        if current is None or not self._is_wanted(current.call, record.levelno):
            return
        # What the server logs while it sends a record is not sent, nor what its tasks log later:
        # each record would make further ones.
        token = _current.set(None)
        try:
            level = _level_of(record.levelno)
            text = record.getMessage()
            if current.loop is None:
                current.call.log(level, text, logger=record.name)
            elif current.loop.is_here():
                _send(current, level, text, record.name)
            else:
                current.loop.run_soon(_send, current, level, text, record.name)
        except sansmcp.RequestCancelled:
            pass  # the handler notices that by itself
        except Exception:
            self.handleError(record)
        finally:
            _current.reset(token)

    def _is_wanted(self, call: Any, number: int) -> bool:
        if call.peer.revision.era is sansmcp.Era.MODERN:
            return True  # the core knows what the request has asked for
        return number >= self._levels.get(call.peer, self._level)


def _level_of(number: int) -> str:
    """Return the level of the message for a record."""
    return next((name for name, least in _LEVELS if number >= least), "debug")


def _send(current: _Current, level: str, text: str, logger: str) -> None:
    """Send a message in the loop, and wait in a task until the client keeps up."""
    assert current.loop is not None
    if current.waiting < _MOST_WAITING:
        current.waiting += 1
        current.loop.spawn(_wait, current, current.call.log(level, text, logger=logger))


async def _wait(current: _Current, done: Awaitable[None]) -> None:
    try:
        await done
    finally:
        current.waiting -= 1
