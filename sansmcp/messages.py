"""The four kinds of JSON-RPC message that MCP knows, as plain values.

A message is a request (has ``id`` and ``method``), a notification (``method`` only), a response
(``id`` and ``result``) or an error response (``error``, and ``id`` when the faulty request's id
could be read). The classes say nothing about bytes; :mod:`sansmcp.codecs.jsonrpc` turns them into
bytes and back. They are not frozen, since that more than doubles what it costs to make one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

RequestId: TypeAlias = int | str
"""A JSON-RPC id. Two ids are the same when JSON type and value are the same: ``1`` is not ``"1"``.
"""

Params: TypeAlias = Mapping[str, Any]
"""Parameters: MCP allows a JSON object only, never a list."""


@attrs.define
class Request:
    """A call that wants an answer. Source: every revision, basic: Requests."""

    id: RequestId
    method: str
    params: Params | None = None


@attrs.define
class Notification:
    """A message that wants no answer. Source: every revision, basic: Notifications."""

    method: str
    params: Params | None = None


@attrs.define
class Response:
    """The result of a request. Source: every revision, basic: Responses."""

    id: RequestId
    result: Any


@attrs.define
class ErrorResponse:
    """The error that a request ended with; ``id`` is None where the request's was unreadable."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse
