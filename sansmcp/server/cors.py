"""The headers by which browsers give responses to pages of other origins (CORS).

A browser asks before it sends a request that a plain form could not send (a preflight), and shows
the page a response only if that names the origin of the page. ``Access-Control-Allow-Credentials``
is never sent: clients put access tokens into ``Authorization``, so cookies are not needed.

Source: the Fetch standard, section CORS protocol.
"""

from __future__ import annotations

import re

from ..codecs import headers
from ..codecs.headers import Headers
from ..http import RequestHead
from ..security import SecurityPolicy
from .validation import Endpoint

ANY_PAGE: Headers = ((b"access-control-allow-origin", b"*"),)
"""The header of responses that any page may read."""

MAX_AGE = (b"access-control-max-age", b"86400")
"""Seconds for which a browser remembers the answer to a preflight. Browsers reduce it."""

_VARY: Headers = ((b"vary", b"Origin"),)
_EXPOSED = (
    b"access-control-expose-headers",
    b"Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate, DPoP-Nonce",
)
_METHODS = (b"access-control-allow-methods", b"POST, GET, DELETE")
_ALLOWED = (
    b"Authorization",
    b"Content-Type",
    b"DPoP",
    b"Last-Event-ID",
    b"Mcp-Method",
    b"Mcp-Name",
    b"MCP-Protocol-Version",
    b"Mcp-Session-Id",
    b"traceparent",
    b"tracestate",
)

_PARAMETER = re.compile(rb"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,64}")
_MAX_PARAMETERS = 32
"""Headers for arguments of tools that one answer allows. With their longest names they have 2.5
kB, so that the head of the response fits into the buffers of proxies.
"""


def response_headers(policy: SecurityPolicy, head: RequestHead) -> Headers:
    """Return the headers for every response to a request, refusals too.

    Caches must tell origins apart, so ``Vary`` is there without an allowed origin, too.
    """
    origin = headers.single(head.values(b"origin"))
    if origin is None or not policy.allows_origin(origin):
        return _VARY
    if "*" in (policy.allowed_origins or ()):
        return (*ANY_PAGE, _EXPOSED, *_VARY)
    return ((b"access-control-allow-origin", origin.encode("latin-1")), _EXPOSED, *_VARY)


def is_preflight(endpoint: Endpoint, head: RequestHead) -> bool:
    """Return True if a browser asks if a page may send a request to a path of MCP."""
    if head.method != b"OPTIONS" or not head.values(b"access-control-request-method"):
        return False
    paths = [endpoint.path.rstrip(b"/")]
    if endpoint.sse_path is not None:
        paths += [endpoint.sse_path, endpoint.messages_path.rstrip(b"/")]
    return bool(head.values(b"origin")) and head.path.rstrip(b"/") in paths


def preflight_headers(head: RequestHead) -> Headers:
    """Return the headers that tell what pages may send, beside those of every response.

    The headers for arguments of tools have names that only the application knows, so those that the
    browser asks for are allowed.
    """
    asked = headers.options(head.values(b"access-control-request-headers"))
    parameters = [name for name in asked if _PARAMETER.fullmatch(name)][:_MAX_PARAMETERS]
    allowed = b", ".join((*_ALLOWED, *parameters))
    return (_METHODS, (b"access-control-allow-headers", allowed), MAX_AGE)
