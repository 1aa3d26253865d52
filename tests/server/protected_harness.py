"""A protected server on the bench: tokens that do not change, and what a refusal tells a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sansmcp import Access, App, ConnectionInfo, ProtectedResource, StaticTokens
from sansmcp.effects import Authenticate, ServerEffect

from ..handlers import nothing
from .harness import RawExchange
from .modern.harness import ModernServerHarness

URL = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
ISSUER = "https://login.example.com/tenant"

RESOURCE = ProtectedResource(
    resource=URL,
    authorization_servers=(ISSUER,),
    required_scopes=("use",),
    scopes_supported=("use", "read"),
    implied_scopes={"admin": {"write"}, "write": {"use", "read"}},
)

TOKENS: dict[str, str | Access] = {
    "user": Access("ada", {"use"}),
    "reader": Access("ada", {"use", "read"}),
    "short": Access("ada", {"use", "read"}, expires_in=60),
    "longer": Access("ada", {"use", "read"}, expires_in=100),
    "admin": Access("root", {"admin"}),
    "eve": Access("eve", {"use", "read"}),
    "lesser": Access("ada", {"read"}),
    "unscoped": "ada",
}


def scoped_app() -> App:
    """One method that all may call, one that needs a scope, one that needs those of its tool."""
    scopes = {"add": (), "sum": {"read"}, "wipe": ("write", "read", "audit")}
    app = App("bench", "1", capabilities={"tools": {"listChanged": True}})
    app.handler("tools/list")(nothing)
    app.handler("resources/list", scopes=["read"])(nothing)
    app.handler("tools/call", scopes=lambda each: scopes[(each.params or {})["name"]])(nothing)
    return app


class ProtectedHarness(ModernServerHarness):
    """A protected server, with a client that has the token ``token``; None for none."""

    def __init__(self, app: App | None = None, **settings: Any) -> None:
        self.token: str | None = "user"
        self.verify = StaticTokens(TOKENS)
        settings = {"protected_resource": RESOURCE, **settings}
        super().__init__(app or scoped_app(), authentication=True, **settings)

    def perform(self, effect: ServerEffect) -> None:
        if isinstance(effect, Authenticate):
            outcome = self.verify(effect.head, ConnectionInfo())
            self.server.authenticated(effect, outcome, now=self.now)
        else:
            super().perform(effect)

    def send(
        self,
        method: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes = b"",
        **options: Any,
    ) -> RawExchange:
        own = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        return super().send(method, {**own, **(headers or {})}, body, **options)


def challenge(talk: RawExchange) -> dict[str, str]:
    """The parameters of the challenge for a Bearer token."""
    value = talk.header("www-authenticate")
    assert value is not None
    scheme, _, rest = value.partition(" ")
    assert scheme == "Bearer"
    assert talk.header("cache-control") == "no-store"
    return dict(pair.removesuffix('"').split('="') for pair in rest.split(", ") if pair)
