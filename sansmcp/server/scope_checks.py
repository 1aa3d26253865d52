"""What a request may do, and the check that it has the scopes that its handler needs.

Both are the same on every HTTP transport.

Source: 2025-11-25 and 2026-07-28, basic/authorization: Scope Challenge Handling.
"""

from __future__ import annotations

import attrs

from ..authentication import Access
from ..codecs.jsonrpc import Batch
from ..errors import RemoteProtocolError
from ..http import RequestHead
from ..messages import Message, Request
from ..meta_keys import NAMED
from . import refusals
from .challenges import insufficient_scope, without_credentials
from .core import ServerCore


def with_access(core: ServerCore, head: RequestHead, access: Access) -> RequestHead:
    """Return a head with the access of its request, for handlers, and without its credentials.

    Raises RemoteProtocolError if the access lacks a scope that every request needs.
    """
    resource, scopes = core.options.protected_resource, access.scopes
    is_bound = access.proof is not None
    if resource is not None:
        scopes = resource.expand(scopes)
        if not scopes.issuperset(resource.required_scopes):
            raise insufficient_scope(resource, (), is_bound=is_bound)
    return attrs.evolve(
        head,
        principal=access.principal,
        scopes=scopes,
        headers=without_credentials(resource, head.headers),
        is_bound=is_bound,
    )


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
    """Return the scopes that a message needs. Raises RemoteProtocolError if they are not known.

    A function of the application is asked about a request of these methods only if that names a
    tool, prompt or resource: it would fail at any other, which is the fault of the client.
    """
    if not isinstance(item, Request):
        return ()
    is_asked = callable(core.app.options_of(item.method).scopes)
    parameter = NAMED.get(item.method) if is_asked else None
    if parameter is not None and not isinstance((item.params or {}).get(parameter), str):
        raise refusals.UNNAMED(item.id, parameter=parameter)
    try:
        return core.app.scopes_of(item)
    except Exception as error:
        raise refusals.SCOPES_FAILED(item.id) from error
