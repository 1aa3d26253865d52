"""Proxies: which one a URL needs, the requests that they read, and their refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Client, ConnectionPool, LocalProtocolError, Url
from sansmcp.effects import OpenExchange
from sansmcp.events import Closed
from sansmcp.http import ResponseHead, ResponsePart
from sansmcp.http11.proxy import Proxies, Proxy, ProxyRefused, Tunnel

from . import harness

PROXY = "http://proxy.corp:3128"
AUTHORIZATION = b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
"""The example of RFC 7617, section 2."""
WITH_PASSWORD = "http://Aladdin:open%20sesame@proxy.corp:3128"


def proxy_of(url: str, **environment: str) -> str | None:
    """The proxy for a URL by environment variables, as a URL; None for none."""
    proxies = Proxies.from_environment(environment)
    found = None if proxies is None else proxies.proxy_for(Url.parse(url))
    return None if found is None else found.shown


# Which proxy


@pytest.mark.parametrize(
    ("environment", "http", "https"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": PROXY}, PROXY, None),
        ({"HTTPS_PROXY": PROXY}, None, PROXY),
        ({"ALL_PROXY": PROXY}, PROXY, PROXY),
        ({"all_proxy": PROXY, "HTTP_PROXY": "http://b"}, "http://b:80", PROXY),
        ({"https_proxy": "http://b", "HTTPS_PROXY": PROXY}, None, "http://b:80"),
        ({"https_proxy": "", "HTTPS_PROXY": PROXY}, None, None),
        ({"https_proxy": " "}, None, None),
        ({"HTTPS_PROXY": "proxy.corp:3128"}, None, PROXY),
        ({"HTTPS_PROXY": "[fd00::1]:3128"}, None, "http://[fd00::1]:3128"),
        # A CGI program has a header "Proxy" of its client in HTTP_PROXY.
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, PROXY, None),
        ({"HTTPS_PROXY": PROXY, "REQUEST_METHOD": "GET"}, None, PROXY),
    ],
)
def test_the_environment_names_proxies(
    environment: dict[str, str], http: str | None, https: str | None
) -> None:
    assert proxy_of("http://example.com/mcp", **environment) == http
    assert proxy_of("https://example.com/mcp", **environment) == https


@pytest.mark.parametrize(
    ("exceptions", "host", "is_direct"),
    [
        ("*", "example.com", True),
        ("a, *", "example.com", True),
        ("example.com", "example.com", True),
        ("example.com", "EXAMPLE.com.", True),
        ("example.com", "mcp.example.com", True),
        ("example.com", "badexample.com", False),
        (".example.com", "mcp.example.com", True),
        ("*.example.com", "mcp.example.com", True),
        ("mcp.example.com", "example.com", False),
        ("a b,example.com", "example.com", True),
        (",", "example.com", False),
        (".", "example.com", False),
        ("example.com:8443", "example.com:8443", True),
        ("example.com:8443", "example.com", False),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.50", False),
        ("10.0.0.5:8443", "10.0.0.5:8443", True),
        ("10.0.0.0/8", "10.9.8.7", True),
        ("10.0.0.7/8", "10.9.8.7", True),
        ("10.0.0.0/8", "0xa.9.8.7", True),  # the same address
        ("10.0.0.0/8", "11.9.8.7", False),
        ("10.0.0.0/8", "ten.example.com", False),  # names are not looked up
        ("10.0.0.0/8", "[fd00::1]", False),
        ("fd00::/8", "[fd00::1]", True),
        ("[fd00::1]", "[fd00::1]", True),
        ("[fd00::1]:8443", "[fd00::1]:8443", True),
        ("[fd00::1]:8443", "[fd00::1]", False),
    ],
)
def test_no_proxy(exceptions: str, host: str, is_direct: bool) -> None:
    found = proxy_of(f"https://{host}/mcp", HTTPS_PROXY=PROXY, NO_PROXY=exceptions)
    assert found == (None if is_direct else PROXY)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/mcp",
        "http://LOCALHOST.:81/mcp",
        "http://mcp.localhost/mcp",
        "http://127.0.0.1/mcp",
        "http://127.1:80/mcp",
        "https://2130706433/mcp",
        "http://[::1]/mcp",
        "http://[::ffff:127.0.0.1]/mcp",
        "http+unix://%2Frun%2Fmcp.sock/mcp",
    ],
)
def test_this_machine_is_never_behind_a_proxy(url: str) -> None:
    assert proxy_of(url, ALL_PROXY=PROXY) is None
    assert Proxies.of(PROXY).proxy_for(Url.parse(url)) is None


def test_a_proxy_that_is_named_is_for_all_other_hosts() -> None:
    found = Proxies.of(PROXY)
    assert found.proxy_for(Url.parse("http://10.0.0.5/")) == Proxy.parse(PROXY)
    assert found.proxy_for(Url.parse("https://example.com/")) == Proxy.parse(PROXY)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("https://u:secret@proxy.corp", "TLS to the proxy itself is not supported"),
        ("socks5://u:secret@proxy.corp:1080", "Only HTTP proxies are supported"),
        ("socks5:u:secret@proxy.corp:1080", "no // after its scheme; only HTTP proxies"),
        ("SOCKS5H:secret@proxy.corp", "no // after its scheme; only HTTP proxies"),
        ("socks:/u:secret@proxy.corp", "no // after its scheme; only HTTP proxies"),
        ("http:u:secret@proxy.corp:3128", "no // after its scheme; only HTTP proxies"),
        ("https:u:sec://ret@proxy.corp", "no // after its scheme; only HTTP proxies"),
        ("secret://u@proxy.corp:3128", "Only HTTP proxies are supported"),
        ("http://u:secret@", "Not the URL of a proxy"),
        ("http://u:secret@proxy.corp:x", "Not the URL of a proxy"),
        ("http://u:secret@proxy .corp", "Not the URL of a proxy"),
        ("http://u:1234/secret@proxy.corp:3128", "Not the URL of a proxy"),
        ("http://u:1234?secret@proxy.corp:3128", "Not the URL of a proxy"),
        ("http://u:1234#secret@proxy.corp:3128", "Not the URL of a proxy"),
        ("http://u:secret@proxy.corp/path", "Not the URL of a proxy"),
        ("http://u:secret@pröxy.corp", "Not the URL of a proxy"),
        ("http://u:secret@proxy\r\n.corp", "Not the URL of a proxy"),
    ],
)
def test_what_is_no_http_proxy_is_refused_without_its_password(text: str, why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why) as refused:
        Proxies.of(text)
    assert "secret" not in str(refused.value)
    # One of the environment may be for other programs: it is an error when it is needed.
    proxies = Proxies.from_environment({"HTTPS_PROXY": text})
    assert proxies is not None
    assert proxies.proxy_for(Url.parse("http://example.com/")) is None
    proxy = proxies.proxy_for(Url.parse("https://example.com/"))
    assert proxy is not None
    with pytest.raises(ProxyRefused, match=f"(?s){why}.*HTTPS_PROXY") as late:
        _ = proxy.address
    assert "secret" not in str(late.value)


def test_credentials_are_hidden() -> None:
    proxy = Proxy.parse(WITH_PASSWORD)
    assert proxy.authorization == AUTHORIZATION
    assert proxy.address == ("proxy.corp", 3128)
    for shown in (repr(proxy), proxy.shown, repr(Proxies.of(WITH_PASSWORD))):
        assert "sesame" not in shown
        assert AUTHORIZATION.decode() not in shown
    assert Proxy.parse("http://u@p").authorization == b"Basic dTo="


@given(st.text(max_size=30))
def test_no_text_of_the_environment_raises(text: str) -> None:
    proxy_of("https://example.com/", HTTPS_PROXY=text, NO_PROXY=text)


# CONNECT


def tunnel(url: str = "https://example.com/mcp", proxy: str = PROXY) -> Tunnel:
    return Tunnel(Proxy.parse(proxy), Url.parse(url))


def test_connect() -> None:
    assert tunnel(proxy=WITH_PASSWORD).request == (
        b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n"
        b"proxy-authorization: " + AUTHORIZATION + b"\r\n\r\n"
    )
    assert tunnel("https://[fd00::1]:8443/mcp").request == (
        b"CONNECT [fd00::1]:8443 HTTP/1.1\r\nhost: [fd00::1]:8443\r\n\r\n"
    )


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 Connection established\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nproxy-agent: tinyproxy/1.11.2\r\n\r\n",
        # A success has no body (RFC 9110, 9.3.6).
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n",
        b"HTTP/1.1 204 x\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_the_proxy_connects(response: bytes, size: int) -> None:
    opening = tunnel()
    pieces = [response[start : start + size] for start in range(0, len(response), size)]
    *first, last = [opening.receive_data(piece) for piece in pieces]
    assert not any(first)
    assert last


@pytest.mark.parametrize(
    ("response", "why", "is_permanent"),
    [
        (b"407 x\r\nproxy-authenticate: Basic realm=x", "asks for a user and a password", True),
        (b"407 x\r\nproxy-authenticate: NTLM\r\nproxy-authenticate: Basic x", "a password", True),
        (b"401 x", "asks for a user and a password", True),
        (b"407 x", "asks for a user and a password", True),
        (b"407 x\r\nproxy-authenticate: ", "asks for a user and a password", True),
        (
            b"407 x\r\nproxy-authenticate: Negotiate\r\nproxy-authenticate: NTLM",
            "asks for Negotiate, NTLM, and only Basic is supported",
            True,
        ),
        (b"407 x\r\nproxy-authenticate: Digest\xff x", "asks for Digest.*only Basic", True),
        (
            b"403 Forbidden\r\ncontent-length: 5",
            "does not allow a connection to example.com:443",
            1,
        ),
        (b"400 x", "does not allow a connection", True),
        (b"302 x\r\nlocation: http://login.corp/", "does not allow a connection", True),
        (b"405 x", "does not support CONNECT", True),
        (b"501 x", "does not support CONNECT", True),
        (b"500 Unable to connect", "could not reach example.com:443", False),
        (b"502 x", "could not reach example.com:443", False),
        (b"503 x", "could not reach example.com:443", False),
        (b"101 x", "could not|no HTTP proxy|not allow", True),
    ],
)
def test_a_refusal_says_what_to_do(response: bytes, why: str, is_permanent: bool) -> None:
    with pytest.raises(ProxyRefused, match=why) as refused:
        tunnel().receive_data(b"HTTP/1.1 " + response + b"\r\n\r\n")
    assert refused.value.is_permanent == is_permanent
    assert "proxy.corp:3128" in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_wrong_password_is_named_as_such_and_not_shown() -> None:
    with pytest.raises(ProxyRefused, match="does not accept the user and password") as refused:
        tunnel(proxy=WITH_PASSWORD).receive_data(b"HTTP/1.1 407 x\r\n\r\n")
    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x05\x00", None),  # a SOCKS proxy, which waits for more
        (b"\x15\x03\x03\x00\x02\x02\x46\r\n\r\n", "is no HTTP proxy"),
        (b"SSH-2.0-x\r\n\r\n", "is no HTTP proxy"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, "is no HTTP proxy"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK", "sent bytes after it had connected"),
        (b"HTTP/1.1 102 x\r\n\r\n" * 4000, "sent too many interim responses"),
        (b"", "closed the connection"),
    ],
)
def test_a_proxy_that_is_none_or_lies(data: bytes, why: str | None) -> None:
    opening = tunnel()
    if why is None:
        assert not opening.receive_data(data)
        return
    with pytest.raises(ProxyRefused, match=why):
        opening.receive_data(data)


def test_a_proxy_that_does_not_answer() -> None:
    refused = tunnel().no_answer(30.0)
    assert str(refused) == f"the proxy {PROXY} gave no answer to CONNECT in 30 s"
    assert not refused.is_permanent


# Requests that the proxy reads


def begin(url: str, proxies: Proxies | None) -> tuple[Client, ConnectionPool, OpenExchange]:
    client = Client(url, jitter=lambda: 0.5, http11=harness.HTTP11)
    client.start(now=0)
    effect = client.next_effect()
    assert isinstance(effect, OpenExchange)
    return client, ConnectionPool(client, proxies), effect


def test_a_proxy_gets_the_whole_url_of_http() -> None:
    _, pool, effect = begin("http://example.com:81/mcp?x=1", Proxies.of(WITH_PASSWORD))
    connection, request = pool.begin(effect, now=0)
    assert connection.proxy == Proxy.parse(WITH_PASSWORD)
    head = request.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] == b"POST http://example.com:81/mcp?x=1 HTTP/1.1"
    assert b"host: example.com:81" in head
    assert b"proxy-authorization: " + AUTHORIZATION in head


@pytest.mark.parametrize(
    ("url", "proxies"),
    [
        ("https://example.com/mcp", Proxies.of(WITH_PASSWORD)),
        ("http://localhost/mcp", Proxies.of(WITH_PASSWORD)),
        ("http://example.com/mcp", None),
    ],
)
def test_a_server_gets_nothing_for_a_proxy(url: str, proxies: Proxies | None) -> None:
    _, pool, effect = begin(url, proxies)
    connection, request = pool.begin(effect, now=0)
    assert (connection.proxy is not None) is (url.startswith("https:"))
    assert request.startswith(b"POST /mcp HTTP/1.1\r\n")
    assert b"proxy-" not in request.lower()


def respond(url: str, proxies: Proxies | None, status: int) -> str | None:
    """The error of a client whose first response has this status; None if it goes on."""
    client, pool, effect = begin(url, proxies)
    connection, _ = pool.begin(effect, now=0)
    connection.receive_data(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % status, now=0)
    assert connection.is_done
    event = client.next_event()
    return str(event.error) if isinstance(event, Closed) else None


def test_a_proxy_that_wants_a_password_ends_the_call_at_once() -> None:
    failed = respond("http://example.com/mcp", Proxies.of(PROXY), 407)
    assert failed is not None
    assert "the proxy http://proxy.corp:3128 asks for a user and a password" in failed


@pytest.mark.parametrize(
    ("url", "proxies"),
    [("https://example.com/mcp", Proxies.of(PROXY)), ("http://example.com/mcp", None)],
)
def test_a_server_cannot_speak_for_a_proxy(url: str, proxies: Proxies | None) -> None:
    assert respond(url, proxies, 407) == respond(url, proxies, 418)


@pytest.mark.parametrize(("proxies", "peer"), [(Proxies.of(PROXY), ""), (None, "10.0.0.5")])
def test_the_address_of_a_proxy_is_not_that_of_the_server(
    proxies: Proxies | None, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would let the authorization use addresses that are as private as the proxy."""
    client, pool, effect = begin("https://example.com/mcp", proxies)
    heads: list[ResponseHead] = []

    def receive_part(exchange: int, part: ResponsePart, *, now: float) -> None:
        if isinstance(part, ResponseHead):
            heads.append(part)

    monkeypatch.setattr(client, "receive_part", receive_part)
    connection, _ = pool.begin(effect, now=0)
    connection.peer = "10.0.0.5"
    connection.receive_data(b"HTTP/1.1 401 x\r\ncontent-length: 0\r\n\r\n", now=0)
    assert heads[0].peer == peer
