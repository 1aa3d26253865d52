"""Every adapter obtains a token over real sockets, and the login fails as it should."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
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
from sansmcp.errors import AuthorizationFailed
from sansmcp.events import AuthorizationNeeded
from sansmcp_local import allowed_addresses
from sansmcp_login import LoopbackLogin

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
        (None, "nobody is asked to log in"),
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
                    client.core.redirected(redirect, now=client.now())
                    client.run_pending()

        answering = asyncio.create_task(answer())
        async with client:
            result = await client.list_tools()
        await answering
        return result

    assert asyncio.run(talk()) == {"tools": []}


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

    monkeypatch.setattr("sansmcp.auth.flow.classify_address", always_public)
    monkeypatch.setattr("sansmcp.auth.flow.AddressPolicy.allows_literal", always)
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

    monkeypatch.setattr("sansmcp.auth.flow.classify_address", classify)
    talk(server.url, Authorization(login=browse_once))
    assert seen == ["127.0.0.1"]
