"""The messages of a client as bytes, and the HTTP headers that repeat parts of them.

How a message is written depends on what client and server have agreed. Without a handshake every
request and notification says in its ``_meta`` which version it is of, and a request who makes it
and what that client can do.

Source: 2026-07-28 basic: ``_meta``; basic/transports: Standard Headers; SEP-2575; SEP-2243.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import attrs

from ..codecs import jsonrpc
from ..codecs.headers import Headers
from ..events import ToolRejected
from ..messages import ErrorResponse, Notification, Params, Request, Response
from ..meta_keys import CAPABILITIES, CLIENT_INFO, VERSION
from ..reclaim import CANCEL, EXTENSION
from .call_keys import FIRST, NEW_CONNECTION, Next
from .http_heads import trace_headers
from .options import ClientOptions
from .outcomes import Agreed
from .request import PendingRequest
from .tool_headers import ToolHeaders

_NO_META: Params = MappingProxyType({})


@attrs.define(eq=False, repr=False)
class MessageEncoder:
    """Writes messages as the revision in use requires it."""

    options: ClientOptions
    _tools: ToolHeaders | None
    """None on stdio, where no headers repeat parts of messages."""
    agreed: Agreed = attrs.field(factory=Agreed, init=False)
    """What client and server have negotiated."""
    mirroring: ToolHeaders | None = attrs.field(default=None, init=False)
    """What HTTP headers must repeat of messages; None if they need not."""
    _meta: Params = attrs.field(default=_NO_META, init=False)
    """The members of ``_meta`` of a request; empty after a handshake."""

    def agree(self, agreed: Agreed) -> None:
        """Write the messages from now on as it was negotiated."""
        self.agreed, self._meta = agreed, _NO_META
        self.mirroring = self._tools if agreed.revision.mirrored_headers else None
        if agreed.is_modern:
            options = self.options
            meta: dict[str, Any] = {VERSION: agreed.revision.name}
            meta[CAPABILITIES] = options.declared_capabilities
            if not options.anonymous:
                meta[CLIENT_INFO] = options.info
            self._meta = meta

    def request(self, request: PendingRequest) -> bytes:
        """Encode the next JSON-RPC request of a call, or one of the client's own."""
        meta, capabilities = self._meta, request.options.capabilities
        if capabilities is not None and meta:
            meta = {**meta, CAPABILITIES: capabilities}
        return request.encode(meta)

    def request_headers(self, request: PendingRequest) -> Headers:
        """Return the headers that what :meth:`request` has encoded needs."""
        method, params = request.method, request.params or _NO_META
        if request.key is None or request.key.next in FIRST:
            return self._headers_for(method, params)
        if request.key.next is Next.REST:
            method, params = EXTENSION, _NO_META
        return (*self._headers_for(method, params), NEW_CONNECTION)

    def message(self, message: Request | Notification | Response | ErrorResponse) -> bytes:
        """Encode a message that is sent for itself."""
        if isinstance(message, Request | Notification) and self._meta:
            meta = self._meta
            if isinstance(message, Notification):
                meta = {VERSION: meta[VERSION]}
            given = message.params or {}
            params = {**given, "_meta": {**given.get("_meta", {}), **meta}}
            message = attrs.evolve(message, params=params)
        return jsonrpc.encode(message)

    def message_headers(
        self, message: Request | Notification | Response | ErrorResponse
    ) -> Headers:
        """Return the headers that what :meth:`message` has encoded needs."""
        if isinstance(message, Request | Notification):
            headers = self._headers_for(message.method, message.params or {})
            return (*headers, NEW_CONNECTION) if message.method == CANCEL else headers
        return ()

    def check_params(self, method: str, params: Params | None) -> None:
        """Raise LocalProtocolError for an argument that its header cannot repeat exactly."""
        if self.mirroring is not None:
            self.mirroring.validate_mirrored_params(method, params)

    def record_tools(self, result: Any) -> tuple[Any, list[ToolRejected]]:
        """Record the headers of listed tools.

        Returns the list without the tools whose definitions are invalid, and these tools with the
        reasons.
        """
        return (result, []) if self.mirroring is None else self.mirroring.record(result)

    def _headers_for(self, method: str, params: Params) -> Headers:
        traced = trace_headers(params, self.options.headers)
        if self.mirroring is None:
            return traced
        return (*self.mirroring.headers_for(method, params), *traced)
