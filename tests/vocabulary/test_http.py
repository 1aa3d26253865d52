"""URLs and heads."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError, RequestHead, Url
from sansmcp.http import quoted_path, request_host


@pytest.mark.parametrize(
    ("text", "host", "port", "target", "authority"),
    [
        ("http://localhost", "localhost", 80, "/", "localhost"),
        ("http://localhost:80/mcp", "localhost", 80, "/mcp", "localhost"),
        ("https://h:8443/a/b?x=1&y", "h", 8443, "/a/b?x=1&y", "h:8443"),
        ("https://H.example/", "h.example", 443, "/", "h.example"),
        ("http://[::1]:8000/mcp#part", "::1", 8000, "/mcp", "[::1]:8000"),
    ],
)
def test_urls(text: str, host: str, port: int, target: str, authority: str) -> None:
    url = Url.parse(text)
    assert (url.host, url.port, url.target, url.authority) == (host, port, target, authority)
    assert Url.parse(str(url)) == url
    assert url.origin == (url.scheme, host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8000",
        "ftp://h/",
        "http:///path",
        "http://user:secret@h/",
        "http://h:99999/",
        "http://h:x/",
        "http://[::1/",
        "http://h/ä",
        "http://h/a b",
        "http://h/\r\nx",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_url_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        Url.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "htp://h/?k=hunter2",
        "http://user:hunter2@[h/",
        "http://user:hunter2/@h:x/",
        "user:hunter2@h",
        "http://h/ä?k=hunter2",
        "http://h:99999/?k=hunter2",
    ],
)
def test_errors_about_urls_show_no_secret(text: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        Url.parse(text)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(LocalProtocolError) as caught:
        Url.parse("http://h/").join("http://user:hunter2@[h/")
    assert "hunter2" not in str(caught.value)


def test_a_url_shows_no_query() -> None:
    url = Url.parse("http://h/mcp?k=hunter2")
    assert url.shown == "http://h/mcp?..."
    assert "hunter2" not in repr(url)
    assert str(url) == "http://h/mcp?k=hunter2"


@pytest.mark.parametrize(
    ("text", "path", "whole"),
    [
        ("http+unix://%2Frun%2FMcp.sock/mcp", "/run/Mcp.sock", "http+unix://%2Frun%2FMcp.sock/mcp"),
        ("HTTP+UNIX://%2frun%2fs", "/run/s", "http+unix://%2Frun%2Fs/"),
        ("http+unix://%2Fa%20b%3A1/mcp?x=1", "/a b:1", "http+unix://%2Fa%20b%3A1/mcp?x=1"),
        ("http+unix://%2F%C3%A4%FF/", "/ä\udcff", "http+unix://%2F%C3%A4%FF/"),
    ],
)
def test_the_url_of_a_unix_socket(text: str, path: str, whole: str) -> None:
    url = Url.parse(text)
    assert (url.scheme, url.port, url.authority, url.socket_path) == (
        "http+unix",
        0,
        "localhost",
        path,
    )
    assert str(url) == whole
    assert Url.of_socket(path, url.target) == url == Url.parse(whole)


def test_other_urls_have_no_socket() -> None:
    assert Url.parse("http://localhost/mcp").socket_path is None


@pytest.mark.parametrize(
    "text",
    [
        "http+unix:///run/mcp.sock/mcp",
        "http+unix://mcp.sock/mcp",
        "http+unix://run%2Fmcp.sock/mcp",
        "http+unix://%2Frun%2Fmcp.sock:80/mcp",
        "http+unix://%00abstract/mcp",
        "http+unix://%2Frun%00/mcp",
        "http+unix://",
    ],
)
def test_what_is_no_url_of_a_unix_socket_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="percent-encode the absolute path"):
        Url.parse(text)


@pytest.mark.parametrize(
    ("reference", "joined", "is_same"),
    [
        ("/other", "http+unix://%2Frun%2Fs/other", True),
        ("other?x=1", "http+unix://%2Frun%2Fs/a/other?x=1", True),
        ("?x=1", "http+unix://%2Frun%2Fs/a/mcp?x=1", True),
        ("http://localhost/other", "http+unix://%2Frun%2Fs/other", True),
        ("http+unix://%2Frun%2Fs/other", "http+unix://%2Frun%2Fs/other", True),
        ("http+unix://%2Frun%2Ft/other", "http+unix://%2Frun%2Ft/other", False),
        ("http://localhost:8000/", "http://localhost:8000/", False),
        ("https://localhost/", "https://localhost/", False),
        ("//evil.example/", "http://evil.example/", False),
    ],
)
def test_references_of_the_server_at_a_unix_socket(
    reference: str, joined: str, is_same: bool
) -> None:
    url = Url.parse("http+unix://%2Frun%2Fs/a/mcp")
    assert str(url.join(reference)) == joined
    assert (url.join(reference).origin == url.origin) is is_same


def test_no_other_url_leads_to_a_unix_socket_by_a_relative_reference() -> None:
    url = Url.parse("http://localhost/mcp")
    assert url.join("/other") == Url.parse("http://localhost/other")
    assert url.join("http+unix://%2Fs/").origin != url.origin


def head(target: bytes, *hosts: bytes) -> RequestHead:
    return RequestHead(
        method=b"GET", target=target, headers=tuple((b"host", host) for host in hosts)
    )


def test_the_host_of_a_request() -> None:
    assert request_host(head(b"/", b" A:80 ")) == b"a:80"
    assert request_host(head(b"/")) is None
    assert request_host(head(b"/", b"a", b"b")) is None
    assert request_host(head(b"*", b"a")) is None


def test_the_path_of_a_request() -> None:
    assert head(b"/mcp?x=1").path == b"/mcp"


def test_a_decoded_path_is_quoted_again() -> None:
    assert quoted_path("/a b/ä%/(c)".encode()) == b"/a%20b/%C3%A4%25/(c)"
