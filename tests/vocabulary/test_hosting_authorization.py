"""What a driver makes of authorization: storage, signer and login of the application."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from sansmcp import AuthorizationFailed, CredentialsKey, MemoryCredentials, PendingResult
from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import Authorization, ClientCredentials, Login
from sansmcp.events import AuthorizationNeeded

from ..auth.bench import SERVER, World
from ..client.auth_harness import ASM, AuthHarness, deny
from ..client.harness import Asked
from .test_hosting_client import Host

TOKEN = "Bearer token-1"
SIGNING = {
    **SERVER,
    "dpop_signing_alg_values_supported": ["ES256"],
    "token_endpoint_auth_methods_supported": ["private_key_jwt"],
}


class AuthDriverHarness(AuthHarness):
    """A client whose driver performs the effects of the authorization."""

    def __init__(
        self, login: Login | None = None, *, connects: bool = True, **options: Any
    ) -> None:
        world = World(documents={ASM: SIGNING} if "grant" in options else {ASM: SERVER})
        super().__init__(world, Authorization(login=login, **options))
        self.host = Host(self)  # type: ignore[arg-type]
        if connects:
            self.host.begin_session()
            self.initialize()

    def run_pending(self) -> None:
        self.host.pump()

    def refused_call(self) -> PendingResult:
        """A call that the server refuses for lack of a token."""
        pending = self.host.call("tools/call")
        deny(self.take())
        return pending

    def login(self, url: str) -> str:
        redirect = self.world.log_in(url)
        assert redirect is not None
        return redirect


def completed(harness: AuthDriverHarness, pending: PendingResult) -> Asked:
    """The request that is sent again; its call is completed."""
    asked = harness.take()
    asked.result({"done": True})
    assert pending.result() == {"done": True}
    return asked


def test_a_login_function_is_called() -> None:
    storage = MemoryCredentials()
    worlds: list[World] = []

    def log_in(url: str) -> str:
        redirect = worlds[0].log_in(url)
        assert redirect is not None
        return redirect

    harness = AuthDriverHarness(log_in, credentials=storage)
    worlds.append(harness.world)
    pending = harness.refused_call()
    assert completed(harness, pending).header("authorization") == TOKEN
    key = CredentialsKey("http://localhost:8000/mcp")
    assert "token-1" in (storage.load(key) or "")
    assert storage.try_lock(key)  # the flow has released it


def test_a_refresh_locks_the_storage() -> None:
    storage = MemoryCredentials()
    harness = AuthDriverHarness(credentials=storage)
    harness.host.take_events()
    harness.world.gives_refresh = True
    pending = harness.refused_call()
    (needed,) = harness.host.take_events()
    assert isinstance(needed, AuthorizationNeeded)
    assert harness.client.redirected(harness.login(needed.url), now=harness.now)
    harness.run_pending()
    completed(harness, pending)
    pending = harness.refused_call()
    assert completed(harness, pending).header("authorization") == "Bearer token-2"
    assert len(harness.world.opened) == 1
    assert storage.try_lock(CredentialsKey("http://localhost:8000/mcp"))


def test_a_lock_is_held_once() -> None:
    storage, key = MemoryCredentials(), CredentialsKey("https://h.example/mcp")
    assert storage.load(key) is None
    assert [storage.try_lock(key), storage.try_lock(key)] == [True, False]
    storage.unlock(key)
    storage.unlock(key)
    assert storage.try_lock(key)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (ValueError("no browser"), "no browser"),
        (ValueError(), "ValueError"),
        (7, "login must return the URL, got int"),
        ("http://127.0.0.1/callback?code=c&state=foreign", "does not belong to this login"),
    ],
)
def test_a_login_that_fails_fails_the_call(result: Any, message: str) -> None:
    def log_in(url: str) -> str:
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    pending = AuthDriverHarness(log_in).refused_call()
    with pytest.raises(AuthorizationFailed, match=message):
        pending.result()


def test_a_login_that_is_interrupted_fails_the_call() -> None:
    def log_in(url: str) -> str:
        raise KeyboardInterrupt

    harness = AuthDriverHarness(log_in)
    pending = harness.host.call("tools/call")
    with pytest.raises(KeyboardInterrupt):
        deny(harness.take())
    harness.run_pending()
    with pytest.raises(AuthorizationFailed, match="interrupted"):
        pending.result()


def test_an_event_loop_ends_a_login_later() -> None:
    harness = AuthDriverHarness(lambda url: url)
    begun: list[str] = []
    harness.host.run_login = lambda login, url: begun.append(url)  # type: ignore[method-assign]
    pending = harness.refused_call()
    assert not pending.is_done
    (url,) = begun
    harness.host.login_ended("https://as.example/of-another-login", ValueError("gave up"))
    assert not pending.is_done
    harness.host.login_ended(url, harness.login(url))
    harness.run_pending()
    completed(harness, pending)


def test_without_a_login_function_the_application_gets_the_event() -> None:
    harness = AuthDriverHarness()
    harness.host.take_events()
    pending = harness.refused_call()
    (needed,) = harness.host.take_events()
    assert isinstance(needed, AuthorizationNeeded)
    assert harness.client.redirected(harness.login(needed.url), now=harness.now)
    harness.run_pending()
    completed(harness, pending)


def test_nobody_who_could_log_in_is_an_error() -> None:
    pending = AuthDriverHarness().refused_call()
    with pytest.raises(AuthorizationFailed, match="the client has no login function"):
        pending.result()


class BurningStorage(MemoryCredentials):
    """A storage that always fails."""

    def load(self, key: CredentialsKey) -> str | None:
        raise OSError("the disk burns")


def test_a_storage_that_raises_fails_the_opening() -> None:
    harness = AuthDriverHarness(credentials=BurningStorage(), connects=False)
    harness.host.begin_session()
    with pytest.raises(AuthorizationFailed, match="the disk burns"):
        harness.host.opened.result()


@attrs.define
class Signer:
    """Signs nothing in truth."""

    signed: int = 0

    def make_key(self, algorithm: str) -> dict[str, Any]:
        return {"kty": "EC", "crv": "P-256", "x": "x", "y": "y", "d": "private"}

    def sign(self, header: Any, claims: Any, key: Any) -> str:
        self.signed += 1
        return f"jwt-{self.signed}"


PROGRAM = OAuthClient(client_id="c", private_key="k")


def test_a_signer_makes_keys_and_signs() -> None:
    signer = Signer()
    harness = AuthDriverHarness(client=PROGRAM, grant=ClientCredentials(), dpop=True, signer=signer)
    harness.world.token_type = "DPoP"
    pending = harness.refused_call()
    assert completed(harness, pending).header("dpop") == f"jwt-{signer.signed}"
    assert signer.signed == 3  # the assertion, and the proofs of both requests


def test_without_a_signer_the_error_names_one() -> None:
    pending = AuthDriverHarness(client=PROGRAM, grant=ClientCredentials()).refused_call()
    with pytest.raises(AuthorizationFailed, match=r"signer=JoseSigner\(\)"):
        pending.result()


def test_a_driver_logs_out() -> None:
    storage, key = MemoryCredentials(), CredentialsKey("http://localhost:8000/mcp")
    harness = AuthDriverHarness(connects=False, credentials=storage)
    assert storage.try_lock(key)
    harness.host.begin_log_out()
    assert not harness.host.opened.is_done  # another client has locked the storage
    storage.unlock(key)
    harness.wait(1.0)
    assert harness.host.opened.is_done
    assert harness.host.opened.result() is None
    assert harness.requests == []
    assert storage.try_lock(key)
