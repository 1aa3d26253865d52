"""Log messages for the operator of a server."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from sansmcp.events import RefusalSent, ServerEvent, StoreFailed

_logger = logging.getLogger("sansmcp")

_UNKNOWN_SESSION = (
    "a request names a session that this process does not know; it has expired, or another process "
    "opened it. If several processes serve this URL, give all of them one store "
    "(store=SqliteStore(...), or shared_store=True with a store of your own), send each session to "
    "one process, or set sessions=False"
)

_said = set[str]()
"""The messages of once per process that were logged already."""


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


def log_event(event: ServerEvent, *, shared_store: bool = True) -> None:
    """Log a server event on which the driver does not act, but the operator may have to.

    A store failure is a WARNING the first time, and DEBUG until the store works again. An
    exception that a function of scopes raised is an ERROR. A request for an unknown session is
    logged at DEBUG. If ``shared_store`` is False, the first one in this
    process is a WARNING: the cause may be several processes that serve one URL.
    """
    if isinstance(event, StoreFailed) and not event.again:
        loss = "messages are lost" if event.lost else "a client may be unable to resume"
        _logger.warning("the store has failed, and %s: %s", loss, event.reason)
    elif not shared_store and _names_unknown_session(event) and _UNKNOWN_SESSION not in _said:
        _said.add(_UNKNOWN_SESSION)
        _logger.warning(_UNKNOWN_SESSION)
    elif isinstance(event, RefusalSent) and event.error.reason == "scopes_failed":
        _logger.error("the function of the scopes failed", exc_info=event.error.__cause__)
    else:
        _logger.debug("%r", event)


def _names_unknown_session(event: ServerEvent) -> bool:
    return isinstance(event, RefusalSent) and event.error.reason == "session_not_found"
