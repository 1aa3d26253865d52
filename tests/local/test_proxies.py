"""Every adapter, the command and the bridge, behind real proxies that ask for a password."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import attrs
import httpx
import pytest
import trustme

import sansmcp
import sansmcp_auth
import sansmcp_blocking
import sansmcp_httpx
from sansmcp.auth.options import Authorization
from sansmcp.events import ProgressReceived
from sansmcp.tokens.claims import Undecided
from sansmcp.tokens.fetch import FetchRequest
from sansmcp.trace import Tracer
from sansmcp_auth import LoopbackLogin
from sansmcp_cli import example, main
from sansmcp_local import ConnectOptions

from ..asyncio.adapter_under_test import AsyncioClients
from ..blocking.adapter_under_test import BlockingClients
from ..bridge.processes import running
from ..cli.conftest import run_in_process
from ..cli.test_completion import completed
from ..forward_proxies import INSIDE, PASSWORD, PROXIES, USER, ForwardProxy
from ..login.protected_server import Protected, protected_server
from ..login.test_hostile_servers import RESOURCE, redirecting
from ..ports import free_port
from ..tls import ONCE, show, trust
from ..trio.adapter_under_test import TrioClients

ADAPTERS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioClients("asyncio"),
    "uvloop": lambda: AsyncioClients("uvloop"),
    "trio": TrioClients,
    "blocking": BlockingClients,
}
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
HOSTS = tuple(host for _, host in PROXIES.values())


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of whoever runs the tests counts."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@attrs.frozen
class Inside:
    """Servers of a company: one with TLS, one without."""

    ports: dict[str, int]
    """By scheme."""
    authority: trustme.CA
    context: ssl.SSLContext
    """Of clients that trust the authority."""
    file: str
    """The certificate of the authority."""

    def url(self, scheme: str, host: str) -> str:
        return f"{scheme}://{host}:{self.ports[scheme]}/mcp"


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Generator[Inside, None, None]:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, authority.issue_cert(*HOSTS))
    context = ssl.create_default_context()
    trust(context, authority)
    file = tmp_path_factory.mktemp("authority") / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    policy = sansmcp.SecurityPolicy(allowed_hosts=("127.0.0.1", *HOSTS))
    settings: Any = {"http": ("127.0.0.1", 0), "policy": policy, "graceful_timeout": 0.0}
    with (
        sansmcp_blocking.serve(example.blocking_app, **settings) as plain,
        sansmcp_blocking.serve(example.blocking_app, ssl_context=server, **settings) as tls,
    ):
        ports = {
            scheme: sansmcp.Url.parse(each.url).port
            for scheme, each in (("http", plain), ("https", tls))
        }
        yield Inside(ports, authority, context, str(file))


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> Generator[tuple[ForwardProxy, str], None, None]:
    """Each proxy, and the name of this machine that it resolves."""
    start, host = PROXIES[request.param]
    with start() as running_proxy:
        yield running_proxy, host


@pytest.fixture(scope="module")
def squid() -> Generator[ForwardProxy, None, None]:
    with PROXIES["squid"][0]() as running_proxy:
        yield running_proxy


def wait_for(condition: Callable[[], bool]) -> None:
    """A proxy notes a tunnel in its log once that has ended."""
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("the proxy has noted nothing")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_calls_and_event_streams(
    adapter: str, scheme: str, inside: Inside, proxy: tuple[ForwardProxy, str]
) -> None:
    through, host = proxy
    client = ADAPTERS[adapter]().connect(
        inside.url(scheme, host),
        request_handlers={},
        proxy=through.url,
        ssl_context=inside.context,
        connect_timeout=20.0,
    )
    reports: list[ProgressReceived] = []
    slow = {"name": "slow", "arguments": {"steps": 3, "delay": 0.01}}
    result = client.start("tools/call", slow, on_progress=reports.append).result()
    assert result["content"][0]["text"] == "3 steps done"
    assert [report.progress for report in reports] == [1, 2, 3]
    client.close()
    wait_for(lambda: f"{host}:{inside.ports[scheme]}" in through.log.read_text("utf-8"))


def failure(
    adapter: str, url: str, kind: type[sansmcp.CallError] = sansmcp.Disconnected, **settings: Any
) -> str:
    """The error of a client that cannot connect, and would have time to try again."""
    with pytest.raises(kind) as failed:
        ADAPTERS[adapter]().connect(url, request_handlers={}, **settings)
    assert "cret" not in str(failed.value)
    if "reconnect" not in settings:
        assert failed.value.attempts == ()
    return str(failed.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_password_that_is_missing_or_wrong(
    adapter: str, scheme: str, inside: Inside, proxy: tuple[ForwardProxy, str]
) -> None:
    through, host = proxy
    url = inside.url(scheme, host)
    missing = failure(adapter, url, proxy=through.url_without_password, connect_timeout=60.0)
    assert "asks for a user and a password; put them into its URL" in missing
    wrong = through.url.replace("ada:", "ada:x")
    if scheme == "http" and host != INSIDE:
        # It answers 401 as if it were the server; the realm says who it is.
        kind = sansmcp.RequestRefused
        assert "Tinyproxy" in failure(adapter, url, kind, proxy=wrong, connect_timeout=60.0)
        return
    refused = failure(adapter, url, proxy=wrong, connect_timeout=60.0)
    assert "does not accept the user and password" in refused


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_password_is_in_no_text(
    adapter: str,
    scheme: str,
    inside: Inside,
    squid: ForwardProxy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of http each request has it, and of https the one that opens the tunnel."""
    caplog.set_level(logging.DEBUG)
    lines: list[str] = []
    client = ADAPTERS[adapter]().connect(
        inside.url(scheme, INSIDE),
        request_handlers={},
        proxy=squid.url,
        ssl_context=inside.context,
        trace=Tracer("client", lines.append),
        connect_timeout=20.0,
    )
    client.start("tools/list").result()
    client.close()
    shown = "\n".join((*lines, caplog.text, repr(client), repr(ConnectOptions(proxy=squid.url))))
    assert "tools/list" in shown
    assert "127.0.0.1" in repr(ConnectOptions(proxy=squid.url))
    encoded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    for secret in (PASSWORD, squid.credentials, encoded, "cret"):
        assert secret not in shown


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_what_a_proxy_does_not_allow(adapter: str, squid: ForwardProxy) -> None:
    url = "https://forbidden.corp.test/mcp"
    refused = failure(adapter, url, proxy=squid.url, connect_timeout=60.0)
    assert "does not allow a connection to forbidden.corp.test:443" in refused


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_server_that_the_proxy_does_not_reach(
    adapter: str, inside: Inside, proxy: tuple[ForwardProxy, str]
) -> None:
    through, host = proxy
    url = f"https://{host}:{free_port()}/mcp"
    failed = failure(adapter, url, proxy=through.url, reconnect=ONCE)
    assert "could not reach" in failed


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_proxy_that_does_not_run(adapter: str) -> None:
    nowhere = f"http://{socket.gethostname()}:{free_port()}"
    failed = failure(adapter, "https://example.com/mcp", proxy=nowhere, reconnect=ONCE)
    assert f"through the proxy {nowhere}" in failed
    assert "refused" in failed.lower()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_proxy_that_does_not_answer(adapter: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        failed = failure(
            adapter,
            "https://example.com/mcp",
            proxy=f"http://127.0.0.1:{listener.getsockname()[1]}",
            limits=sansmcp.Limits(tls_handshake_timeout=0.1),
            reconnect=ONCE,
        )
    assert "gave no answer to CONNECT in 0.1 s" in failed


Lie = Callable[[socket.socket], None]
"""Answers CONNECT, which has been read, and goes on."""


def sending(*pieces: bytes, without_end: bytes = b"") -> Lie:
    """Send the pieces, and the last one again and again."""

    def lie(connected: socket.socket) -> None:
        for piece in chain(pieces, repeat(without_end) if without_end else ()):
            connected.sendall(piece)

    return lie


def silent(*pieces: bytes) -> Lie:
    """Send the pieces, and nothing more until the client has left."""

    def lie(connected: socket.socket) -> None:
        sending(*pieces)(connected)
        while connected.recv(65536):
            pass

    return lie


def page_in_place_of_tls(connected: socket.socket) -> None:
    connected.sendall(CONNECTED)
    connected.recv(65536)  # the first message of TLS
    connected.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n\r\n<html>")


def tls_of_its_own(connected: socket.socket) -> None:
    connected.sendall(CONNECTED)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(context, trustme.CA(organization_name="The Proxy").issue_cert("example.com"))
    context.wrap_socket(connected, server_side=True).close()


CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
SHORT = 0.3
"""Seconds that an answer, and a handshake, may take."""
LIES: dict[str, tuple[Lie, str]] = {
    "a page": (sending(CONNECTED + b"<html>"), "sent bytes after it had connected"),
    "a page in place of TLS": (page_in_place_of_tls, "or the proxy answers in its place"),
    "TLS of its own": (tls_of_its_own, "certificate verify failed"),
    "an alert of TLS": (
        sending(b"\x15\x03\x03\x00\x02\x02\x46\r\n\r\n"),
        "is no HTTP proxy, by its answer",
    ),
    "nothing": (sending(), "closed the connection instead of an answer"),
    "a part of a head": (silent(b"HTTP/1.1 200 OK\r\nx: "), "gave no answer to CONNECT in 0.3 s"),
    "a connection to nothing": (silent(CONNECTED), "handshake"),
    "a redirect": (
        sending(b"HTTP/1.1 307 x\r\nlocation: https://example.com/mcp\r\n\r\n"),
        "does not allow a connection to example.com:443 (status 307)",
    ),
    "no scheme of authentication": (
        sending(b"HTTP/1.1 407 x\r\nproxy-authenticate: \r\n\r\n"),
        "does not accept the user and password",
    ),
    "another protocol": (
        sending(b"HTTP/1.1 101 x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"),
        "is no HTTP proxy, by its answer",
    ),
    "a head without end": (
        sending(b"HTTP/1.1 200 OK\r\n", without_end=b"x: y\r\n" * 100),
        "The head is too large",
    ),
    "interim responses without end": (
        sending(without_end=b"HTTP/1.1 102 x\r\n\r\n" * 100),
        "sent too many interim responses to CONNECT",
    ),
}
"""What a proxy sends as its answer, and what the error says."""


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_proxy_that_lies(adapter: str, lie: str) -> None:
    """It gets the password of the proxy once, and nothing of what is for the server."""
    talk, why = LIES[lie]
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as connected, contextlib.suppress(OSError):
                        asked.append(connected.recv(65536))
                        talk(connected)

        thread = threading.Thread(target=answer, daemon=True)  # a test that fails ends, too
        thread.start()
        proxy = f"http://ada:s%3Acret@127.0.0.1:{listener.getsockname()[1]}"
        failed = failure(
            adapter,
            "https://example.com/mcp",
            proxy=proxy,
            headers={"authorization": "Bearer secret"},
            limits=sansmcp.Limits(tls_handshake_timeout=SHORT),
            reconnect=ONCE,
        )
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert why in failed
    assert len(asked) == 1
    assert asked[0].startswith(b"CONNECT example.com:443 ")
    assert b"Bearer" not in asked[0]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_certificate_is_that_of_the_server(
    adapter: str, inside: Inside, squid: ForwardProxy
) -> None:
    """The proxy passes bytes on, and is not trusted."""
    url = inside.url("https", INSIDE)
    failed = failure(adapter, url, proxy=squid.url, connect_timeout=60.0)
    assert "certificate verify failed" in failed
    assert "SSL_CERT_FILE" in failed
    if ssl.OPENSSL_VERSION_INFO >= (3,):  # before, it keeps no certificate of a failed handshake
        assert f"the certificate names {HOSTS[0]!r}" in failed


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_environment(
    adapter: str, inside: Inside, squid: ForwardProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", squid.url)
    settings: Any = {"request_handlers": {}, "ssl_context": inside.context}
    url = inside.url("https", INSIDE)
    client = ADAPTERS[adapter]().connect(url, **settings)
    assert client.connected.server_info["name"]
    client.close()
    assert "no host has the name" in failure(adapter, url, proxy=None)
    monkeypatch.setenv("NO_PROXY", ".corp.test")
    assert "no host has the name" in failure(adapter, url)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_proxy_of_another_kind_is_named(
    adapter: str, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the environment it may be for other programs, so it is an error only when needed."""
    monkeypatch.setenv("ALL_PROXY", "socks5://u:secret@127.0.0.1:1080")
    failed = failure(adapter, "https://example.com/mcp", connect_timeout=60.0)
    assert "Only HTTP proxies are supported" in failed
    assert "ALL_PROXY" in failed
    client = ADAPTERS[adapter]().connect(
        f"http://127.0.0.1:{inside.ports['http']}/mcp", request_handlers={}
    )
    client.close()
    with pytest.raises(sansmcp.LocalProtocolError, match="Only HTTP proxies are supported"):
        ADAPTERS[adapter]().connect(
            "https://example.com/mcp", request_handlers={}, proxy="socks5://127.0.0.1"
        )
    with pytest.raises(sansmcp.LocalProtocolError, match="proxy"):
        ADAPTERS[adapter]().connect("https://example.com/mcp", request_handlers={}, proxy=3128)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_proxy_that_refuses_is_asked_once(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its name has several addresses: accounts are locked after some wrong passwords."""
    asked: list[bytes] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 407 x\r\ncontent-length: 0\r\n\r\n")

    found = socket.getaddrinfo

    def twice(*arguments: Any, **named: Any) -> Any:
        return 2 * found(*arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", twice)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        named = f"http://u:secret@127.0.0.1:{listener.getsockname()[1]}"
        failed = failure(adapter, "https://example.com/mcp", proxy=named, connect_timeout=60.0)
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert "does not accept the user and password" in failed
    assert len(asked) == 1


# Authorization


@pytest.fixture
def protected(inside: Inside) -> Generator[Protected, None, None]:
    """A server with its authorization server, at a name that only Squid knows."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, inside.authority.issue_cert(INSIDE))
    with protected_server(INSIDE, server) as serving:
        yield serving


def browser(inside: Inside, through: ForwardProxy) -> Callable[[str], bool]:
    """A browser behind the proxy, in which a person logs in at once."""
    opener = build_opener(
        ProxyHandler({"https": through.url}), HTTPSHandler(context=inside.context)
    )

    def browse(url: str) -> bool:
        threading.Thread(target=lambda: opener.open(url).read(), daemon=True).start()
        return True

    return browse


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_login(adapter: str, inside: Inside, squid: ForwardProxy, protected: Protected) -> None:
    with LoopbackLogin(open_browser=browser(inside, squid)) as login:
        client = ADAPTERS[adapter]().connect(
            protected.url,
            request_handlers={},
            proxy=squid.url,
            ssl_context=inside.context,
            authorization=Authorization(login=login, redirect_uri=login.redirect_uri),
            versions=("2025-11-25",),
            standalone_stream=False,
        )
        assert client.start("tools/list").result() == {"tools": []}
        client.close()
    assert {"/register", "/authorize", "/token"} <= set(protected.seen)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "10.0.0.1", "0xa.1", "[fd00::1]", "127.0.0.1", "localhost", "2130706433"],
)
def test_a_server_names_an_address_in_the_private_network(
    adapter: str, address: str, inside: Inside, squid: ForwardProxy, protected: Protected
) -> None:
    """Through the proxy, or past it: this machine is never behind one."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        issuer = f"https://{address}:{listener.getsockname()[1]}"
        protected.issuer = issuer
        before = len(squid.log.read_text("utf-8"))
        with pytest.raises(sansmcp.AuthorizationFailed):
            ADAPTERS[adapter]().connect(
                protected.url,
                request_handlers={},
                proxy=squid.url,
                ssl_context=inside.context,
                authorization=Authorization(login=str, redirect_uri="http://127.0.0.1/"),
                versions=("2025-11-25",),
                connect_timeout=20.0,
            )
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert f"CONNECT {address}" not in squid.log.read_text("utf-8")[before:]


def ask(adapter: str, url: str, context: ssl.SSLContext, proxy: str, **settings: Any) -> Any:
    """List the tools of a server through the proxy, with any adapter or httpx.

    The client of httpx would follow redirects, if it decided that.
    """
    settings |= {"versions": ("2025-11-25",), "standalone_stream": False}
    if adapter == "httpx":
        return asyncio.run(_ask_httpx(url, context, proxy, settings))
    if adapter == "httpx blocking":
        del settings["standalone_stream"]
        with (
            httpx.Client(proxy=proxy, verify=context, follow_redirects=True) as http,
            sansmcp_httpx.connect_blocking(url, http, **settings) as client,
        ):
            return client.list_tools()
    settings |= {"request_handlers": {}, "proxy": proxy, "ssl_context": context}
    connected = ADAPTERS[adapter]().connect(url, **settings)
    try:
        return connected.start("tools/list").result()
    finally:
        connected.close()


async def _ask_httpx(
    url: str, context: ssl.SSLContext, proxy: str, settings: dict[str, Any]
) -> Any:
    async with (
        httpx.AsyncClient(proxy=proxy, verify=context, follow_redirects=True) as http,
        sansmcp_httpx.connect(url, http, **settings) as client,
    ):
        return await client.list_tools()


@pytest.mark.parametrize("adapter", [*ADAPTERS, "httpx", "httpx blocking"])
def test_no_token_goes_over_http_to_a_name_that_only_the_proxy_knows(
    adapter: str, inside: Inside, squid: ForwardProxy, protected: Protected
) -> None:
    """The proxy is on this machine. Its address says nothing of that of the server."""
    with protected_server(INSIDE) as plain:
        plain.issuer, plain.tokens = protected.issuer or protected.base, protected.tokens
        with LoopbackLogin(open_browser=browser(inside, squid)) as login:
            options = Authorization(login=login)
            with pytest.raises(sansmcp.AuthorizationFailed) as failed:
                ask(adapter, plain.url, inside.context, squid.url, authorization=options)
            assert failed.value.reason == "unknown_address"
            assert f"list {INSIDE} in allowed_hosts" in str(failed.value)
            assert set(plain.seen) <= {"/mcp", "DELETE"}
            assert protected.seen == []
            options = Authorization(login=login, allowed_hosts={INSIDE})
            listed = ask(adapter, plain.url, inside.context, squid.url, authorization=options)
            assert listed == {"tools": []}


@pytest.mark.parametrize("adapter", [*ADAPTERS, "httpx", "httpx blocking"])
@pytest.mark.parametrize("path", ["/mcp", RESOURCE])
def test_no_redirect_leads_elsewhere(
    adapter: str, path: str, inside: Inside, squid: ForwardProxy, protected: Protected
) -> None:
    """Neither through the proxy nor past it: this machine is never behind one."""
    before = len(squid.log.read_text("utf-8"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}", f"{INSIDE}:{port}", "169.254.169.254")
        for status, host in zip((307, 302, 308, 307), hosts, strict=True):
            scheme = "https" if status == 302 else "http"
            protected.attacks = {path: redirecting(f"{scheme}://{host}/mcp", status)}
            options = Authorization(login=str, redirect_uri="http://127.0.0.1/")
            with pytest.raises(sansmcp.CallError) as failed:
                ask(adapter, protected.url, inside.context, squid.url, authorization=options)
            if isinstance(failed.value, sansmcp.AuthorizationFailed):
                assert (path, failed.value.reason) == (RESOURCE, "no_metadata")
            else:
                assert f"{scheme}://{host}/mcp" in str(failed.value)
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    asked = squid.log.read_text("utf-8")[before:]
    assert not [host for host in hosts if f"CONNECT {host}" in asked or f"//{host}" in asked]


# What a server asks its authorization server


def test_a_server_asks_its_authorization_server_through_the_proxy(
    inside: Inside,
    squid: ForwardProxy,
    protected: Protected,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trusting = functools.partial(sansmcp_auth.fetch, ssl_context=inside.context)
    metadata = FetchRequest.get(f"{protected.base}/.well-known/oauth-authorization-server")
    assert trusting(metadata, proxy=squid.url).document()["issuer"] == protected.base
    question = FetchRequest.introspect(f"{protected.base}/token", "t", "me", "secret")
    assert "access_token" in trusting(question, proxy=squid.url).document()
    assert protected.forms[-1]["token"] == "t"
    monkeypatch.setenv("HTTPS_PROXY", squid.url)
    assert trusting(metadata).document()["issuer"] == protected.base
    with pytest.raises(Undecided, match=INSIDE):  # which is no name without it
        trusting(metadata, proxy=None)
    with pytest.raises(Undecided, match="asks for a user and a password"):
        trusting(metadata, proxy=squid.url_without_password)
    with pytest.raises(Undecided, match="certificate"):
        sansmcp_auth.fetch(metadata)
    # This machine is never behind a proxy.
    with protected_server() as own:
        metadata = FetchRequest.get(f"{own.base}/.well-known/oauth-authorization-server")
        nowhere = f"http://127.0.0.1:{free_port()}"
        assert sansmcp_auth.fetch(metadata, proxy=nowhere).document()["issuer"] == own.base
        monkeypatch.setenv("HTTP_PROXY", nowhere)
        assert sansmcp_auth.fetch(metadata).document()["issuer"] == own.base


@pytest.mark.parametrize("host", ["169.254.169.254", "0xa9fea9fe", "[fe80::1]", "0.0.0.0"])
def test_a_server_asks_no_proxy_for_link_local_addresses(host: str, squid: ForwardProxy) -> None:
    before = squid.log.read_text("utf-8")
    with pytest.raises(Undecided, match="no request is sent to"):
        sansmcp_auth.fetch(FetchRequest.get(f"https://{host}/keys"), proxy=squid.url)
    assert squid.log.read_text("utf-8") == before


def test_a_proxy_that_gives_a_server_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        request = FetchRequest.get("https://login.example.com/keys")
        with pytest.raises(Undecided, match=f"the proxy {proxy} gave no answer to CONNECT"):
            sansmcp_auth.fetch(request, proxy=proxy, timeout=0.3)
        with pytest.raises(sansmcp.LocalProtocolError, match="Only HTTP proxies"):
            sansmcp_auth.fetch(request, proxy="socks5://u:secret@h")


# The command


def test_the_command(
    inside: Inside, proxy: tuple[ForwardProxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    through, host = proxy
    monkeypatch.setenv("SSL_CERT_FILE", inside.file)
    url = inside.url("https", host)
    listed = run_in_process("list", "--json", "--proxy", through.url, url, "tools")
    assert (listed.status, listed.err) == (0, "")
    assert "echo" in [tool["name"] for tool in json.loads(listed.out)["tools"]]
    probed = run_in_process("probe", "--json", "--proxy", through.url, url)
    assert json.loads(probed.out)["transports"][0]["works"]
    monkeypatch.setenv("HTTPS_PROXY", through.url)
    called = run_in_process("call", url, "echo", "text=hello")
    assert (called.status, called.out) == (0, "hello\n")


@pytest.mark.parametrize("command", ["login", "logout", "list", "call", "probe", "bridge"])
def test_the_help_texts_name_the_proxy_and_the_authority(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for said in (
        "--proxy URL connect to all hosts but this machine through this HTTP proxy",
        "http://USER:PASSWORD@HOST:PORT",
        "HTTPS_PROXY",
        "--ca FILE trust the authorities in this file, too, such as that of a company",
        "SSL_CERT_FILE",
        "--cert FILE the certificate of this client with its key",
    ):
        assert said in shown


def test_the_command_says_what_is_wrong(inside: Inside, squid: ForwardProxy) -> None:
    url = inside.url("https", INSIDE)
    refused = run_in_process("list", "--proxy", squid.url_without_password, url)
    assert refused.status == 1
    assert "asks for a user and a password; put them into its URL" in refused.err
    assert run_in_process("list", "--proxy", "socks5://u:secret@h", url).status == 1


def test_a_shell_completes_what_a_server_behind_it_has(
    inside: Inside, squid: ForwardProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = inside.url("https", INSIDE)
    line = f"sansmcp call --proxy {squid.url} --ca {inside.file} {url} ec"
    assert completed(line) == ["echo"]


def test_the_bridge(inside: Inside, squid: ForwardProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", inside.file)
    for words in (["--proxy", squid.url], []):
        with (
            running("bridge", "--to", "http", *words, inside.url("https", INSIDE)) as url,
            sansmcp_blocking.connect(url) as client,
        ):
            result: Any = client.call_tool("echo", {"text": "hello"})
        assert result["content"][0]["text"] == "hello"
        monkeypatch.setenv("HTTPS_PROXY", squid.url)


def test_a_login_with_the_command(
    inside: Inside,
    squid: ForwardProxy,
    protected: Protected,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", browser(inside, squid))
    logged_in = run_in_process("login", "--proxy", squid.url, "--ca", inside.file, protected.url)
    assert (logged_in.status, logged_in.out) == (0, f"Logged in to {protected.url}\n")
    monkeypatch.setenv("HTTPS_PROXY", squid.url)
    listed = run_in_process("list", "--json", "--ca", inside.file, protected.url, "tools")
    assert json.loads(listed.out) == {"tools": []}
    called = run_in_process("call", "--json", "--ca", inside.file, protected.url, "any")
    assert json.loads(called.out) == {"content": []}
    protected.metadata["revocation_endpoint"] = f"{protected.base}/revoke"
    monkeypatch.delenv("HTTPS_PROXY")
    left = run_in_process("logout", "--proxy", squid.url, "--ca", inside.file, protected.url)
    assert (left.status, left.err) == (0, "")
    assert protected.seen[-1] == "/revoke"
