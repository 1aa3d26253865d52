"""Names that client and server share: keys of ``params._meta``, methods, capabilities.

Source: 2026-07-28 basic: ``_meta``; SEP-2575.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .codecs import json
from .errors import LocalProtocolError, check_type
from .messages import Message
from .reclaim import EXTENSION as KEY_OF_CALL

_PREFIX = "io.modelcontextprotocol/"
VERSION = _PREFIX + "protocolVersion"
CAPABILITIES = _PREFIX + "clientCapabilities"
CLIENT_INFO = _PREFIX + "clientInfo"
SERVER_INFO = _PREFIX + "serverInfo"
LOG_LEVEL = _PREFIX + "logLevel"
SUBSCRIPTION_ID = _PREFIX + "subscriptionId"

OWN_META = frozenset((VERSION, CAPABILITIES, CLIENT_INFO, "progressToken", KEY_OF_CALL))
"""The members of ``_meta`` that a client writes itself."""

PROTOCOL_VERSION = b"mcp-protocol-version"
"""The header that names the version of a message."""

MULTI_TURN = "sansmcp/multi-turn-sse"
"""The experimental capability for SEP-1858, declared by both sides."""

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
"""The first notification of a subscription: what the server will tell."""

NOTIFICATIONS = "notifications/"
"""How the methods of all notifications of the protocol begin."""

NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that ``Mcp-Name`` repeats."""

CLIENT_CAPABILITIES = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""The capability that a client must declare to get a server request, by method."""

UPDATED = "notifications/resources/updated"
"""Sent to the clients that have subscribed to a resource, at every revision."""

CHANGED_LISTS: Mapping[str, tuple[str, ...]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": (
        "resources/list",
        "resources/templates/list",
        "skills/list",
    ),
}
"""By notification of a changed list: the methods that read what has changed."""

LOG_MESSAGE = "notifications/message"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The levels of log messages, the least severe first."""


_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_EXTENSION = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def checked_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities as a dict.

    Raises:
        LocalProtocolError: they are not a JSON object, or the name of an extension has no prefix.

    Source: 2026-07-28 basic/versioning: Extension Negotiation.
    """
    check_type(Mapping, capabilities=capabilities)
    checked = dict(capabilities)
    json.encode(checked)
    for name in json.as_object(checked.get("extensions")) or {}:
        if not _EXTENSION.fullmatch(name):
            raise LocalProtocolError(
                f"The name of an extension needs a prefix, as in 'com.example/name': {name!r}"
            )
    return checked


def with_extension(capabilities: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the capabilities with an extension added, without settings, if it is not there."""
    extensions = json.as_object(capabilities.get("extensions")) or {}
    return {**capabilities, "extensions": {name: {}, **extensions}}


def names_multi_turn(capabilities: Mapping[str, Any]) -> bool:
    """Return True if the capabilities of a client or server include SEP-1858."""
    return MULTI_TURN in (json.as_object(capabilities.get("experimental")) or {})


def with_multi_turn(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities with SEP-1858 added."""
    experimental = json.as_object(capabilities.get("experimental")) or {}
    return {**capabilities, "experimental": {**experimental, MULTI_TURN: {"sep": 1858}}}


def meta_of(message: Message) -> dict[str, Any]:
    """Return ``params._meta`` of a message; empty if there is none."""
    params = getattr(message, "params", None)  # responses have none
    return (json.as_object(params.get("_meta")) or {}) if params else {}
