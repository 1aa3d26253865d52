"""Looking up once more which parameters of a tool are repeated in headers.

A server that refuses a call because of its headers may have changed its tools since they were
listed. So the list is fetched again, and the call is made once more.

Source: 2026-07-28 basic/transports: Custom Headers; SEP-2243.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...codecs import json
from ...errors import RemoteProtocolError
from ...messages import ErrorResponse, Message, Request, Response
from ..core import ClientCore
from ..exchange import Refusal
from ..transport import Carrier
from .requests import learn_tools

if TYPE_CHECKING:
    from ..calls import ClientCall
    from ..conversation import Conversation

_MOST_PAGES = 100


@attrs.define(eq=False, repr=False)
class ToolRefresh:
    """One walk through the list of tools, for a call that goes on however it ends."""

    _core: ClientCore
    _conversation: Conversation
    _call: ClientCall
    _carrier: Carrier = attrs.field(init=False)
    _request_id: int = attrs.field(default=0, init=False)
    _pages: int = attrs.field(default=0, init=False)

    def start(self, cursor: str | None = None) -> None:
        """Ask for a page."""
        self._request_id = self._core.next_request_id()
        self._carrier = self._conversation.transport.carrier(self, None)
        params = {} if cursor is None else {"cursor": cursor}
        self._carrier.post(Request(self._request_id, "tools/list", params))

    def stop(self) -> None:
        """The call has ended."""
        self._carrier.close()

    @property
    def restarts(self) -> bool:
        """It is tried once."""
        return False

    def restart(self) -> None:
        """Never done."""

    def message(self, message: Message) -> None:
        """A page, or an error."""
        match message:
            case Response(id, result) if id == self._request_id:
                self._page(result)
            case ErrorResponse(id) if id == self._request_id or type(id) is not int:
                self._done()
            case _:
                self._conversation.inbox.route(message, None)

    def violated(self, error: RemoteProtocolError) -> None:
        """Of no interest."""

    def lost(self, reason: str, *, complete: bool = False) -> None:
        """No list."""
        self._done()

    def refused(self, refusal: Refusal) -> None:
        """No list."""
        self._done()

    def garbled(self, error: RemoteProtocolError) -> None:
        """No list."""
        self._done()

    def _page(self, result: Any) -> None:
        self._pages += 1
        learn_tools(self._core, result)
        cursor = (json.as_object(result) or {}).get("nextCursor")
        if isinstance(cursor, str) and self._pages < _MOST_PAGES:
            self._carrier.close(complete=True)
            self.start(cursor)
        else:
            self._done()

    def _done(self) -> None:
        self._carrier.close(complete=True)
        self._call.send()
