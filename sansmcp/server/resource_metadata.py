"""The protected resource metadata, which tells clients where to get an access token.

Everybody may read it, under any host name and from any web page: it says nothing that is secret,
and clients need it before they have a token. So it comes before all checks.

Source: RFC 9728 section 3; 2025-06-18 to 2026-07-28, basic/authorization: Authorization Server
Location.
"""

from __future__ import annotations

from ..http import RequestHead
from ..protected_resource import ProtectedResource
from . import refusals
from .cors import MAX_AGE
from .exchange import ServerExchange

_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET, HEAD"),
    (b"access-control-allow-headers", b"*"),
    MAX_AGE,
)


def is_metadata_request(resource: ProtectedResource | None, head: RequestHead) -> bool:
    """Return True for a request to a path of the metadata.

    The path begins at the root of the origin, also if the server is mounted below it. A slash at
    its end is ignored, as everywhere.
    """
    if resource is None:
        return False
    return (head.root + head.path).rstrip(b"/") in resource.metadata_paths


def check_metadata_request(head: RequestHead) -> None:
    """Refuse other methods than GET, HEAD and OPTIONS. Raises RemoteProtocolError."""
    if head.method not in (b"GET", b"HEAD", b"OPTIONS"):
        raise refusals.method_not_allowed(b"GET, HEAD, OPTIONS", "the metadata is read with GET")


def send_metadata(resource: ProtectedResource, exchange: ServerExchange) -> None:
    """Send the document, or the answer to a browser that asks if a page may read it."""
    assert exchange.head is not None
    if exchange.head.method == b"OPTIONS":
        exchange.send_response(200, extra=_PREFLIGHT)
    else:
        headers = ((b"cache-control", b"public, max-age=3600"),)
        exchange.send_response(200, resource.metadata, headers)
