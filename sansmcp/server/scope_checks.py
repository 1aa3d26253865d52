"""The check that a request has the scopes that its handler needs, the same on every HTTP transport.

Source: 2025-11-25 and 2026-07-28, basic/authorization: Scope Challenge Handling.
"""

from __future__ import annotations

from ..codecs.jsonrpc import Batch
from ..http import RequestHead
from ..messages import Message, Request
from . import refusals
from .challenges import insufficient_scope
from .core import ServerCore


def check_scopes(core: ServerCore, head: RequestHead, message: Message | Batch) -> None:
    """Refuse a POST with a request that needs a scope which its credentials lack.

    A batch is refused as a whole, before any part of it has run: only a status 403 makes a client
    ask for more scopes. Raises RemoteProtocolError.
    """
    items = message.items if isinstance(message, Batch) else (message,)
    requests = [item for item in items if isinstance(item, Request)]
    needed = [scope for request in requests for scope in _scopes_of(core, request)]
    if not head.scopes.issuperset(needed):
        id = message.id if isinstance(message, Request) else None
        raise insufficient_scope(core.options.protected_resource, needed, id)


def _scopes_of(core: ServerCore, request: Request) -> tuple[str, ...]:
    try:
        return core.app.scopes_of(request)
    except Exception as error:
        raise refusals.SCOPES_FAILED(request.id) from error
