"""The policy that stops DNS rebinding."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sansmcp import LocalProtocolError, SecurityPolicy

requirement = pytest.mark.requirement


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (b"localhost", True),
        (b"localhost:8000", True),
        (b"LOCALHOST:1", True),
        (b"127.0.0.1:80", True),
        (b"[::1]", True),
        (b"[::1]:9", True),
        (b"evil.example", False),
        (b"evil.example:80", False),
        (b"localhost.evil.example", False),
        (b"localhost:80:80", False),
        (b"localhost:x", False),
        (b"", False),
        (b"\xff", False),
        (None, False),
    ],
)
def test_only_this_machine_by_default(host: bytes | None, allowed: bool) -> None:
    assert SecurityPolicy().allows_host(host) is allowed


@requirement("SEC-S-001")
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:5", True),
        ("http://evil.example", False),
        ("http://localhost.evil.example", False),
        ("null", False),
        ("", False),
        ("file://", False),
        ("http://localhost/path", False),
        ("http://[::1", False),
        ("chrome-extension://localhost", False),
    ],
)
def test_pages_of_the_same_hosts_by_default(origin: str | None, allowed: bool) -> None:
    assert SecurityPolicy().allows_origin(origin) is allowed


def test_public_names_are_named() -> None:
    policy = SecurityPolicy(allowed_hosts=("mcp.example.com", "h:81"))
    assert policy.allows_host(b"MCP.example.com:443")
    assert policy.allows_host(b"h:81")
    assert not policy.allows_host(b"h:82")
    assert not policy.allows_host(b"localhost")
    assert policy.allows_origin("https://mcp.example.com")
    assert not policy.allows_origin("https://app.example.com")


def test_everything_can_be_allowed_explicitly() -> None:
    policy = SecurityPolicy(allowed_hosts=("*",), allowed_origins=("https://app.example.com",))
    assert policy.allows_host(b"anything")
    assert policy.allows_host(None)
    assert policy.allows_origin("https://APP.example.com")
    assert not policy.allows_origin("https://other.example.com")
    assert SecurityPolicy(allowed_origins=("*",)).allows_origin("null")


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:3000",
        "http://[::1]:8080",
        "https://xn--bcher-kva.example",
        "chrome-extension://abcdefghijklmnop",
        "vscode-webview://1abc",
        "null",
    ],
)
def test_each_origin_that_browsers_send_can_be_listed(origin: str) -> None:
    policy = SecurityPolicy(allowed_origins=(origin,))
    assert policy.allows_origin(origin)
    assert not policy.allows_origin("https://a.example")


def test_case_makes_no_difference() -> None:
    policy = SecurityPolicy(
        allowed_hosts=("MCP.Example.com",), allowed_origins=("https://App.Example.com",)
    )
    assert policy.allows_host(b"mcp.EXAMPLE.com")
    assert policy.allows_origin("https://app.example.COM")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"allowed_hosts": "example.com"},
            "Names must be a tuple of str, got the str 'example.com'",
        ),
        (
            {"allowed_origins": "https://example.com"},
            "Names must be a tuple of str, got the str 'https://example.com'",
        ),
        (
            {"allowed_hosts": ("https://a.example",)},
            "allowed_hosts takes host names, got the URL 'https://a.ex",
        ),
        *(
            (
                {"allowed_origins": ("*", origin)},
                f"allowed_origins takes origins, .* got {re.escape(repr(origin.lower()))}",
            )
            for origin in (
                "https://a.example/",
                "https://a.example/app",
                "https://a.example?b",
                "https://user@a.example",
                "https://ä.example",
                "https://a.example https://b.example",
                "https://a.example\r\nset-cookie: a",
                "a.example",
                "",
            )
        ),
        ({"allowed_origins": ("https://a.example",), "cors": "yes"}, "cors must be bool"),
        ({"cors": True}, "cors=True needs allowed_origins"),
    ],
)
def test_settings_that_could_never_apply(settings: Any, said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        SecurityPolicy(**settings)
