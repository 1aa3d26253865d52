"""URLs of authorization: where metadata may be, and what may be requested or opened at all.

Every identifier is kept as the string that was received, because identifiers are compared as
strings. A parsed URL is used to build another one or to check it, and never replaces it.

Source: RFC 9728, 3.1; RFC 8414, 3.1; OpenID Connect Discovery 1.0, 4; RFC 8252, 7.3; 2026-07-28,
basic/authorization/authorization-server-discovery.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, unquote_plus, urlsplit

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_PORTS = {"http": 80, "https": 443}
_LOOPBACK_NAMES = ("localhost", "::1")
_PARAMETER_NAME = re.compile(r"[A-Za-z0-9._-]+")

MAX_CHARS = 4096
"""The characters of a URL, or of the id of a client, that a peer may name."""


def resource_metadata_urls(endpoint: str, challenged: str | None) -> tuple[str, ...]:
    """Return the URLs of the protected resource metadata, in the order in which to try them.

    Args:
        endpoint: the URL of the MCP endpoint.
        challenged: ``resource_metadata`` of the challenge; it is left out if it must not be
            requested.
    """
    parts = urlsplit(endpoint)
    path = "" if parts.path == "/" else parts.path
    query = f"?{parts.query}" if parts.query else ""
    origin = f"{parts.scheme}://{parts.netloc}"
    urls = [f"{origin}{_RESOURCE}{path}{query}", f"{origin}{_RESOURCE}"]
    if challenged is not None and is_usable(challenged):
        urls.insert(0, challenged)
    return tuple(dict.fromkeys(urls))


def server_metadata_urls(issuer: str) -> tuple[str, ...]:
    """Return the URLs of the authorization server metadata, in the order in which to try them."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return (origin + _SERVER, origin + _OPENID)
    return (origin + _SERVER + path, origin + _OPENID + path, origin + path + _OPENID)


def default_server_urls(endpoint: str) -> tuple[str, str, str, str]:
    """Return issuer, authorization, token and registration URL of a 2025-03-26 server.

    Source: 2025-03-26, basic/authorization: Fallbacks for Servers without Metadata Discovery.
    """
    parts = urlsplit(endpoint)
    origin = f"{parts.scheme}://{parts.netloc}"
    return origin, f"{origin}/authorize", f"{origin}/token", f"{origin}/register"


def is_safe(url: str) -> bool:
    """Return whether a URL of a peer may be requested, or opened in a browser.

    It must be https, or http to this machine, have no user name and no fragment, and consist of
    visible ASCII characters, none of which is escaped in the host: browsers go to what it stands
    for, which is another host than the one that is checked and shown.
    """
    parts = _split(url)
    if parts is None or "@" in parts.netloc or "%" in parts.netloc or "#" in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts))


def is_usable(url: str) -> bool:
    """Return whether a URL that a peer names is safe, and not too long."""
    return len(url) <= MAX_CHARS and is_safe(url)


def parameter_among(names: Iterable[str], url: str) -> str | None:
    """Return a parameter in the query of a URL that a server may take for one of ``names``.

    Servers do not read names alike: some ignore case, take ``.`` for ``_``, end a name at ``[`` or
    NUL, or separate parameters by ``;``. A name that RFC 6749 does not permit counts as one of
    ``names``, since what a server makes of it is not known. None if there is none.

    Source: RFC 6749, 3.1 and 8.2.
    """
    sought = {_folded(name) for name in names}
    for pair in re.split("[&;]", urlsplit(url).query):
        name = unquote_plus(pair.partition("=")[0])
        is_permitted = name == "" or _PARAMETER_NAME.fullmatch(name) is not None
        if not is_permitted or _folded(name) in sought:
            return name
    return None


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is this machine: 127.0.0.0/8, ``::1`` or ``localhost``."""
    parts = _split(url)
    return parts is not None and _is_loopback(parts)


def is_redirect_uri(url: str) -> bool:
    """Return whether a browser may be sent there after a login.

    It must be https, http to this machine, or have a scheme of the program's own, which contains a
    period. Source: RFC 8252, 7.1 and 7.3; 2026-07-28, basic/authorization: Communication Security.
    """
    scheme, colon, _ = url.partition(":")
    is_own = bool(colon) and "." in scheme and "/" not in scheme
    return is_safe(url) or (is_own and url.isascii() and url.isprintable())


def is_client_metadata_url(url: str) -> bool:
    """Return whether a URL can be the id of a client that has a metadata document.

    Source: 2025-11-25, basic/authorization: Client ID Metadata Documents.
    """
    parts = _split(url)
    if parts is None or not is_safe(url) or parts.scheme != "https":
        return False
    segments = parts.path.split("/")
    return parts.path not in ("", "/") and "." not in segments and ".." not in segments


def covers(resource: str, endpoint: str) -> bool:
    """Return whether the metadata of ``resource`` is about the endpoint.

    Scheme, host and port must be equal, and the path of ``resource`` must be that of the endpoint
    or end before one of its slashes. Source: RFC 9728, 3.3.
    """
    theirs, ours = _split(resource), _split(endpoint)
    if theirs is None or ours is None or "#" in resource or _origin(theirs) != _origin(ours):
        return False
    path = theirs.path.rstrip("/")
    return ours.path.rstrip("/") == path or ours.path.startswith(f"{path}/")


def origin_of(url: str) -> str:
    """Return scheme, host and port of a valid URL as one string, for comparison."""
    scheme, host, port = _origin(urlsplit(url))
    return f"{scheme}://{host}:{port}"


def host_of(url: str) -> str:
    """Return the host of a valid URL in lower case, without brackets."""
    return urlsplit(url).hostname or ""


def without_query(url: str) -> str:
    """Return a URL without its query and fragment, as a DPoP proof names it."""
    return url.partition("#")[0].partition("?")[0]


def _folded(name: str) -> str:
    return name.lower().replace(".", "_")


def _split(url: str) -> SplitResult | None:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for a port that is none
    except ValueError:
        return None
    return parts if parts.hostname else None


def _is_loopback(parts: SplitResult) -> bool:
    host = parts.hostname or ""
    if host in _LOOPBACK_NAMES:
        return True
    numbers = host.split(".")
    return numbers[0] == "127" and len(numbers) == 4 and all(map(_is_byte, numbers))


def _is_byte(number: str) -> bool:
    is_short = len(number) < 4 and number.isdecimal()  # int() refuses thousands of digits
    return is_short and str(int(number)) == number and int(number) < 256


def _origin(parts: SplitResult) -> tuple[str, str, int | None]:
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
