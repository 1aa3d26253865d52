"""The check that a request has the scopes that its handler needs, the same on every HTTP transport.

Source: 2025-11-25 and 2026-07-28, basic/authorization: Scope Challenge Handling.
"""

from __future__ import annotations

from ..codecs.jsonrpc import Batch
from ..errors import RemoteProtocolError
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
    if isinstance(message, Batch):
        needed = tuple(scope for item in message.items for scope in _scopes_of(core, item))
    else:
        needed = _scopes_of(core, message)
    if needed and not head.scopes.issuperset(needed):
        id = message.id if isinstance(message, Request) else None
        raise insufficient_scope(core.options.protected_resource, needed, id)


def _scopes_of(core: ServerCore, item: Message | RemoteProtocolError) -> tuple[str, ...]:
    if not isinstance(item, Request):
        return ()
    try:
        return core.app.scopes_of(item)
    except Exception as error:
        raise refusals.SCOPES_FAILED(item.id) from error
