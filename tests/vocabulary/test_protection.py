"""What an application says about access tokens: scopes, the protected resource, fixed tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sansmcp import (
    Access,
    App,
    ConnectionInfo,
    LocalProtocolError,
    ProtectedResource,
    Refusal,
    RequestHead,
    StaticTokens,
)
from sansmcp.authentication import bearer_token
from sansmcp.scopes import checked_scopes, parse_scope

from ..handlers import nothing

requirement = pytest.mark.requirement

URL = "https://mcp.example.com/mcp"
ISSUERS = ("https://login.example.com",)
WELL_KNOWN = "/.well-known/oauth-protected-resource"


def resource(**members: Any) -> ProtectedResource:
    given = dict[str, Any](resource=URL, authorization_servers=ISSUERS) | members
    return ProtectedResource(**given)


def head(*values: bytes) -> RequestHead:
    headers = tuple((b"authorization", value) for value in values)
    return RequestHead(method=b"POST", target=b"/mcp", headers=headers)


# Scopes


@pytest.mark.parametrize(
    ("value", "scopes"),
    [
        ("a", ("a",)),
        ("b a b", ("b", "a")),
        ("mcp:read !#[]~", ("mcp:read", "!#[]~")),
        ("", ()),
        ("a  b", ()),
        (" a", ()),
        ('a"', ()),
        ("a\\", ()),
        ("\u00e4", ()),
        (None, ()),
        (["a"], ()),
    ],
)
def test_the_value_of_a_scope_parameter(value: object, scopes: tuple[str, ...]) -> None:
    assert parse_scope(value) == scopes


def test_scopes_of_a_server() -> None:
    assert checked_scopes(["b", "a", "b"]) == ("b", "a")
    assert checked_scopes({"b", "a", "c"}) == ("a", "b", "c")


@requirement("AUTH-S-015")
@pytest.mark.parametrize("scopes", ["a", [""], ["a b"], ['"'], [1], {"offline_access"}])
def test_what_is_no_set_of_scopes(scopes: Any) -> None:
    with pytest.raises(LocalProtocolError):
        checked_scopes(scopes)
    for name in ("required_scopes", "scopes_supported"):
        with pytest.raises(LocalProtocolError):
            resource(**{name: scopes})
    with pytest.raises(LocalProtocolError):
        resource(implied_scopes={"a": scopes})
    with pytest.raises(LocalProtocolError):
        App("a").handler("tools/call", scopes=scopes)
    with pytest.raises(LocalProtocolError):
        App("a").fallback(nothing, scopes=scopes)


# The protected resource


@requirement("AUTH-S-009")
@pytest.mark.parametrize(
    ("url", "metadata"),
    [
        (URL, f"https://mcp.example.com{WELL_KNOWN}/mcp"),
        ("https://h:8443/public/mcp", f"https://h:8443{WELL_KNOWN}/public/mcp"),
        ("https://h/mcp/", f"https://h{WELL_KNOWN}/mcp/"),
        ("https://h/", f"https://h{WELL_KNOWN}"),
        ("https://h", f"https://h{WELL_KNOWN}"),
        ("http://localhost:1/mcp", f"http://localhost:1{WELL_KNOWN}/mcp"),
        ("http://127.0.0.1:1/mcp", f"http://127.0.0.1:1{WELL_KNOWN}/mcp"),
        ("http://[::1]/mcp", f"http://[::1]{WELL_KNOWN}/mcp"),
    ],
)
def test_where_the_metadata_are(url: str, metadata: str) -> None:
    made = resource(resource=url)
    assert made.metadata_url == metadata
    assert made.metadata_paths == (
        metadata[metadata.index("/.well-known") :].rstrip("/").encode(),
        WELL_KNOWN.encode(),
    )
    assert json.loads(made.metadata) == {
        "resource": url,
        "authorization_servers": [*ISSUERS],
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": ["ES256", "ES384", "ES512", "PS256", "RS256"],
    }


def test_the_scopes_that_are_published() -> None:
    assert json.loads(resource(required_scopes=["b", "a"]).metadata)["scopes_supported"] == [
        "b",
        "a",
    ]
    published = resource(required_scopes=["a"], scopes_supported=["c"]).metadata
    assert json.loads(published)["scopes_supported"] == ["c"]
    assert "scopes_supported" not in json.loads(resource(scopes_supported=[]).metadata)


def test_scopes_may_imply_each_other() -> None:
    made = resource(implied_scopes={"a": ["b"], "b": ["c", "a"]})
    assert made.expand(["a", "x"]) == {"a", "b", "c", "x"}
    assert made.expand([]) == set()


@requirement("AUTH-B-001", "AUTH-S-009")
@pytest.mark.parametrize(
    "members",
    [
        {"resource": "http://mcp.example.com/mcp"},
        {"resource": "http://127.0.0.1.example.com/mcp"},
        {"resource": "http://localhost.example.com/mcp"},
        {"resource": "https://h/mcp#part"},
        {"resource": "https://h/mcp?query"},
        {"resource": "https://user@h/mcp"},
        {"resource": "/mcp"},
        {"resource": b"https://h/mcp"},
        {"authorization_servers": ()},
        {"authorization_servers": "https://login.example.com"},
        {"authorization_servers": ("http://login.example.com",)},
        {"authorization_servers": ("https://login.example.com?a",)},
        {"implied_scopes": ["a"]},
        {"implied_scopes": {"offline_access": ["a"]}},
    ],
)
def test_what_is_no_protected_resource(members: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        resource(**members)


# Tokens


@pytest.mark.parametrize(
    ("values", "token"),
    [
        ([b"Bearer abc"], "abc"),
        ([b" bEARER   a-b.c_d~e+f/g== "], "a-b.c_d~e+f/g=="),
        ([b"Bearer " + b"a" * 16384], "a" * 16384),
        ([b"Bearer " + b"a" * 16385], None),
        ([b"Bearer"], None),
        ([b"Bearer "], None),
        ([b"Bearer a b"], None),
        ([b"Bearer a=b"], None),
        ([b"Bearer a,b"], None),
        ([b"Bearerabc"], None),
        ([b"DPoP abc"], None),
        ([b"Bearer abc", b"Bearer abc"], None),
        ([], None),
    ],
)
def test_the_token_of_a_request(values: list[bytes], token: str | None) -> None:
    assert bearer_token(head(*values)) == token


def test_fixed_tokens() -> None:
    access = Access("ada", {"read"})
    verify = StaticTokens({"one": "bob", "two": access})
    assert verify(head(b"Bearer one"), ConnectionInfo()) == Access("bob")
    assert verify(head(b"Bearer two"), ConnectionInfo()) is access
    assert verify(head(b"Bearer three"), ConnectionInfo()) == Refusal(reason="unknown_token")
    assert verify(head(), ConnectionInfo()) == Refusal()
    assert "two" not in repr(vars(verify))


@pytest.mark.parametrize("tokens", [["a"], {"": "ada"}, {1: "ada"}, {"a": ""}, {"a": None}])
def test_what_are_no_tokens(tokens: Any) -> None:
    with pytest.raises(LocalProtocolError):
        StaticTokens(tokens)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Access(""),
        lambda: Access(b"ada"),  # type: ignore[arg-type]
        lambda: Access("ada", "read"),
        lambda: Access("ada", expires_in=-1),
        lambda: Access("ada", expires_in="1"),  # type: ignore[arg-type]
        lambda: Refusal(503, retry_after=-1),
        lambda: Refusal(503, retry_after=0.5),  # type: ignore[arg-type]
    ],
)
def test_what_authenticate_must_not_return(make: Any) -> None:
    with pytest.raises(LocalProtocolError):
        make()
