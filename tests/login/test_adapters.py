"""Every adapter obtains a token over real sockets, and the login fails as it should."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
import trio

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
import sansmcp_httpx
import sansmcp_trio
from sansmcp.addresses import AddressClass, AddressPolicy
from sansmcp.auth.options import Authorization
from sansmcp.auth.saved import Saved
from sansmcp.credentials import CredentialsKey, MemoryCredentials
from sansmcp.errors import AuthorizationFailed, LocalProtocolError
from sansmcp.events import AuthorizationNeeded
from sansmcp_auth import LoopbackLogin
from sansmcp_local import allowed_addresses

from .protected_server import Protected, protected_server

Talk = Callable[[str, Any], Any]
SETTINGS: dict[str, Any] = {"versions": ("2025-11-25",), "standalone_stream": False}


@pytest.fixture
def server() -> Generator[Protected, None, None]:
    """A protected server."""
    with protected_server() as running:
        yield running


def on_asyncio(url: str, authorization: Authorization) -> Any:
    async def talk() -> Any:
        connecting = sansmcp_asyncio.connect(url, authorization=authorization, **SETTINGS)
        async with connecting as client:
            return await client.list_tools()

    return asyncio.run(talk())


def on_trio(url: str, authorization: Authorization) -> Any:
    async def talk() -> Any:
        connecting = sansmcp_trio.connect(url, authorization=authorization, **SETTINGS)
        async with connecting as client:
            return await client.list_tools()

    return trio.run(talk)


def on_blocking(url: str, authorization: Authorization) -> Any:
    connecting = sansmcp_blocking.connect(url, authorization=authorization, **SETTINGS)
    with connecting as client:
        return client.list_tools()


def on_httpx(url: str, authorization: Authorization) -> Any:
    async def talk() -> Any:
        async with (
            httpx.AsyncClient(headers={"x-mine": "1"}, auth=("user", "password")) as http,
            sansmcp_httpx.connect(url, http, authorization=authorization, **SETTINGS) as client,
        ):
            return await client.list_tools()

    return asyncio.run(talk())


def on_httpx_blocking(url: str, authorization: Authorization) -> Any:
    settings = {name: value for name, value in SETTINGS.items() if name == "versions"}
    with (
        httpx.Client() as http,
        sansmcp_httpx.connect_blocking(
            url, http, authorization=authorization, **settings
        ) as client,
    ):
        return client.list_tools()


SOCKETS = [on_asyncio, on_trio, on_blocking]
ALL = [*SOCKETS, on_httpx_blocking]


@pytest.mark.parametrize("talk", ALL)
def test_a_login_in_the_browser(server: Protected, talk: Talk) -> None:
    with LoopbackLogin(open_browser=server.browse) as login:
        assert talk(server.url, Authorization(login=login)) == {"tools": []}
    assert [path for path in server.seen if path not in ("/mcp", "DELETE")] == [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/register",
        "/authorize",
        "/token",
    ]


@pytest.mark.parametrize("talk", SOCKETS)
def test_a_token_that_expires_at_once_is_used(server: Protected, talk: Talk) -> None:
    """It is not refreshed without end instead."""
    server.lifetime = 0
    assert talk(server.url, Authorization(login=browse_once)) == {"tools": []}
    assert server.seen.count("/token") == 1


def test_requests_of_the_authorization_have_nothing_of_the_httpx_client(
    server: Protected,
) -> None:
    with (
        LoopbackLogin(open_browser=server.browse) as login,
        pytest.raises(sansmcp.CallError),  # its own auth replaces the token
    ):
        on_httpx(server.url, Authorization(login=login))
    assert len(server.headers) >= 5
    for headers in server.headers:
        assert "x-mine" not in headers
        assert "authorization" not in headers


async def _async_login(url: str) -> str:
    await asyncio.sleep(0)
    return browse_once(url)


def browse_once(url: str) -> str:
    """Log in without a listener."""
    response = httpx.get(url, follow_redirects=False)
    return response.headers["location"]


@pytest.mark.parametrize("talk", ALL)
def test_a_plain_login(server: Protected, talk: Talk) -> None:
    assert talk(server.url, Authorization(login=browse_once)) == {"tools": []}


def test_an_async_login(server: Protected) -> None:
    assert on_asyncio(server.url, Authorization(login=_async_login)) == {"tools": []}
    assert on_asyncio(server.url, Authorization(login=returns_awaitable)) == {"tools": []}


def returns_awaitable(url: str) -> Awaitable[str]:
    """Plain, and what it returns must be awaited."""
    return _async_login(url)


def failing_login(url: str) -> str:
    raise RuntimeError("the window was closed")


async def failing_async_login(url: str) -> str:
    raise RuntimeError("the window was closed")


@pytest.mark.parametrize("talk", ALL)
def test_a_login_that_raises(server: Protected, talk: Talk) -> None:
    with pytest.raises(AuthorizationFailed, match="the window was closed"):
        talk(server.url, Authorization(login=failing_login))


def test_an_async_login_that_raises(server: Protected) -> None:
    with pytest.raises(AuthorizationFailed, match="the window was closed"):
        on_asyncio(server.url, Authorization(login=failing_async_login))


def returns_nothing(url: str) -> None:
    pass


def returns_another(url: str) -> str:
    return "http://h/?code=x&state=y"


@pytest.mark.parametrize("talk", SOCKETS)
@pytest.mark.parametrize(
    ("login", "text"),
    [
        (returns_nothing, "login must return the URL, got NoneType"),
        (returns_another, "does not belong to this login"),
        (None, "the client has no login function"),
    ],
)
def test_a_login_without_a_result(server: Protected, talk: Talk, login: Any, text: str) -> None:
    with pytest.raises(AuthorizationFailed, match=text):
        talk(server.url, Authorization(login=login))


def test_an_interrupted_login_of_a_blocking_client(server: Protected) -> None:
    def login(url: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_blocking(server.url, Authorization(login=login))


def test_an_application_that_takes_the_event(server: Protected) -> None:
    async def talk() -> Any:
        client = sansmcp_asyncio.connect(server.url, authorization=Authorization(), **SETTINGS)
        events = client.events()

        async def answer() -> None:
            async for event in events:
                if isinstance(event, AuthorizationNeeded):
                    redirect = await asyncio.to_thread(browse_once, event.url)
                    assert not await client.complete_login("http://localhost/elsewhere")
                    assert await client.complete_login(redirect)

        answering = asyncio.create_task(answer())
        async with client:
            result = await client.list_tools()
        await answering
        return result

    assert asyncio.run(talk()) == {"tools": []}


# Logouts


def logs_out_on_asyncio(url: str, **settings: Any) -> None:
    asyncio.run(sansmcp_asyncio.log_out(url, **settings))


def logs_out_on_trio(url: str, **settings: Any) -> None:
    trio.run(partial(sansmcp_trio.log_out, url, **settings))


def logs_out_on_httpx(url: str, **settings: Any) -> None:
    async def talk() -> None:
        async with httpx.AsyncClient() as http:
            await sansmcp_httpx.log_out(url, http, **settings)

    asyncio.run(talk())


def logs_out_on_httpx_blocking(url: str, **settings: Any) -> None:
    with httpx.Client() as http:
        sansmcp_httpx.log_out_blocking(url, http, **settings)


LOGOUTS: list[Callable[..., None]] = [
    logs_out_on_asyncio,
    logs_out_on_trio,
    sansmcp_blocking.log_out,
    logs_out_on_httpx,
    logs_out_on_httpx_blocking,
]


class SlowStorage(MemoryCredentials):
    """A storage that is called in a thread by clients in event loops."""

    may_block = True


def logged_in(server: Protected, storage: MemoryCredentials) -> Authorization:
    """Log in at a server that revokes."""
    server.metadata["revocation_endpoint"] = f"{server.base}/revoke"
    authorization = Authorization(login=browse_once, credentials=storage)
    on_blocking(server.url, authorization)
    server.seen.clear()
    return authorization


@pytest.mark.parametrize("storage", [MemoryCredentials, SlowStorage])
@pytest.mark.parametrize("log_out", LOGOUTS)
def test_a_logout(
    server: Protected, log_out: Callable[..., None], storage: type[MemoryCredentials]
) -> None:
    authorization = logged_in(server, storage())
    log_out(server.url, authorization=authorization)
    assert server.seen == ["/.well-known/oauth-authorization-server", "/revoke"]
    assert server.forms[-1]["token"] == "refresh-1"
    log_out(server.url, authorization=authorization)  # nothing is left to revoke
    assert len(server.seen) == 2
    assert authorization.credentials.try_lock(CredentialsKey(server.url))


@pytest.mark.parametrize("log_out", LOGOUTS)
def test_a_logout_that_is_not_revoked(server: Protected, log_out: Callable[..., None]) -> None:
    authorization = logged_in(server, MemoryCredentials())
    server.revocation = 503
    with pytest.raises(AuthorizationFailed, match="has not revoked the refresh token") as raised:
        log_out(server.url, authorization=authorization)
    assert raised.value.reason == "not_revoked"
    log_out(server.url, authorization=authorization)  # it is deleted all the same
    assert server.seen.count("/revoke") == 1


@pytest.mark.parametrize("log_out", LOGOUTS)
def test_a_logout_without_authorization(server: Protected, log_out: Callable[..., None]) -> None:
    with pytest.raises(LocalProtocolError, match="needs the setting authorization"):
        log_out(server.url)
    assert server.seen == []


@contextmanager
def silent_revocation(
    server: Protected, on_request: Callable[[], object]
) -> Generator[None, None, None]:
    """Answer no request that revokes, and call the function at the first one."""
    over = threading.Event()

    def revoke(handler: BaseHTTPRequestHandler) -> None:
        on_request()
        over.wait(60)

    server.attacks["/revoke"] = revoke
    try:
        yield
    finally:
        over.set()


async def cancelled_on_asyncio(server: Protected, authorization: Authorization) -> None:
    asked = asyncio.Event()
    wake = partial(asyncio.get_running_loop().call_soon_threadsafe, asked.set)
    with silent_revocation(server, wake):
        logout = sansmcp_asyncio.log_out(server.url, authorization=authorization)
        task = asyncio.create_task(logout)
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def cancelled_on_trio(server: Protected, authorization: Authorization) -> None:
    asked = trio.Event()
    wake = partial(trio.lowlevel.current_trio_token().run_sync_soon, asked.set)
    with silent_revocation(server, wake):
        async with trio.open_nursery() as nursery:
            logout = partial(sansmcp_trio.log_out, server.url, authorization=authorization)
            nursery.start_soon(logout)
            await asked.wait()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_logout_that_is_cancelled(server: Protected, loop: str) -> None:
    """The tokens stay stored, and other programs can use them."""
    authorization = logged_in(server, MemoryCredentials())
    if loop == "asyncio":
        asyncio.run(cancelled_on_asyncio(server, authorization))
    else:
        trio.run(cancelled_on_trio, server, authorization)
    key = CredentialsKey(server.url)
    assert authorization.credentials.try_lock(key)
    assert Saved.parse(authorization.credentials.load(key)).tokens is not None


def test_clients_that_share_the_settings_share_the_token(server: Protected) -> None:
    authorization = Authorization(login=browse_once)
    for _ in range(2):
        assert on_blocking(server.url, authorization) == {"tools": []}
    assert server.seen.count("/token") == 1


@pytest.mark.parametrize("talk", SOCKETS)
def test_without_a_signer_dpop_fails(server: Protected, talk: Talk) -> None:
    with pytest.raises(AuthorizationFailed, match="DPoP is required"):
        talk(server.url, Authorization(login=browse_once, dpop=True))


FOUND = [(2, 1, 6, "", ("10.0.0.1", 80)), (2, 1, 6, "", ("93.184.215.14", 80))]


def test_only_allowed_addresses_are_connected_to() -> None:
    public = AddressPolicy(AddressClass.PUBLIC)
    assert allowed_addresses(public, "h", FOUND) == ["93.184.215.14"]
    assert allowed_addresses(AddressPolicy(AddressClass.PRIVATE), "h", FOUND) == [
        "10.0.0.1",
        "93.184.215.14",
    ]
    with pytest.raises(OSError, match=r"h has the address 10\.0\.0\.1, which is in a more private"):
        allowed_addresses(public, "h", FOUND[:1])


@pytest.mark.parametrize("talk", SOCKETS)
def test_the_policy_holds_where_the_adapter_connects(
    server: Protected, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name resolves to this machine, which only the address of the peer allows."""

    def always_public(address: str) -> AddressClass:
        return AddressClass.PUBLIC

    def always(policy: AddressPolicy, host: str) -> bool:
        return True

    monkeypatch.setattr("sansmcp.auth.reach.classify_address", always_public)
    monkeypatch.setattr("sansmcp.auth.reach.AddressPolicy.allows_literal", always)
    with pytest.raises(AuthorizationFailed, match="more private network"):
        talk(server.url, Authorization(login=browse_once))
    assert set(server.seen) == {"/mcp"}


@pytest.mark.parametrize("talk", SOCKETS)
def test_the_peer_of_the_refusal_is_known(
    server: Protected, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def classify(address: str) -> AddressClass:
        seen.append(address)
        return AddressClass.LOOPBACK

    monkeypatch.setattr("sansmcp.auth.reach.classify_address", classify)
    talk(server.url, Authorization(login=browse_once))
    assert seen == ["127.0.0.1"]
