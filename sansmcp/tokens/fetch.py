"""The HTTP requests to an authorization server, and their bounded responses.

Source: RFC 8414 section 3; OpenID Connect Discovery 1.0 section 4; RFC 7662 section 2.1; RFC 6749
section 2.3.1.
"""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote_plus, urlencode

import attrs

from ..codecs import json
from ..codecs.headers import JSON, Headers
from ..codecs.http11_framing import encode_head
from ..errors import RemoteProtocolError
from ..h11_parser import HTTP11
from ..http import BodyData, ResponseHead, Url
from ..http11.message_parser import ResponseParser
from ..protected_resource import check_identifier
from .claims import Undecided

_MAX_BYTES = 64 * 1024
"""Bytes of a head, and of a body. Documents of real servers have some thousand."""

_DEPTH = 64
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

JWKS, INTROSPECTION = "jwks_uri", "introspection_endpoint"
"""The members of the metadata that name where the keys are, and where to ask about tokens."""


@attrs.frozen
class FetchRequest:
    """One HTTP request.

    Attributes:
        url: the URL; https, or http on this machine.
        headers: headers beside ``Host`` and ``Content-Length``.
        body: the body of a POST; empty for GET.
    """

    url: Url
    headers: Headers = attrs.field(default=((b"accept", JSON),), repr=False)
    body: bytes = attrs.field(default=b"", repr=False)

    @classmethod
    def get(cls, url: str) -> FetchRequest:
        """Return a GET. Raises LocalProtocolError if the URL is not allowed."""
        return cls(check_identifier("url", url))

    @classmethod
    def introspect(cls, url: str, token: str, client_id: str, client_secret: str) -> FetchRequest:
        """Return the question if a token is active. Source: RFC 7662 section 2.1."""
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
        headers = (
            (b"accept", JSON),
            (b"authorization", b"Basic " + base64.b64encode(pair.encode())),
            (b"content-type", b"application/x-www-form-urlencoded"),
        )
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        return cls(check_identifier("url", url), headers, body)

    def encode(self) -> bytes:
        """Return the bytes of the request, which ends its connection."""
        line = f"{'POST' if self.body else 'GET'} {self.url.target} HTTP/1.1".encode()
        own: Headers = ((b"host", self.url.authority.encode()), (b"connection", b"close"))
        if self.body:
            own = (*own, (b"content-length", b"%d" % len(self.body)))
        return encode_head(line, (*own, *self.headers)) + self.body


@attrs.define(eq=False, repr=False)
class FetchedResponse:
    """Reads the response: feed what arrives until ``is_complete``.

    Raises:
        Undecided: by :meth:`receive_data`, if the response is not HTTP/1.1, too large or
            incomplete.
    """

    is_complete: bool = attrs.field(default=False, init=False)
    _head: ResponseHead | None = attrs.field(default=None, init=False)
    _body: bytearray = attrs.field(factory=bytearray, init=False)
    _parser: ResponseParser = attrs.field(
        factory=lambda: ResponseParser(HTTP11.read_response_head, _MAX_BYTES), init=False
    )

    def receive_data(self, data: bytes) -> None:
        """Feed bytes; b"" at their end."""
        self._parser.receive(data)
        try:
            while not self.is_complete and (part := self._parser.next_part()) is not None:
                if isinstance(part, ResponseHead):
                    self._head = part
                elif isinstance(part, BodyData):
                    self._body += part.data
                else:
                    self.is_complete = True
        except RemoteProtocolError as error:
            raise Undecided(f"the response is not HTTP/1.1: {error.message}") from None
        if len(self._body) > _MAX_BYTES:
            raise Undecided(f"the response has more than {_MAX_BYTES} bytes")
        if not data and not self.is_complete:
            raise Undecided("the response is incomplete")

    @property
    def is_missing(self) -> bool:
        """True if there is nothing at the URL: the status is 4xx, or a redirect.

        Redirects are not followed: what they lead to is not what the operator has configured.
        """
        assert self._head is not None
        return 300 <= self._head.status < 500

    def document(self) -> dict[str, Any]:
        """Return the body, a JSON object. Raises Undecided for something else."""
        assert self._head is not None
        if self._head.status != 200:
            raise Undecided(f"the status is {self._head.status}")
        try:
            found = json.as_object(
                json.decode(bytes(self._body).removeprefix(_BYTE_ORDER_MARK), _DEPTH)
            )
        except RemoteProtocolError as error:
            raise Undecided(f"the response is not JSON: {error.message}") from None
        if found is None:
            raise Undecided("the response is no JSON object")
        return found


def endpoint_in(metadata: dict[str, Any], issuer: str, name: str) -> str:
    """Return an endpoint that the metadata of an authorization server name.

    Raises Undecided if they are those of another server, or lack the endpoint. Source: RFC 8414
    section 3.3.
    """
    if metadata.get("issuer") != issuer:
        raise Undecided(f"the metadata are not those of {issuer}")
    endpoint = metadata.get(name)
    if not isinstance(endpoint, str):
        raise Undecided(f"the metadata have no {name}")
    return endpoint
