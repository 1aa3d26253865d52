"""The signatures of clients."""

from __future__ import annotations

from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey, import_key

from sansmcp_auth import JoseSigner


def claims_of(token: str, key: Any, algorithm: str) -> Any:
    return jwt.decode(token, import_key(key), algorithms=[algorithm])


@pytest.mark.parametrize("algorithm", ["ES256", "ES384"])
def test_a_key_signs(algorithm: str) -> None:
    signer = JoseSigner()
    key = signer.make_key(algorithm)
    header = {"alg": algorithm, "typ": "dpop+jwt"}
    token = signer.sign(header, {"jti": "j"}, key)
    public = {name: value for name, value in key.items() if name != "d"}
    decoded = claims_of(token, public, algorithm)
    assert decoded.claims == {"jti": "j"}
    assert decoded.header == header


@pytest.mark.parametrize(("kind", "algorithm"), [("EC", "ES256"), ("RSA", "RS256")])
def test_a_key_in_pem(kind: str, algorithm: str) -> None:
    made = ECKey.generate_key("P-256") if kind == "EC" else RSAKey.generate_key(2048)
    pem = made.as_pem(private=True).decode()
    token = JoseSigner().sign({"alg": algorithm}, {"sub": "c"}, pem)
    assert claims_of(token, made.as_dict(private=False), algorithm).claims == {"sub": "c"}


def test_wrong_keys_raise() -> None:
    with pytest.raises(KeyError):
        JoseSigner().make_key("HS256")
    with pytest.raises(ValueError, match=r"."):
        JoseSigner().sign({"alg": "ES256"}, {}, "no PEM")
