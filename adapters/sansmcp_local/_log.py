"""What whoever runs a server finds in its log."""

from __future__ import annotations

import logging

from sansmcp.events import ServerEvent, StoreFailed

_logger = logging.getLogger("sansmcp")


def log_event(event: ServerEvent) -> None:
    """Log what needs nothing to be done by the server, but perhaps by whoever runs it."""
    if isinstance(event, StoreFailed):
        loss = "messages are lost" if event.lost else "a client may be unable to resume"
        _logger.warning("the store has failed, and %s: %s", loss, event.reason)
    else:
        _logger.debug("%r", event)
