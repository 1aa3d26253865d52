"""The HTTP requests of a flow, and their responses.

The flow makes one request at a time. Redirects are not followed: a redirect of a token request
would show the code to another server, and one of metadata could lead anywhere.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote_plus

import attrs

from ..codecs import json
from ..codecs.headers import Headers, get_all, single
from ..errors import AuthorizationFailed, RemoteProtocolError
from ..http import BodyData, BodyEnd, ConnectionLost, ResponseHead, ResponsePart
from ..types import Value, assert_never, elide, escape_controls, hide_secrets

MAX_BODY_BYTES = 64 * 1024
"""The longest response of a flow. Metadata and token responses take a few thousand bytes."""

REQUEST_TIMEOUT = 10.0
"""Seconds for one request of a flow, from connecting to the end of the response."""

_MAX_DEPTH = 64
_MAX_VALUES = 10_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SECRET = "<secret>"
_ERRORS = frozenset(
    {
        # of a login: RFC 6749, 4.1.2.1; OpenID Connect Core, 3.1.2.6
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "invalid_request",
        "invalid_request_object",
        "invalid_request_uri",
        "invalid_scope",
        "login_required",
        "server_error",
        "temporarily_unavailable",
        "unauthorized_client",
        "unmet_authentication_requirements",
        "unsupported_response_type",
        # of a token request: RFC 6749, 5.2; RFC 8707; RFC 9449; RFC 9396
        "invalid_authorization_details",
        "invalid_client",
        "invalid_dpop_proof",
        "invalid_grant",
        "invalid_target",
        "unsupported_grant_type",
        "use_dpop_nonce",
        # of a revocation: RFC 7009
        "unsupported_token_type",
    }
)
"""The words of OAuth for what an authorization server refuses."""
_REFUSED = "refused"
_MAX_TEXT = 300
"""The characters of a peer's text that an error shows."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AuthRequest(Value):
    """One HTTP request of a flow."""

    step: str
    """The purpose of the request, as errors name it."""
    url: str = attrs.field(repr=lambda url: repr(hide_secrets(url)))
    method: bytes = b"GET"
    headers: Headers = attrs.field(default=(), repr=False)
    body: bytes = attrs.field(default=b"", repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """What the request contains and errors must not show, should the response repeat it."""


@attrs.frozen(eq=False, repr=False)
class AuthResponse(Value):
    """The response to a request of a flow, complete."""

    request: AuthRequest
    status: int
    headers: Headers = attrs.field(default=(), repr=False)
    body: bytes = attrs.field(default=b"", repr=lambda body: elide(body, 0))
    peer: str = ""
    """The address of the server; empty if it is not known."""

    @property
    def is_success(self) -> bool:
        """True if the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def document(self) -> dict[str, Any] | None:
        """The JSON object in the body, after a byte order mark; None if it is anything else."""
        body = self.body.removeprefix(_BYTE_ORDER_MARK)
        try:
            return json.as_object(json.decode(body, _MAX_DEPTH, _MAX_VALUES))
        except RemoteProtocolError:
            return None

    @property
    def error(self) -> str:
        """``error`` of the document, such as ``invalid_grant``; empty if there is none."""
        return string_in(self.document or {}, "error") or ""

    def is_refusal(self, wanted: str) -> bool:
        """Return whether the server refuses, by its status or by an error in place of ``wanted``.

        Some servers send errors with status 200.
        """
        return not self.is_success or (self.error != "" and wanted not in (self.document or {}))

    @property
    def nonce(self) -> str | None:
        """The value of ``DPoP-Nonce``; None if there is none."""
        return nonce_in(self.headers)

    def failed(self, what: str, reason: str) -> AuthorizationFailed:
        """Return the exception for this response; ``what`` is wrong with it."""
        request = self.request
        text = f"Authorization failed at {request.step}: {shown_url(request.url)} {what}"
        return AuthorizationFailed(text, reason=reason, url=request.url)

    def refused(self) -> AuthorizationFailed:
        """Return the exception for an error response, with what the server says about it."""
        document = self.document or {}
        said = [string_in(document, name) for name in ("error", "error_description")]
        text = ": ".join(self.shown(each) for each in said if each)
        what = f"was answered with HTTP {self.status}" + (f": {text}" if text else "")
        return self.failed(what, reason_of(self.error))

    def shown(self, text: str) -> str:
        """Return text of the response as an error shows it: see :func:`cut`, without secrets."""
        return cut(self._without_secrets(text))

    def _without_secrets(self, text: str) -> str:
        for secret in self.request.secrets:
            for written in (secret, quote_plus(secret)):
                text = text.replace(written, _SECRET)
        return text


@attrs.define(eq=False, repr=False)
class ResponseCollector:
    """Collects the parts of one response."""

    _request: AuthRequest
    _head: ResponseHead | None = attrs.field(default=None, init=False)
    _body: bytearray = attrs.field(factory=bytearray, init=False)

    def receive(self, part: ResponsePart) -> AuthResponse | AuthorizationFailed | None:
        """Receive a part. Return the response, or why there is none; None if more must arrive."""
        match part:
            case ResponseHead():
                self._head = part
            case BodyData(data):
                self._body += data
                if len(self._body) > MAX_BODY_BYTES:
                    return self._failed(
                        f"sent more than {MAX_BODY_BYTES} bytes", "response_too_large"
                    )
            case BodyEnd():
                assert self._head is not None
                head = self._head
                return AuthResponse(
                    self._request, head.status, head.headers, bytes(self._body), head.peer
                )
            case ConnectionLost(reason):
                return self._failed(f"sent no response: {reason}", "unreachable")
            case _ as impossible:
                assert_never(impossible)
        return None

    def timed_out(self, limit: str) -> AuthorizationFailed:
        """Return the exception for a response that took too long: ``limit`` says how long."""
        return self._failed(f"sent no response {limit}", "no_response")

    def _failed(self, what: str, reason: str) -> AuthorizationFailed:
        return AuthResponse(self._request, 0).failed(what, reason)


def reason_of(error: str) -> str:
    """Return the ``reason`` of an exception for the ``error`` of an authorization server.

    It is that word, if it is one of OAuth. Any other could be a word of this library, which says
    what its own checks have found and what to do about it.
    """
    return error if error in _ERRORS else _REFUSED


def nonce_in(headers: Headers) -> str | None:
    """Return the value of ``DPoP-Nonce``; None if there is none. Source: RFC 9449, 8.1."""
    return single(get_all(headers, b"dpop-nonce"))


def string_in(document: dict[str, Any], name: str) -> str | None:
    """Return a member that is a string and not empty; None if there is none."""
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def strings_in(document: dict[str, Any], name: str) -> tuple[str, ...] | None:
    """Return a member that is an array of strings; None if there is none."""
    value = document.get(name)
    if not json.is_array(value) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(value)


def shown_url(url: str) -> str:
    """Return a URL of a peer as an error shows it: see :func:`cut`, without secrets."""
    return cut(hide_secrets(url))


def cut(text: str) -> str:
    """Return text of a peer as an error shows it: of limited length, control characters escaped."""
    return escape_controls(text[:_MAX_TEXT])
