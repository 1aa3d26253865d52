"""A client that needs authorization, on the bench, with an authorization server and a person."""

from __future__ import annotations

import json
from typing import Any

from sansmcp import Client, ClientSettings
from sansmcp.auth.options import Authorization
from sansmcp.effects import (
    AbortExchange,
    ClientEffect,
    LoadCredentials,
    LockCredentials,
    MakeKey,
    OpenExchange,
    SaveCredentials,
    SignJwt,
    UnlockCredentials,
)
from sansmcp.events import AuthorizationNeeded
from sansmcp.http import BodyData, BodyEnd, ConnectionLost, ResponseHead

from ..auth.bench import RESOURCE, World
from ..auth.bench import Asked as AuthAsked
from .harness import URL, Asked, ClientHarness

PRM = "http://localhost:8000/.well-known/oauth-protected-resource/mcp"
ASM = "https://as.example/.well-known/oauth-authorization-server"


class AuthHarness(ClientHarness):
    """The requests to the MCP server are the test's; all others are answered by a world."""

    def __init__(
        self,
        world: World | None = None,
        authorization: Authorization | None = None,
        **settings: Any,
    ) -> None:
        self.world = world or World()
        self.world.documents[PRM] = {**RESOURCE, "resource": URL}
        self.asks_person = True
        """False: a test answers the login itself."""
        self.holds = False
        """True: requests to the authorization server get no answer."""
        self.signs = True
        """False: a test completes signatures itself."""
        self.unsigned: list[SignJwt] = []
        self.exchanges: list[OpenExchange] = []
        """The requests of the authorization."""
        super().__init__(authorization=authorization or Authorization(), **settings)

    def make_client(self, url: str, jitter: float, options: ClientSettings) -> Client:
        return Client(
            url,
            jitter=lambda: jitter,
            random_bytes=lambda count: bytes(count),
            wall_clock=lambda: self.world.wall_time,
            **options,
        )

    def perform(self, effect: ClientEffect) -> None:
        match effect:
            case OpenExchange() if effect.address_policy is not None:
                self.exchanges.append(effect)
                if not self.holds:
                    self.answer(effect)
            case AbortExchange(exchange=number) if number not in self._asked:
                assert any(each.exchange == number for each in self.exchanges)
            case UnlockCredentials(key):
                self.world.locked.remove(key)
            case SignJwt() if not self.signs:
                self.unsigned.append(effect)
            case (
                LoadCredentials() | SaveCredentials() | LockCredentials() | MakeKey() | SignJwt()
            ) if type(effect) in self.world.storage_fails:
                self.client.auth_failed(effect, "it burns", now=self.now)
            case LoadCredentials() | SaveCredentials() | LockCredentials() | MakeKey() | SignJwt():
                self.client.auth_completed(effect, self.result_of(effect), now=self.now)
            case _:
                super().perform(effect)

    def result_of(self, effect: Any) -> Any:
        match effect:
            case LoadCredentials(key):
                return self.world.stored.get(key)
            case SaveCredentials(key, document):
                self.world.stored[key] = document
                return None
            case LockCredentials(key):
                self.world.locked.add(key)
                return True
            case MakeKey():
                return {"kty": "EC", "x": "x", "d": "private"}
            case _:
                self.world.signed.append(effect)
                return f"jwt-{len(self.world.signed)}"

    def answer(self, effect: OpenExchange) -> None:
        """Answer a request of the authorization."""
        head = effect.head
        headers = {name.decode(): value.decode() for name, value in head.headers}
        asked = AuthAsked(effect.url, head.method.decode(), headers, effect.body)
        self.world.asked.append(asked)
        answer = self.world.answer(asked)
        parts: list[Any]
        if isinstance(answer, str):
            parts = [ConnectionLost(answer)]
        else:
            assert answer is not None
            status, document = answer[:2]
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            parts = [ResponseHead(status=status), BodyData(body), BodyEnd()]
        for part in parts:
            self.client.receive_part(effect.exchange, part, now=self.now)

    def run_pending(self) -> None:
        super().run_pending()
        for event in list(self.events):
            if isinstance(event, AuthorizationNeeded) and self.asks_person:
                self.events.remove(event)
                self.log_in(event)

    def log_in(self, needed: AuthorizationNeeded) -> None:
        """Answer a login."""
        redirect = self.world.log_in(needed.url)
        if redirect is not None:
            assert self.client.redirected(redirect, now=self.now)
            self.run_pending()

    def needed(self) -> AuthorizationNeeded:
        """The one login that is pending."""
        (event,) = [event for event in self.events if isinstance(event, AuthorizationNeeded)]
        self.events.remove(event)
        return event


def deny(asked: Asked, challenge: str = "Bearer", status: int = 401) -> None:
    """Refuse a request for lack of authorization."""
    asked.refuse(status, www_authenticate=challenge)
