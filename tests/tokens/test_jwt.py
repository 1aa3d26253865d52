"""The header of a token, and the key that may have signed it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import LocalProtocolError
from sansmcp.tokens.claims import TokenRejected
from sansmcp.tokens.jwt import JwtForm, JwtHeader, decode_object, find_key

FORM = JwtForm(("RS256", "ES256"))
HEADER = {"alg": "RS256", "typ": "at+jwt", "kid": "one"}


TWICE = b'{"alg":"RS256","alg":"RS256","typ":"at+jwt"}'


def encoded(document: Any) -> str:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(**changes: Any) -> str:
    """A token whose header has these changes; None leaves a member out."""
    header = {name: value for name, value in {**HEADER, **changes}.items() if value is not None}
    return f"{encoded(header)}.{encoded({})}.c2ln"


@pytest.mark.parametrize("type", ["at+jwt", "AT+JWT", "application/at+jwt"])
def test_a_header(type: str) -> None:
    assert FORM.read_header(token(typ=type)) == JwtHeader("RS256", "one")
    assert FORM.read_header(token(alg="ES256", kid=None, x=1)) == JwtHeader("ES256", None)
    assert JwtForm(["RS256"], ["JWT"]).read_header(token(typ="jwt")) == JwtHeader("RS256", "one")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"alg": None}, "alg"),
        ({"alg": "none"}, "alg"),
        ({"alg": "None"}, "alg"),
        ({"alg": "HS256"}, "alg"),
        ({"alg": "rs256"}, "alg"),
        ({"alg": ["RS256"]}, "alg"),
        ({"alg": "PS256"}, "alg"),
        ({"typ": None}, "typ"),
        ({"typ": "JWT"}, "typ"),
        ({"typ": "dpop+jwt"}, "typ"),
        ({"typ": 1}, "typ"),
        ({"crit": ["b64"], "b64": False}, "crit"),
        ({"crit": []}, "crit"),
        ({"kid": 1}, "kid"),
        ({"kid": ["one"]}, "kid"),
    ],
)
def test_a_header_that_is_not_allowed(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRejected, match=reason):
        FORM.read_header(token(**changes))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a.b",
        "a.b.c.d",
        "a.b.c.d.e",
        "\u00e4.b.c",
        "a.b.c",
        "a=.b.c",
        f"{encoded(b'[]')}.b.c",
        f"{encoded(b'{')}.b.c",
        f"{encoded(b'[' * 100)}.b.c",
        f"{encoded(TWICE)}.b.c",
    ],
)
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(TokenRejected):
        FORM.read_header(text)


@given(st.text() | st.binary().map(encoded).map("{}.a.b".format))
def test_any_text_is_a_header_or_rejected(text: str) -> None:
    with pytest.raises(TokenRejected):
        FORM.read_header(text)


def test_an_object_is_strict() -> None:
    assert decode_object(b'{"a":1}') == {"a": 1}
    for data in (b"1", b'{"a":1,"a":2}', b"\xff"):
        with pytest.raises(TokenRejected):
            decode_object(data)


@pytest.mark.parametrize(
    ("algorithms", "types"),
    [
        ((), ("at+jwt",)),
        (("none",), ("at+jwt",)),
        (("HS256",), ("at+jwt",)),
        (("RS256", "RS1"), ("at+jwt",)),
        ("RS256", ("at+jwt",)),
        (("RS256",), "at+jwt"),
    ],
)
def test_what_is_no_form(algorithms: Any, types: Any) -> None:
    with pytest.raises(LocalProtocolError):
        JwtForm(algorithms, types)


RSA = {"kty": "RSA", "kid": "one"}


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([], False),
        ([RSA], True),
        ([{**RSA, "use": "sig", "alg": "RS256"}], True),
        ([{**RSA, "use": "enc"}], False),
        ([{**RSA, "alg": "PS256"}], False),
        ([{**RSA, "kid": "two"}], False),
        ([{"kty": "RSA"}], False),
        ([{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}], False),
        ([{"kty": "EC", "kid": "one"}, RSA], True),
        ([RSA, RSA], False),
    ],
)
def test_the_key_of_a_token(keys: list[dict[str, Any]], *, found: bool) -> None:
    assert (find_key(keys, JwtHeader("RS256", "one")) is not None) is found


def test_a_token_without_a_key_id() -> None:
    assert find_key([RSA], JwtHeader("RS256", None)) == RSA
    assert find_key([RSA, {**RSA, "kid": "two"}], JwtHeader("RS256", None)) is None
