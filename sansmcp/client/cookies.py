"""The cookies of one client: those by which a load balancer finds the instance of a session.

They are sent back to the origin that has set them: scheme, host and port. ``Domain`` is ignored, so
no cookie reaches another host. They are kept in memory, for one client, until it logs in anew.
Authorization servers are asked without them.

Source: RFC 6265, 5.1.4, 5.3 and 5.4; RFC 6265bis, 4.1.3 (prefixes) and 5.6 (long attributes).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

import attrs

from ..codecs import headers
from ..codecs.headers import Headers
from ..http import ResponseHead, Url
from ..types import Secret
from .http_heads import seconds_of

_MAX_COOKIES = 20
"""Further ones replace those that have ended, and then those that were set longest ago."""
_MAX_BYTES = 4096
"""Name and value of one; a longer one is ignored, as browsers do."""
_MAX_ATTRIBUTE = 1024
"""Bytes of the value of an attribute; a longer attribute is ignored, as browsers do."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_AGE = re.compile(r"-?[0-9]{1,18}")
_YEAR_2000 = seconds_of("Sat, 01 Jan 2000 00:00:00 GMT") or 0


@attrs.frozen
class _Cookie:
    value: Secret
    path: str
    expires: float
    """Time when it ends, in seconds on the machine's clock; infinite if it has no end."""
    number: int
    """Its place among cookies of equal paths: that of the first cookie of its name and path."""

    def is_for(self, path: str) -> bool:
        """Return True if requests of a path get the cookie."""
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")


@attrs.define(eq=False, repr=False)
class Cookies:
    """The cookies of the origin that has set the last one."""

    _origin: tuple[str, str, int] | None = attrs.field(default=None, init=False)
    found: dict[tuple[str, str], _Cookie] = attrs.field(
        factory=dict[tuple[str, str], _Cookie], init=False
    )
    """By name and path; those that were set longest ago first."""
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _logins: int = attrs.field(default=0, init=False)

    def receive(self, url: Url, head: ResponseHead, now: float) -> None:
        """Keep the cookies of a response to a request to ``url``."""
        if self._origin != url.origin:
            self.found.clear()
            self._origin = url.origin
        for field in headers.get_all(head.headers, b"set-cookie"):
            self._set(url, field.decode("latin-1"), head, now)

    def header_for(self, url: Url, now: float) -> Headers:
        """Return the header with the cookies of a request to ``url``; empty if there are none."""
        if url.origin != self._origin:
            return ()
        path = url.target.partition("?")[0]
        cookies = [
            (key[0], cookie)
            for key, cookie in self.found.items()
            if cookie.is_for(path) and now < cookie.expires
        ]
        cookies.sort(key=lambda each: (-len(each[1].path), each[1].number))
        pairs = "; ".join(f"{name}={cookie.value.reveal()}" for name, cookie in cookies)
        return ((b"cookie", pairs.encode("latin-1")),) if pairs else ()

    def logged_in(self, logins: int) -> None:
        """Discard all cookies if this is another number of logins: they may be of another user."""
        if logins != self._logins:
            self._logins = logins
            self.found.clear()

    def _set(self, url: Url, field: str, head: ResponseHead, now: float) -> None:
        """Keep, replace or remove the cookie of a ``Set-Cookie`` header."""
        pair, *rest = field.split(";")
        name, equals, value = (each.strip(" \t") for each in pair.partition("="))
        if not (name and equals) or _CONTROL.search(name + value):
            return
        if len(name) + len(value) > _MAX_BYTES:
            return
        attributes: dict[str, str] = {}
        for each in rest:
            attribute, _, setting = each.partition("=")
            if len(setting := setting.strip()) <= _MAX_ATTRIBUTE:
                attributes[attribute.strip().lower()] = setting
        path = attributes.get("path", "")
        is_secure = "secure" in attributes
        if is_secure and url.scheme != "https":
            return
        if name.startswith(("__Secure-", "__Host-")) and not is_secure:
            return
        if name.startswith("__Host-") and path != "/":
            return
        if not path.startswith("/"):
            path = url.target.partition("?")[0].rpartition("/")[0] or "/"
        key = name, path
        seconds = _lifetime(attributes, head)
        old = self.found.pop(key, None)  # it comes back at the end: balancers renew theirs
        if seconds <= 0:
            return
        if len(self.found) == _MAX_COOKIES:
            ended = (each for each, cookie in self.found.items() if cookie.expires <= now)
            del self.found[next(ended, next(iter(self.found)))]
        number = next(self._numbers) if old is None else old.number
        self.found[key] = _Cookie(Secret(value), path, now + seconds, number)


def _lifetime(attributes: dict[str, str], head: ResponseHead) -> float:
    """Return the seconds for which a cookie is kept; infinite if it has no end.

    The machine has no calendar clock. So a date counts from that of the response; without one, only
    dates before the year 2000, by which cookies are deleted, count.
    """
    max_age = attributes.get("max-age", "")
    if _MAX_AGE.fullmatch(max_age):
        return float(max_age)
    until = seconds_of(attributes.get("expires", "").replace("-", " "))
    if until is None:
        return math.inf
    since = seconds_of(headers.single(headers.get_all(head.headers, b"date")) or "")
    if since is None:
        return math.inf if until >= _YEAR_2000 else 0.0
    return float(until - since)
