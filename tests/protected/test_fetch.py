"""Requests to an authorization server, over real sockets: servers that are slow, huge or wrong."""

from __future__ import annotations

import functools
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import sansmcp_auth
from sansmcp.tokens.claims import Undecided
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest

from ..tls import contexts

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n" + b'{"a":1}'


@contextmanager
def answering(
    answer: Callable[[socket.socket], None], context: ssl.SSLContext | None = None
) -> Generator[str, None, None]:
    """Accept one connection, read its request, and answer it; yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connected, _ = listener.accept()
                with connected:
                    stream = connected
                    if context is not None:
                        stream = context.wrap_socket(connected, server_side=True)
                    assert b"\r\n\r\n" in stream.recv(65536)
                    answer(stream)
                    stream.close()

        thread = threading.Thread(target=serve)
        thread.start()
        scheme = "http" if context is None else "https"
        try:
            yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/keys"
        finally:
            listener.close()
            thread.join()


def fetch(url: str, **options: float) -> FetchedResponse:
    return sansmcp_auth.fetch(FetchRequest.get(url), **options)  # type: ignore[arg-type]


def test_a_document() -> None:
    with answering(lambda stream: stream.sendall(OK)) as url:
        assert fetch(url).document() == {"a": 1}


def test_a_document_over_tls() -> None:
    server, client = contexts()
    trusting = functools.partial(sansmcp_auth.fetch, ssl_context=client)
    with answering(lambda stream: stream.sendall(OK), server) as url:
        assert trusting(FetchRequest.get(url)).document() == {"a": 1}
    with (
        answering(lambda stream: stream.sendall(OK), server) as url,
        pytest.raises(Undecided, match="CERTIFICATE_VERIFY_FAILED") as refused,
    ):
        fetch(url)
    assert "authority's certificate: the ssl_context of fetch, or" in str(refused.value)
    if ssl.OPENSSL_VERSION_INFO >= (3,):  # before, it keeps no certificate of a failed handshake
        assert "the certificate names '127.0.0.1', and is signed by" in str(refused.value)


def endless(stream: socket.socket) -> None:
    stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    with suppress(OSError):
        while True:
            stream.sendall(b"a" * 65536)


def dripping(stream: socket.socket) -> None:
    """A byte whenever the client has read one: each arrives in time, and there is no end."""
    stream.settimeout(0.01)
    with suppress(OSError):
        while True:
            stream.sendall(b"H")
            with suppress(TimeoutError):
                if not stream.recv(1):
                    return


def sending(data: bytes) -> Callable[[socket.socket], None]:
    return lambda stream: stream.sendall(data)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (endless, "more than"),
        (dripping, "timed out"),
        (sending(b""), "incomplete"),
        (sending(OK[:-1]), "incomplete"),
        (sending(b"220 mail ESMTP\r\n\r\n"), "not HTTP/1.1"),
    ],
)
def test_a_server_that_is_no_good(answer: Callable[[socket.socket], None], reason: str) -> None:
    with answering(answer) as url, pytest.raises(Undecided, match=reason):
        fetch(url, timeout=0.5)


def test_a_redirect_is_not_followed() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    with answering(lambda stream: stream.sendall(redirect)) as url:
        response = fetch(url)
    assert response.is_missing
    with pytest.raises(Undecided, match="302"):
        response.document()


def test_nobody_listens() -> None:
    with pytest.raises(Undecided, match=r"http://127\.0\.0\.1:1/"):
        fetch("http://127.0.0.1:1/")


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example"])
def test_a_name_that_cannot_be_looked_up(host: str) -> None:
    with pytest.raises(Undecided):
        fetch(f"https://{host}/keys")


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0.0.0.0", "224.0.0.1"],
)
def test_an_address_that_no_authorization_server_has(host: str) -> None:
    with pytest.raises(Undecided, match="no request is sent to"):
        fetch(f"https://{host}/keys")


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every name have these addresses."""
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *more: int, **settings: int) -> list[Any]:
        if host[0].isdigit():
            return list(real(host, port, *more, **settings))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr("socket.getaddrinfo", resolve)


def test_a_name_with_a_link_local_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address counts, and not the name."""
    resolve_to(monkeypatch, "169.254.169.254")
    with pytest.raises(Undecided, match=r"no request is sent to 169\.254\.169\.254"):
        fetch("https://login.example.com/keys")


def test_another_address_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is not allowed, and nothing listens at the second one."""
    resolve_to(monkeypatch, "169.254.169.254", "127.0.0.2", "127.0.0.1")
    with answering(lambda stream: stream.sendall(OK)) as url:
        assert fetch(url.replace("127.0.0.1", "localhost")).document() == {"a": 1}
