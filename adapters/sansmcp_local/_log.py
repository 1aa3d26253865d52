"""Log messages for the operator of a server, and for the user of a client."""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections.abc import Sequence

from sansmcp.events import (
    ClocksDiffer,
    InvalidLine,
    Reconnecting,
    RefusalSent,
    ServerEvent,
    StoreFailed,
)
from sansmcp.observer import Observer, both
from sansmcp.trace import Tracer
from sansmcp.types import escape_controls

_logger = logging.getLogger("sansmcp")

_UNKNOWN_SESSION = (
    "a request names a session that this process does not know; it has expired, or another process "
    "opened it. If several processes serve this URL, give all of them one store "
    "(store=SqliteStore(...), or shared_store=True with a store of your own), send each session to "
    "one process, or set sessions=False"
)

_said = set[str]()
"""The messages of once per process that were logged already."""

_refused = set[str]()
"""The warnings of refused hosts and origins that were logged already."""

_OF_PIPES = frozenset(("not_http2", "malformed_http2", "http2_flood"))
"""Why a client on standard input cannot be served; the one that started this process."""

_MAX_REFUSED = 100
"""Most refused hosts and origins that are logged as warnings: clients choose their number."""

_TOKEN_INTERVAL = 60.0
"""Seconds between two warnings of unknown tokens, which clients can send as fast as they like."""

_tokens_warned_at = -math.inf

_PORT = re.compile(r":[0-9]*\Z")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9.:\[\]-]+")


def announce(urls: Sequence[str]) -> None:
    """Log the URLs of a server, or print them to standard error if logging is not set up."""
    if not urls:
        return
    shown = " and ".join(urls)
    if _logger.hasHandlers():
        _logger.info("serving MCP at %s", shown)
    elif sys.stderr is not None:
        print(f"sansmcp: serving MCP at {shown}", file=sys.stderr, flush=True)


def log_unexpected(error: Exception) -> None:
    """Log an exception that is a bug in sansmcp and has ended one connection or call."""
    _logger.error(
        "unexpected error: a connection or a call is given up; please report it", exc_info=error
    )


def log_first_failure(event: Reconnecting) -> None:
    """Log that a server cannot be reached, before the opening is repeated for a while."""
    _logger.warning("%s; trying again", escape_controls(event.reason))


def with_debug_log(observer: Observer | None) -> Observer | None:
    """Return an observer of a client that also logs what is sent and received, and retries.

    That is only so if the logger ``sansmcp`` has the level DEBUG now.
    """
    if not _logger.isEnabledFor(logging.DEBUG):
        return observer
    return both(Tracer("client", _log_line), observer)


def _log_line(line: str) -> None:
    _logger.debug("%s", line)


def log_event(event: ServerEvent, *, shared_store: bool = True) -> None:
    """Log a server event on which the driver does not act, but the operator may have to.

    A store failure is a WARNING the first time, and DEBUG until the store works again. An
    exception that a function of scopes raised is an ERROR. Clocks that differ are a WARNING. A
    refused host or origin is a WARNING, once for each, with the setting that allows it. A request
    for an unknown session is logged at DEBUG. If ``shared_store`` is False, the first one in this
    process is a WARNING: the cause may be several processes that serve one URL.
    """
    if isinstance(event, StoreFailed) and not event.again:
        loss = "messages are lost" if event.lost else "a client may be unable to resume"
        _logger.warning("the store has failed, and %s: %s", loss, event.reason)
    elif isinstance(event, ClocksDiffer):
        kind = "ahead" if event.seconds > 0 else "behind"
        _logger.warning(
            "the clock of another process that serves from this store is %.0f s or more %s of the "
            "clock here: times of tasks are wrong by that; synchronise the clocks",
            abs(event.seconds),
            kind,
        )
    elif not shared_store and _names_unknown_session(event) and _UNKNOWN_SESSION not in _said:
        _said.add(_UNKNOWN_SESSION)
        _logger.warning(_UNKNOWN_SESSION)
    elif isinstance(event, RefusalSent) and event.error.reason == "host_not_allowed":
        _log_refused(_about_host(event.error.data["host"]))
    elif isinstance(event, RefusalSent) and event.error.reason == "origin_not_allowed":
        _log_refused(_about_origin(event.error.data["origin"]))
    elif isinstance(event, RefusalSent) and event.error.reason in _OF_PIPES:
        _logger.warning("%s", escape_controls(event.error.message))
    elif isinstance(event, InvalidLine) and event.error.reason == "not_stdio":
        _logger.warning("%s", event.error.message)
    elif isinstance(event, RefusalSent) and event.error.reason == "unknown_token":
        _log_token()
    elif isinstance(event, RefusalSent) and event.error.reason == "scopes_failed":
        _logger.error("the function of the scopes failed", exc_info=event.error.__cause__)
    else:
        _logger.debug("%r", event)


def _about_host(host: str | None) -> str:
    if host is None:
        return "a request was refused with status 403: it names no host, or several"
    from shlex import quote  # imported here because it is rarely needed

    shown = escape_controls(_PORT.sub("", host))
    return (
        f"a request for the host {shown!r} was refused with status 403. If clients reach this "
        f"server by that name, set allowed_hosts=({shown!r},); sansmcp serve: --allow-host "
        f"{quote(shown)}"
    )


def _about_origin(origin: str) -> str:
    shown = escape_controls(origin)
    refused = f"a request of a web page of the origin {shown!r} was refused with status 403"
    if not _ORIGIN.fullmatch(origin):  # null, which any page can send, or no origin at all
        return refused
    return (
        f"{refused}. If it may use this server, set allowed_origins=({shown!r},) and cors=True; "
        f"sansmcp serve: --cors {shown}"
    )


def _log_refused(message: str) -> None:
    """Log that requests are refused, as a warning unless that was logged before."""
    is_new = message not in _refused and len(_refused) < _MAX_REFUSED
    if is_new:
        _refused.add(message)
    _logger.log(logging.WARNING if is_new else logging.DEBUG, "%s", message)


def _log_token() -> None:
    """Log that a token is refused, as a warning unless there was one in the last minute."""
    global _tokens_warned_at
    now = time.monotonic()
    is_due = now >= _tokens_warned_at + _TOKEN_INTERVAL
    if is_due:
        _tokens_warned_at = now
    _logger.log(
        logging.WARNING if is_due else logging.DEBUG,
        "a request was refused with status 401: its token is none of the StaticTokens",
    )


def _names_unknown_session(event: ServerEvent) -> bool:
    return isinstance(event, RefusalSent) and event.error.reason == "session_not_found"
