"""The HTTP requests of a browser that comes back from a login to a listener on this machine.

Any page in the browser, and any program on the machine, can send requests to the listener. So only
a GET of the one path counts, with the listener's own ``Host`` and the ``state`` of the login;
everything else is refused, and the listener goes on. The response shows nothing of the query.

Source: RFC 8252, 7.3 and 8.3; 2026-07-28, basic/authorization: Open Redirection, Authorization
Code Protection.
"""

from __future__ import annotations

import hmac
from urllib.parse import parse_qsl, urlsplit

import attrs

MAX_HEAD_BYTES = 64 * 1024
"""The longest head of a request. Browsers send the cookies of all programs of 127.0.0.1 along."""

MAX_LINE_BYTES = 8 * 1024
"""The longest first line; authorization servers keep codes far shorter."""

_END = b"\r\n\r\n"
_DONE = "You are logged in, or the login was refused. You can close this window."
_OTHER = "This is not the answer to the login that is pending."


@attrs.frozen
class Reply:
    """What to send to the browser, and the redirect if it is the one that was waited for."""

    data: bytes
    redirect: str | None = None


def answer_browser(received: bytes, redirect_uri: str, login_url: str) -> Reply | None:
    """Return what to answer to a browser. None if more must be received.

    Args:
        received: the bytes of the request so far.
        redirect_uri: the redirect URI, which leads to the listener.
        login_url: the URL that was opened in the browser.
    """
    head, end, _ = received.partition(_END)
    is_short = len(received) <= MAX_HEAD_BYTES and len(head.partition(b"\r\n")[0]) <= MAX_LINE_BYTES
    if not end and is_short:
        return None
    target = _target_of(head, redirect_uri) if end else None
    if target is None:
        return Reply(_response("400 Bad Request", _OTHER))
    redirect = f"{redirect_uri}?{target.partition('?')[2]}"
    if not is_answer(login_url, redirect):
        return Reply(_response("400 Bad Request", _OTHER))
    return Reply(_response("200 OK", _DONE), redirect)


def is_answer(login_url: str, redirect: str) -> bool:
    """Return whether a redirect has the ``state`` of a login.

    The last ``state`` counts in both URLs: the client adds its own to the query of the endpoint,
    and ``code_in()`` reads the last one of a redirect.
    """
    wanted, given = (
        dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get("state", "")
        for url in (login_url, redirect)
    )
    return wanted != "" and hmac.compare_digest(
        wanted.encode("utf-8", "replace"), given.encode("utf-8", "replace")
    )


def _target_of(head: bytes, redirect_uri: str) -> str | None:
    """Return the target of a GET to the path of the redirect URI; None for any other request."""
    parts = urlsplit(redirect_uri)
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    hosts = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("host:")]
    if len(words) != 3 or words[0] != "GET" or not words[2].startswith("HTTP/1."):
        return None
    if words[1].partition("?")[0] != (parts.path or "/") or hosts != [parts.netloc]:
        return None
    return words[1]


def _response(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Login</title><p>{text}</p>\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        "Content-Security-Policy: default-src 'none'\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
