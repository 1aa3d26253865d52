"""The document that the storage keeps of one endpoint and account.

A version that is not known was written by a newer release. It is neither used nor overwritten.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..codecs import json
from ..errors import RemoteProtocolError
from .clients import OAuthClient
from .http import string_in, strings_in
from .tokens import Tokens

_VERSION = 1
_MAX_DEPTH = 16
_MAX_CLIENTS = 20
"""The authorization servers whose clients are kept; a server that changes often has no more."""


@attrs.define(repr=False)
class Saved:
    """The credentials of one endpoint and account."""

    clients: dict[str, OAuthClient] = attrs.field(factory=dict[str, OAuthClient])
    """The registered clients, by issuer; the latest is the last."""
    bound_issuer: str | None = None
    """The issuer of the client that the application has given without one."""
    repeating: tuple[str, ...] = ()
    """The issuers that accept a secret only if the form repeats the id (``repeats_id``)."""
    resource: str | None = None
    """``resource`` of the server's metadata, since it first had some. It outlives the tokens."""
    tokens: Tokens | None = None
    may_overwrite: bool = True
    """False if the stored document has another version."""

    def add_client(self, issuer: str, client: OAuthClient) -> None:
        """Record a registered client."""
        self.clients.pop(issuer, None)
        self.clients[issuer] = client
        while len(self.clients) > _MAX_CLIENTS:
            del self.clients[next(iter(self.clients))]

    def set_repeats_id(self, issuer: str, repeats_id: bool) -> None:
        """Record whether a server wants the id of the client repeated in the form."""
        others = tuple(each for each in self.repeating if each != issuer)
        self.repeating = (*others, issuer)[-_MAX_CLIENTS:] if repeats_id else others

    def encode(self) -> str:
        """Return the document."""
        clients = {issuer: client.to_json() for issuer, client in self.clients.items()}
        document = {
            "version": _VERSION,
            "clients": clients,
            "bound_issuer": self.bound_issuer,
            "repeating": list(self.repeating),
            "resource": self.resource,
            "tokens": None if self.tokens is None else self.tokens.to_json(),
        }
        return json.encode(document).decode()

    @classmethod
    def parse(cls, document: str | None) -> Saved:
        """Return the credentials in a document; none if it is missing or malformed."""
        if document is None:
            return cls()
        members = _members(document)
        if members.get("version", _VERSION) != _VERSION:
            return cls(may_overwrite=False)
        clients = json.as_object(members.get("clients")) or {}
        tokens = Tokens.from_json(members.get("tokens"))
        resource = string_in(members, "resource")
        if "resource" not in members and tokens is not None:  # older releases store only this
            resource = tokens.resource
        found = {issuer: OAuthClient.from_json(issuer, each) for issuer, each in clients.items()}
        return cls(
            clients={issuer: client for issuer, client in found.items() if client is not None},
            bound_issuer=string_in(members, "bound_issuer"),
            repeating=strings_in(members, "repeating") or (),
            resource=resource,
            tokens=tokens,
        )


def _members(document: str) -> dict[str, Any]:
    try:
        return json.as_object(json.decode(document.encode(), _MAX_DEPTH)) or {}
    except (RemoteProtocolError, UnicodeEncodeError):
        return {}
