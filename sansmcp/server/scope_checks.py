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
    if isinstance(message, Request) and not core.app.options_of(message.method).scopes:
        return
    if isinstance(message, Batch):
        needed = tuple(scope for item in message.items for scope in scopes_of(core, item))
    else:
        needed = scopes_of(core, message)
    require_scopes(core, head, message, needed)


def require_scopes(
    core: ServerCore, head: RequestHead, message: Message | Batch, needed: tuple[str, ...]
) -> None:
    """Refuse a POST whose credentials lack a scope. Raises RemoteProtocolError."""
    if needed and not head.scopes.issuperset(needed):
        id = message.id if isinstance(message, Request) else None
        resource = core.options.protected_resource
        raise insufficient_scope(resource, needed, id, is_bound=head.is_bound)


def scopes_of(core: ServerCore, item: Message | RemoteProtocolError) -> tuple[str, ...]:
    """Return the scopes that a message needs. Raises RemoteProtocolError if they are not known."""
    if not isinstance(item, Request):
        return ()
    try:
        return core.app.scopes_of(item)
    except Exception as error:
        raise refusals.SCOPES_FAILED(item.id) from error
