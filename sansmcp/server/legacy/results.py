"""The form of the results of the handshake revisions, and their input requests.

Source: 2024-11-05 to 2025-11-25, basic: Responses.
"""

from __future__ import annotations

from typing import Any

import attrs

from ...codecs.jsonrpc import INVALID_REQUEST
from ...errors import LocalProtocolError
from ...input_required import InputRequired
from ...messages import ErrorResponse, Message, Request, Response
from ..calls import RunningCall
from ..input_checks import check_asking, missing_capabilities, missing_capability


@attrs.define(eq=False, repr=False)
class LegacyResults:
    """Sends results unchanged, and input requests as server requests."""

    def format_result(self, request: Request, result: Any) -> Response | ErrorResponse:
        """Return the response with a result, unchanged."""
        return Response(request.id, result)

    def require(self, call: RunningCall, required: InputRequired) -> ErrorResponse | bool:
        """Send the input requests of a handler as server requests.

        Returns an error to send if the client lacks a capability; else whether the client is still
        connected. Raises LocalProtocolError, and does nothing, if they cannot be sent.
        """
        check_asking(call.request, required)
        if not call.peer.revision.server_requests:
            name = call.peer.revision.name
            raise LocalProtocolError(
                f"At revision {name} servers make no requests, so InputRequired cannot be sent"
            )
        missing = missing_capabilities(required, call.peer.client_capabilities)
        if missing:
            return missing_capability(missing, call.request.id, INVALID_REQUEST).reply
        call.check_input_requests(required)
        return self.send_input_requests(call, required)

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Send the input requests, and keep the call in memory until all responses are there."""
        return call.send_input_requests(required)

    def may_send(self, request: Request, message: Message) -> bool:
        """Return True: these revisions allow every message before the response."""
        return True
