"""The four kinds of JSON-RPC message of MCP, as plain values.

A message is a request (has ``id`` and ``method``), a notification (``method`` only), a response
(``id`` and ``result``) or an error response (``error``, and ``id`` when the faulty request's id
could be read). :mod:`sansmcp.codecs.jsonrpc` encodes and decodes them. They are not frozen, because
that more than doubles the cost of creating one.
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
    """A message that requires a response. Source: every revision, basic: Requests."""

    id: RequestId
    method: str
    params: Params | None = None


@attrs.define
class Notification:
    """A message without a response. Source: every revision, basic: Notifications."""

    method: str
    params: Params | None = None


@attrs.define
class Response:
    """The result of a request. Source: every revision, basic: Responses."""

    id: RequestId
    result: Any


@attrs.define
class ErrorResponse:
    """The error of a request; ``id`` is None if that of the request could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse
