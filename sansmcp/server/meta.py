"""What messages of the stateless revisions say about themselves: ``params._meta``.

Source: 2026-07-28 basic: ``_meta``; SEP-2575.
"""

from __future__ import annotations

from typing import Any

from ..codecs import json
from ..messages import Message, Notification, Request

_PREFIX = "io.modelcontextprotocol/"
VERSION = _PREFIX + "protocolVersion"
CAPABILITIES = _PREFIX + "clientCapabilities"
CLIENT_INFO = _PREFIX + "clientInfo"
SERVER_INFO = _PREFIX + "serverInfo"
LOG_LEVEL = _PREFIX + "logLevel"
SUBSCRIPTION_ID = _PREFIX + "subscriptionId"

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""Of log messages, the least important first."""


def meta_of(message: Message) -> dict[str, Any]:
    """``params._meta``; empty where there is none."""
    params = message.params if isinstance(message, Request | Notification) else None
    return json.as_object((params or {}).get("_meta")) or {}
