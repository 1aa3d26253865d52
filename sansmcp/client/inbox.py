"""What a server says, and whom it is for.

An answer finds the call that waits for it, progress the call whose token it has, a request of the
server the application.

Source: 2024-11-05 to 2026-07-28, basic; basic/utilities/progress, cancellation; SEP-2260.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from ..codecs import json, jsonrpc
from ..codecs.jsonrpc import Batch, is_request_id
from ..errors import RemoteProtocolError
from ..events import ProgressReceived, ServerNotified, Violation
from ..messages import ErrorResponse, Message, Notification, Params, Request, RequestId, Response
from ..meta import LISTEN, SUBSCRIPTION_ID
from ..types import never
from .calls import ClientCall
from .core import ClientCore

if TYPE_CHECKING:
    from .conversation import Conversation


@attrs.define(eq=False, repr=False)
class Inbox:
    """Takes in the messages of the server."""

    _core: ClientCore
    _conversation: Conversation

    def hear(self, data: bytes) -> None:
        """The bytes of a message (or batch) on the one stream for all.

        Raises RemoteProtocolError for what is no message and cannot be the answer of a call.
        """
        try:
            decoded = jsonrpc.decode(data, self._core.limits)
        except RemoteProtocolError as error:
            if not self._garbled(error):
                raise
            return
        for item in decoded.items if isinstance(decoded, Batch) else (decoded,):
            if self._conversation.is_closed:
                return  # an item before has ended the client
            if isinstance(item, RemoteProtocolError):
                if not self._garbled(item):
                    self._core.events.append(Violation(item))
            elif self._conversation.opening is not None:
                self._conversation.opening.message(item)
            else:
                self.route(item, None)

    def _garbled(self, error: RemoteProtocolError) -> bool:
        """Something that is no message was meant to be the answer of a request; False if not."""
        if error.request_id is None or error.is_request:
            return False
        call = self._conversation.by_id.get(error.request_id)
        if call is not None:
            call.garbled(error)
            return True
        if (
            self._conversation.opening is not None
            and error.request_id == self._conversation.opening.request_id
        ):
            self._conversation.opening.garbled(error)
            return True
        return False

    def route(self, message: Message, call: ClientCall | None) -> None:
        """Let a message find its way. ``call``: on whose stream it came."""
        match message:
            case Response(id) | ErrorResponse(id):
                self._answered(id, message)
            case Request():
                self._conversation.questions.asked(message, call)
            case Notification("notifications/progress", params):
                self._progress(params or {})
            case Notification("notifications/cancelled", params):
                self._cancelled(params or {})
            case Notification():
                self._core.cache.notified(message)
                call = call or self._subscription_of(message)
                handle = call.handle if call is not None else None
                self._core.events.append(ServerNotified(handle, message))
            case _ as impossible:
                never(impossible)

    def _subscription_of(self, notification: Notification) -> ClientCall | None:
        """The call that listens for a notification, where one stream has them all."""
        meta = json.as_object((notification.params or {}).get("_meta")) or {}
        id = meta.get(SUBSCRIPTION_ID)
        return self._conversation.by_id.get(id) if is_request_id(id) else None

    def _answered(self, id: RequestId | None, message: Response | ErrorResponse) -> None:
        self._conversation.proven()
        call = self._conversation.by_id.get(id)
        if call is not None:
            call.answer(message)
        elif type(id) is not int or id > self._core.last_request_id:
            self.violated(f"an answer to {id!r}, which is no request of ours", "unknown_id")

    def _progress(self, params: Params) -> None:
        token, progress = params.get("progressToken"), params.get("progress")
        call = self._conversation.by_id.get(token) if type(token) is int else None
        if type(progress) not in (int, float):
            self.violated("progress that is no number", "invalid_progress")
        elif call is not None:
            call.progressed()
            total, text = params.get("total"), params.get("message")
            self._core.events.append(
                ProgressReceived(
                    call=call.handle,
                    progress=progress,  # type: ignore[arg-type]
                    total=total if type(total) in (int, float) else None,
                    message=text if isinstance(text, str) else None,
                )
            )

    def _cancelled(self, params: Params) -> None:
        """The server wants no answer to its request; or, without handshake, ends a subscription."""
        id, reason = params.get("requestId"), params.get("reason")
        if not is_request_id(id):
            return
        call = self._conversation.by_id.get(id)
        if not self._core.is_modern:
            why = reason if isinstance(reason, str) else "withdrawn by the server"
            self._conversation.questions.withdrawn(id, why)
        elif call is not None and call.method == LISTEN:
            call.lost(f"the server has ended the subscription: {reason or 'no reason given'}")

    def violated(self, what: str, reason: str) -> None:
        """The server has sent what it must not."""
        error = RemoteProtocolError(f"The server has sent {what}", reason=reason)
        self._core.events.append(Violation(error))
