"""DPoP proofs that another library has signed, most of them broken."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from sansmcp import Access, LocalProtocolError, ProtectedResource, Refusal, RequestHead
from sansmcp.protected_resource import DPOP_ALGORITHMS
from sansmcp.tokens.claims import INVALID_TOKEN
from sansmcp.tokens.dpop import read_proof
from sansmcp.tokens.jwt import decode_object
from sansmcp_auth import IntrospectionVerifier
from sansmcp_auth._signatures import verified_payload

from .proofs import KEY, KEYS, OTHER, jwk_of, proof, request, thumbprint_of, verify
from .tokens import AUDIENCE, ISSUER, FakeIssuer, claims, encoded, token

EXAMPLE = (
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNo"
    "UklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERW"
    "clUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR"
    "1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCw"
    "iYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-E"
    "y71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA"
)
"""RFC 9449, figure 14, with the access token of figure 13, whose ``jkt`` is in figure 8."""


def bound(key: Any = KEY, **changes: Any) -> str:
    """An access token that is bound to a key."""
    return token(cnf={"jkt": thumbprint_of(key)}, **changes)


def test_the_example_of_the_rfc() -> None:
    read = read_proof(request("any", EXAMPLE))
    assert read.thumbprint == "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"
    payload = decode_object(verified_payload(read.text, read.key, read.header))
    access_token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
    found = read.check_claims(payload, access_token, 1562262616.0)
    assert (found.method, found.id, found.age) == ("GET", "e1j3V_bKic8-LAEB", -2.0)
    assert found.url == "https://resource.example.org/protectedresource"


@pytest.mark.parametrize("algorithm", DPOP_ALGORITHMS)
def test_a_valid_proof(algorithm: str) -> None:
    verifier, key = FakeIssuer().verifier(), KEYS[algorithm]
    access_token = bound(key)
    for _ in range(2):  # the second time the token is known
        head = request(access_token, proof(access_token, key, algorithm, nonce="n", more=[1]))
        found = verify(verifier, head)
        assert isinstance(found, Access), found
        assert found.principal == f"{ISSUER} ada"
        assert found.proof is not None
        assert (found.proof.thumbprint, found.proof.nonce) == (thumbprint_of(key), "n")
        assert (found.proof.method, found.proof.url) == ("POST", AUDIENCE)
        assert found.proof.age == pytest.approx(0, abs=30)


def by_hand(header: Any, payload: Any = None, signature: Any = b"eA") -> str:
    """A proof whose header no library writes."""
    return f"{encoded(header)}.{encoded(payload or {})}.{encoded(signature)}"


def hmac_proof(access_token: str) -> str:
    start = proof(access_token)
    header = encoded({"typ": "dpop+jwt", "alg": "HS256", "jwk": jwk_of(KEY)})
    signed = f"{header}.{start.split('.')[1]}"
    return f"{signed}.{encoded(hmac.digest(b'secret', signed.encode(), 'sha256'))}"


def with_other_claims(access_token: str) -> str:
    one, other = proof(access_token).split("."), proof(access_token).split(".")
    return ".".join((one[0], other[1], one[2]))


EC, HEADER = jwk_of(KEY), {"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk_of(KEY)}
SMALL = jwk_of(rsa.generate_private_key(65537, 1024))
RSA = jwk_of(KEYS["RS256"])


def altered(**members: Any) -> Callable[[str], str]:
    """A proof with another key in its header; None leaves a member out."""
    key = {name: value for name, value in {**EC, **members}.items() if value is not None}
    return lambda access_token: proof(access_token, header={"jwk": key})


def changed(**changes: Any) -> Callable[[str], str]:
    """A proof with other claims."""
    return lambda access_token: proof(access_token, **changes)


BROKEN: dict[str, tuple[Callable[[str], str], str]] = {
    "no JWT": (lambda t: "abc", "no signed JWT"),
    "not base64": (lambda t: "!.!.!", "base64url"),
    "not ASCII": (lambda t: "\xfc.a.b", "base64url"),
    "no JSON": (lambda t: by_hand(b"{"), "JSON"),
    "no object": (lambda t: by_hand([]), "JSON object"),
    "a member twice": (lambda t: by_hand(b'{"alg":"ES256","alg":"ES256"}'), "JSON"),
    "too long": (lambda t: proof(t, more="x" * 8192), "8192"),
    "no typ": (lambda t: proof(t, header={"typ": None}), "typ"),
    "typ of an access token": (lambda t: proof(t, header={"typ": "at+jwt"}), "typ"),
    "typ JWT": (lambda t: proof(t, header={"typ": "JWT"}), "typ"),
    "alg none": (lambda t: by_hand({**HEADER, "alg": "none"}), "alg"),
    "alg HS256": (hmac_proof, "alg"),
    "alg RS1": (lambda t: by_hand({**HEADER, "alg": "RS1"}), "alg"),
    "alg is no text": (lambda t: by_hand({**HEADER, "alg": ["ES256"]}), "alg"),
    "crit": (lambda t: by_hand({**HEADER, "crit": ["b64"], "b64": False}), "crit"),
    "no key": (lambda t: proof(t, header={"jwk": None}), "no key"),
    "a list of keys": (lambda t: proof(t, header={"jwk": [EC]}), "no key"),
    "the private key": (
        lambda t: proof(t, header={"jwk": jwk_of(KEY, is_private=True)}),
        "private",
    ),
    "a secret key": (
        lambda t: by_hand({**HEADER, "jwk": {"kty": "oct", "k": "c2VjcmV0"}}),
        "secret",
    ),
    "a private member alone": (altered(d=""), "private"),
    "another kind of key": (lambda t: by_hand({**HEADER, "jwk": RSA}), "for its algorithm"),
    "another curve": (altered(crv="P-384"), "for its algorithm"),
    "an unknown curve": (altered(crv="secp256k1"), "for its algorithm"),
    "no curve": (altered(crv=None), "for its algorithm"),
    "no y": (altered(y=None), "member y"),
    "y is a number": (altered(y=1), "member y"),
    "a padded x": (altered(x=f"{EC['x']}="), "member x"),
    "a long x": (altered(x="A" * 89), "member x"),
    "a short RSA key": (lambda t: by_hand({**HEADER, "alg": "RS256", "jwk": SMALL}), "member n"),
    "a long RSA key": (
        lambda t: by_hand({**HEADER, "alg": "RS256", "jwk": {**RSA, "n": "_" * 684}}),
        "member n",
    ),
    "a long exponent": (
        lambda t: by_hand({**HEADER, "alg": "RS256", "jwk": {**RSA, "e": "_" * 7}}),
        "member e",
    ),
    "another key": (lambda t: proof(t, OTHER), "cnf.jkt"),
    "a point that is not on the curve": (altered(y=EC["x"]), "cnf.jkt"),
    "signed with another key": (
        lambda t: proof(t, OTHER, header={"jwk": jwk_of(KEY)}),
        "signature",
    ),
    "another key under the id of the issuer's": (
        lambda t: proof(t, OTHER, header={"kid": "rsa"}),
        "cnf.jkt",
    ),
    "another key, and where to find more": (
        lambda t: proof(t, OTHER, header={"jku": "http://127.0.0.1:1/", "x5c": ["AA"]}),
        "cnf.jkt",
    ),
    "no signature": (lambda t: proof(t).rpartition(".")[0] + ".", "signature"),
    "the signature of another proof": (with_other_claims, "signature"),
    "no ath": (changed(ath=None), "ath"),
    "ath of another token": (lambda t: proof(f"{t}x"), "ath"),
    "ath is a list": (changed(ath=[]), "ath"),
    "no jti": (changed(jti=None), "jti"),
    "an empty jti": (changed(jti=""), "jti"),
    "a long jti": (changed(jti="x" * 2049), "jti"),
    "half a character": (changed(jti="\ud800"), "JSON"),
    "jti is a number": (changed(jti=1), "jti"),
    "no htm": (changed(htm=None), "htm"),
    "htm is a list": (changed(htm=["POST"]), "htm"),
    "no htu": (changed(htu=None), "htu"),
    "a long htu": (changed(htu=f"{AUDIENCE}?{'x' * 2048}"), "htu"),
    "no iat": (changed(iat=None), "iat"),
    "iat is no number": (changed(header={}, iat_=0, iat=True), "iat"),
    "iat beyond all numbers": (changed(iat=10**400), "iat"),
    "expired": (changed(exp=int(time.time()) - 1), "exp"),
    "exp is no number": (lambda t: proof(t, exp=True), "exp"),
    "nonce is no text": (changed(nonce=1), "nonce"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_proof(name: str) -> None:
    make, text = BROKEN[name]
    verifier, access_token = FakeIssuer().verifier(), bound()
    good = proof(access_token)
    assert isinstance(verify(verifier, request(access_token, good)), Access)
    for fresh in (verifier, FakeIssuer().verifier()):
        head = request(access_token, make(access_token).encode("latin-1"))
        found = verify(fresh, head)
        assert isinstance(found, Refusal), found
        assert (found.status, found.reason) == (401, "invalid_dpop_proof")
        assert text in found.message
        assert access_token not in found.message


def test_there_is_one_proof() -> None:
    verifier, access_token = FakeIssuer().verifier(), bound()
    one, other = proof(access_token), proof(access_token)
    for proofs in ((), (one, other), (one, one), (f"{one}, {other}",)):
        found = verify(verifier, request(access_token, *proofs))
        assert isinstance(found, Refusal)
        assert found.reason == "invalid_dpop_proof"


def test_the_scheme_is_that_of_the_token() -> None:
    verifier = FakeIssuer().verifier()
    for _ in range(2):
        for access_token, scheme in ((bound(), "Bearer"), (token(), "DPoP")):
            head = request(access_token, proof(access_token), scheme=scheme)
            assert verify(verifier, head) is INVALID_TOKEN
        for scheme in ("dpop", "DPOP  "):
            access_token = bound()
            head = request(access_token, proof(access_token), scheme=scheme)
            assert isinstance(verify(verifier, head), Access)
        unbound = token()
        found = verify(verifier, request(unbound, proof(unbound), scheme="Bearer"))
        assert isinstance(found, Access)
        assert found.proof is None
    head = RequestHead(method=b"POST", target=b"/mcp", headers=((b"authorization", b"DPoP"),))
    assert verify(verifier, head) == Refusal()


@pytest.mark.parametrize(
    "cnf",
    [
        None,
        {},
        [],
        {"x5t#S256": "x"},
        {"jkt": 1},
        {"jkt": thumbprint_of(KEY), "x5t#S256": "x"},
        {"jwk": jwk_of(KEY)},
        {"jkt": thumbprint_of(OTHER)},
    ],
)
def test_a_token_that_is_bound_in_another_way(cnf: Any) -> None:
    verifier = FakeIssuer().verifier()
    access_token = token(cnf=cnf) if cnf is not None else token(cnf=json.loads("[null]"))
    for scheme in ("DPoP", "Bearer"):
        found = verify(verifier, request(access_token, proof(access_token), scheme=scheme))
        assert isinstance(found, Refusal)


def introspecting(**answer: Any) -> IntrospectionVerifier:
    """A verifier whose authorization server says this of each token."""
    issuer = FakeIssuer(documents={f"{ISSUER}/introspect": {"active": True, **claims(), **answer}})
    return IntrospectionVerifier(
        issuer=ISSUER,
        audience=AUDIENCE,
        client_id="a",
        client_secret="b",
        introspection_url=f"{ISSUER}/introspect",
        fetch=issuer.fetch,
    )


def test_an_introspected_token() -> None:
    verifier = introspecting(token_type="DPoP", cnf={"jkt": thumbprint_of(KEY)})
    for _ in range(2):
        found = verify(verifier, request("opaque", proof("opaque")))
        assert isinstance(found, Access)
        assert found.proof is not None
        other = verify(verifier, request("opaque", proof("opaque", OTHER)))
        assert isinstance(other, Refusal)
        assert other.reason == "invalid_dpop_proof"
        assert verify(verifier, request("opaque", scheme="Bearer")) is INVALID_TOKEN
    for answer in ({"token_type": "dpop"}, {"cnf": None}, {"cnf": {"x5t#S256": "x"}}):
        for scheme in ("DPoP", "Bearer"):
            head = request("opaque", proof("opaque"), scheme=scheme)
            assert verify(introspecting(**answer), head) is INVALID_TOKEN
    head = request("opaque", scheme="Bearer")
    assert isinstance(verify(introspecting(token_type="Bearer"), head), Access)


def test_the_settings_of_dpop() -> None:
    given: dict[str, Any]
    for given in ({"dpop": "off"}, {"dpop_max_age": 0}, {"dpop_max_age": float("inf")}):
        with pytest.raises(LocalProtocolError):
            ProtectedResource(resource=AUDIENCE, authorization_servers=(ISSUER,), **given)
