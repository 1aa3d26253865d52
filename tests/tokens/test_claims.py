"""What an access token must say to be valid here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import Access, LocalProtocolError
from sansmcp.tokens.claims import TokenRejected, TokenRules, VerifiedToken

requirement = pytest.mark.requirement

NOW = 1_000_000.0
ISSUER, AUDIENCE = "https://login.example.com", "https://mcp.example.com/mcp"
RULES = TokenRules(ISSUER, AUDIENCE)
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "ada",
    "exp": NOW + 60,
    "iat": NOW,
    "scope": "use read",
}


def changed(**claims: Any) -> dict[str, Any]:
    """The claims with these changes; None leaves one out."""
    return {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}


def test_a_valid_token() -> None:
    found = RULES.check(CLAIMS, NOW)
    assert found == VerifiedToken(f"{ISSUER} ada", ("use", "read"), NOW + 90)
    assert found.access(NOW) == Access(f"{ISSUER} ada", {"use", "read"}, expires_in=90)
    assert found.access(NOW + 100).expires_in == 0


@requirement("AUTH-S-002", "AUTH-S-003")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": None}, "iss"),
        ({"iss": ISSUER + "/"}, "iss"),
        ({"iss": [ISSUER]}, "iss"),
        ({"aud": None}, "aud"),
        ({"aud": AUDIENCE + "/"}, "aud"),
        ({"aud": AUDIENCE.upper()}, "aud"),
        ({"aud": ["https://other", {"a": 1}]}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {AUDIENCE: 1}}, "aud"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": 1}, "sub"),
        ({"cnf": {"x5t#S256": "x"}}, "cnf"),
        ({"cnf": {"jkt": "x", "more": 1}}, "cnf"),
        ({"cnf": {"jkt": 1}}, "cnf"),
        ({"cnf": []}, "cnf"),
        ({"token_type": "dPoP"}, "DPoP"),
        ({"exp": None}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 10**400}, "exp"),
        ({"exp": NOW - 30}, "expired"),
        ({"nbf": NOW + 31}, "nbf"),
        ({"nbf": "0"}, "nbf"),
        ({"iat": NOW + 31}, "iat"),
    ],
)
def test_a_token_that_is_not_valid_here(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRejected, match=reason):
        RULES.check(changed(**change), NOW)


def test_a_token_that_is_bound_to_a_key() -> None:
    for found in (
        RULES.check(changed(cnf={"jkt": "x"}), NOW),
        RULES.check_introspected(changed(active=True, token_type="DPoP", cnf={"jkt": "x"}), NOW),
    ):
        assert found.thumbprint == "x"
    assert RULES.check(changed(token_type="Bearer"), NOW).thumbprint is None


def test_the_clocks_may_differ() -> None:
    RULES.check(changed(exp=NOW - 29.9, nbf=NOW + 30, iat=NOW + 30), NOW)
    with pytest.raises(TokenRejected):
        TokenRules(ISSUER, AUDIENCE, leeway=0).check(changed(nbf=NOW + 1), NOW)


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, ("a", "b")),
        ({"scope": None, "scp": "a b"}, ("a", "b")),
        ({"scope": None, "scp": ["a", "b", 1]}, ("a", "b")),
        ({"scope": ["a"]}, ("a",)),
        ({"scope": None}, ()),
        ({"scope": ""}, ()),
        ({"scope": {"a": 1}}, ()),
        ({"scope": "a", "scp": "b"}, ("a",)),
        ({"scope": None, "scp": []}, ()),
    ],
)
def test_where_scopes_are(claims: dict[str, Any], scopes: tuple[str, ...]) -> None:
    assert RULES.check(changed(aud=["https://other", AUDIENCE], **claims), NOW).scopes == scopes


def test_what_an_authorization_server_says_of_a_token() -> None:
    active = {"active": True, **CLAIMS}
    assert RULES.check_introspected(active, NOW) == RULES.check(CLAIMS, NOW)
    client = {name: value for name, value in active.items() if name not in ("iss", "sub")}
    found = RULES.check_introspected({**client, "client_id": "robot"}, NOW)
    assert found.principal == f"client {ISSUER} robot"
    for name in ("robot", "client robot", f"client {ISSUER} robot"):
        user = RULES.check_introspected({**active, "sub": name, "client_id": "robot"}, NOW)
        assert user.principal == f"{ISSUER} {name}" != found.principal
    for wrong in (
        {},
        {**active, "active": False},
        {**active, "active": "true"},
        {**active, "iss": "https://other"},
        {**active, "aud": "https://other"},
        {**active, "cnf": {"x5t#S256": "x"}},
        {**active, "token_type": "DPoP"},
        {**active, "cnf": None},
        {**client, "client_id": ""},
        {**client, "client_id": 7},
        {**client, "sub": "", "client_id": "robot"},
        client,
    ):
        with pytest.raises(TokenRejected):
            RULES.check_introspected(wrong, NOW)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "scope", "scp", "cnf"]), _JSON
    )
)
def test_any_claims_are_valid_or_rejected(claims: dict[str, Any]) -> None:
    try:
        found = RULES.check({**CLAIMS, **claims}, NOW)
    except TokenRejected:
        return
    assert found.principal.startswith(f"{ISSUER} ")
    assert found.access(NOW).expires_in is not None


@pytest.mark.parametrize(
    ("issuer", "audience", "leeway"),
    [("http://login.example.com", "a", 0), (ISSUER, None, 0), (ISSUER, "a", -1)],
)
def test_what_are_no_rules(issuer: str, audience: Any, leeway: float) -> None:
    with pytest.raises(LocalProtocolError):
        TokenRules(issuer, audience, leeway)
