"""What answers of the handshake revisions look like.

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
    """Results of the handshake revisions: they go out as they are, and so does all before them."""

    def format_result(self, request: Request, result: Any) -> Response | ErrorResponse:
        """The result, as it is."""
        return Response(request.id, result)

    def require(self, call: RunningCall, required: InputRequired) -> ErrorResponse | bool:
        """Ask by requests, and wait for the answers."""
        check_asking(call.request, required)
        if not call.peer.revision.server_requests:
            name = call.peer.revision.name
            raise LocalProtocolError(f"At revision {name} servers make no requests")
        missing = missing_capabilities(required, call.peer.client_capabilities)
        if missing:
            return missing_capability(missing, call.request.id, INVALID_REQUEST).reply
        call.check_input_requests(required)
        return self.send_input_requests(call, required)

    def send_input_requests(self, call: RunningCall, required: InputRequired) -> bool:
        """Ask, and keep the call until all answers are there. False if nobody can be asked."""
        return call.send_input_requests(required)

    def may_send(self, request: Request, message: Message) -> bool:
        """Whatever the application says."""
        return True
