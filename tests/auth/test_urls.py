"""The URLs of metadata in order, and what is compared by string."""

from __future__ import annotations

import pytest

from sansmcp.auth import urls

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@pytest.mark.requirement("AUTH-C-007", "AUTH-C-008", "AUTH-C-021")
@pytest.mark.parametrize(
    ("endpoint", "challenged", "expected"),
    [
        (
            "https://h.example/public/mcp",
            None,
            [f"https://h.example{WELL_KNOWN}/public/mcp", f"https://h.example{WELL_KNOWN}"],
        ),
        ("https://h.example/", None, [f"https://h.example{WELL_KNOWN}"]),
        ("https://h.example", None, [f"https://h.example{WELL_KNOWN}"]),
        (
            "https://h.example:8/mcp/",
            None,
            [f"https://h.example:8{WELL_KNOWN}/mcp/", f"https://h.example:8{WELL_KNOWN}"],
        ),
        (
            "https://h.example/mcp?a=b",
            None,
            [f"https://h.example{WELL_KNOWN}/mcp?a=b", f"https://h.example{WELL_KNOWN}"],
        ),
        (
            "https://h.example/mcp",
            "https://o.example/x",
            [
                "https://o.example/x",
                f"https://h.example{WELL_KNOWN}/mcp",
                f"https://h.example{WELL_KNOWN}",
            ],
        ),
        (
            "https://h.example/mcp",
            f"https://h.example{WELL_KNOWN}",
            [f"https://h.example{WELL_KNOWN}", f"https://h.example{WELL_KNOWN}/mcp"],
        ),
        ("https://h.example/", "http://o/x", [f"https://h.example{WELL_KNOWN}"]),
        ("https://h.example/", "/relative", [f"https://h.example{WELL_KNOWN}"]),
        (
            "https://h.example/",
            "http://127.0.0.1/x",
            ["http://127.0.0.1/x", f"https://h.example{WELL_KNOWN}"],
        ),
    ],
)
def test_resource_metadata(endpoint: str, challenged: str | None, expected: list[str]) -> None:
    assert urls.resource_metadata_urls(endpoint, challenged) == tuple(expected)


@pytest.mark.requirement("AUTH-C-009", "AUTH-C-010")
@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        (
            "https://a.example/tenant1",
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant1",
                "https://a.example/.well-known/openid-configuration/tenant1",
                "https://a.example/tenant1/.well-known/openid-configuration",
            ],
        ),
        (
            "https://a.example/t/1/",
            [
                "https://a.example/.well-known/oauth-authorization-server/t/1",
                "https://a.example/.well-known/openid-configuration/t/1",
                "https://a.example/t/1/.well-known/openid-configuration",
            ],
        ),
        (
            "https://a.example",
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://a.example:8/",
            [
                "https://a.example:8/.well-known/oauth-authorization-server",
                "https://a.example:8/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_server_metadata(issuer: str, expected: list[str]) -> None:
    assert urls.server_metadata_urls(issuer) == tuple(expected)


def test_defaults_of_2025_03_26() -> None:
    assert urls.default_server_urls("https://h.example:8/mcp") == (
        "https://h.example:8",
        "https://h.example:8/authorize",
        "https://h.example:8/token",
        "https://h.example:8/register",
    )


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://h.example/x?y", True),
        ("HTTPS://h/x", True),
        ("http://localhost:8/x", True),
        ("http://127.9.0.1/x", True),
        ("http://[::1]:8/x", True),
        ("http://h/x", False),
        ("http://localhost.evil.test/x", False),
        ("http://127.0.0.1.nip.io/x", False),
        ("http://127.0.0.256/x", False),
        ("http://127.0.0.01/x", False),
        ("http://2130706433/x", False),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("data:text/html,x", False),
        ("https:///x", False),
        ("https://user@h/x", False),
        ("https://user:password@h/x", False),
        ("https://h.example/x#fragment", False),
        ("https://h.example/x#", False),
        ("https://h.example/ x", False),
        ("https://h.example/\nx", False),
        ("https://h.example/\u00e4", False),
        ("https://h.example:port/x", False),
        ("https://h.example\\@evil/x", False),
        ("https://[::1", False),
        ("//h/x", False),
        ("", False),
    ],
)
def test_safe_urls(url: str, safe: bool) -> None:
    assert urls.is_safe(url) is safe


@pytest.mark.parametrize(
    ("url", "possible"),
    [
        ("https://h.example/client.json", True),
        ("https://h.example/a/b?c", True),
        ("https://h.example", False),
        ("https://h.example/", False),
        ("http://localhost/client.json", False),
        ("https://h.example/a/../b", False),
        ("https://h.example/./b", False),
        ("https://h.example/b#c", False),
        ("https://u@h/b", False),
        ("b", False),
    ],
)
def test_urls_of_client_metadata(url: str, possible: bool) -> None:
    assert urls.is_client_metadata_url(url) is possible


@pytest.mark.parametrize(
    ("resource", "covered"),
    [
        ("https://h.example/public/mcp", True),
        ("HTTPS://H.EXAMPLE:443/public/mcp", True),
        ("https://h.example/public/mcp/", True),
        ("https://h.example/public", True),
        ("https://h.example/public/", True),
        ("https://h.example", True),
        ("https://h.example/", True),
        ("https://h.example/public/mcp?x=y", True),
        ("https://h.example/public/mc", False),
        ("https://h.example/public/mcp/more", False),
        ("https://h.example/Public/mcp", False),
        ("https://h.example:8/public/mcp", False),
        ("http://h/public/mcp", False),
        ("https://o.example/public/mcp", False),
        ("https://h.example/public/mcp#x", False),
        ("nonsense", False),
    ],
)
def test_resources_that_cover_the_endpoint(resource: str, covered: bool) -> None:
    assert urls.covers(resource, "https://h.example/public/mcp?key=1") is covered


@pytest.mark.requirement("AUTH-C-021")
def test_an_endpoint_in_capitals() -> None:
    assert urls.covers("https://h.example/mcp", "HTTPS://H.EXAMPLE/mcp")
    assert urls.origin_of("HTTPS://H.EXAMPLE/mcp") == urls.origin_of("https://h.example:443/x")


def test_parts() -> None:
    assert urls.host_of("https://[::1]:8/x") == "::1"
    assert urls.without_query("https://h.example/x?a#b") == "https://h.example/x"
    assert urls.is_loopback("http://localhost/x")
    assert not urls.is_loopback("nonsense")
    assert not urls.is_loopback("https://h.example/")
