"""What is remembered of tokens and keys, for how long, and how much of it."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError
from sansmcp.tokens.claims import TokenRejected, Undecided, VerifiedToken
from sansmcp.tokens.jwt import JwtHeader
from sansmcp.tokens.key_set import KeySet
from sansmcp.tokens.token_cache import TokenCache

ONE, TWO = JwtHeader("RS256", "one"), JwtHeader("RS256", "two")
KEY = {"kty": "RSA", "kid": "one"}
BOTH = {"keys": [KEY, {**KEY, "kid": "two"}, "no key"]}


def loaded() -> KeySet:
    """A set with one key, loaded at time 0."""
    keys = KeySet()
    assert keys.begin_load(0, is_unknown=True)
    keys.loaded({"keys": [KEY]}, 0)
    return keys


def test_the_first_load() -> None:
    keys = KeySet()
    assert (keys.is_empty(0), keys.find(ONE, 0)) == (True, None)
    assert keys.begin_load(0, is_unknown=True)
    assert keys.is_loading
    assert not keys.begin_load(100, is_unknown=True)
    assert isinstance(keys.not_found(ONE), Undecided)
    keys.load_failed("no route")
    assert "no route" in str(keys.not_found(ONE))
    assert not keys.begin_load(4.9, is_unknown=True)
    assert keys.begin_load(5, is_unknown=True)
    keys.loaded({"keys": [KEY]}, 5)
    assert keys.find(ONE, 5) == KEY
    assert not keys.is_loading


def test_an_unknown_key_is_looked_for_twice_a_minute() -> None:
    keys = loaded()
    assert keys.find(TWO, 1) is None
    assert isinstance(keys.not_found(TWO), TokenRejected)
    assert [now for now in range(100) if keys.begin_load(now, is_unknown=True)] == [30]
    keys.loaded(BOTH, 31)
    assert keys.find(TWO, 31) is not None
    assert not keys.begin_load(59, is_unknown=True)


def test_keys_are_loaded_again_when_they_are_old() -> None:
    keys = loaded()
    assert not keys.begin_load(599, is_unknown=False)
    assert keys.begin_load(600, is_unknown=False)
    keys.load_failed("no route")
    assert keys.find(ONE, 3599) == KEY
    assert isinstance(keys.not_found(TWO), Undecided)
    assert not keys.begin_load(629, is_unknown=False)
    assert keys.begin_load(630, is_unknown=False)
    keys.load_failed("no route")
    assert (keys.is_empty(3600), keys.find(ONE, 3600)) == (True, None)


@pytest.mark.parametrize("document", [{}, {"keys": {}}, {"keys": None}])
def test_a_document_without_keys(document: dict[str, object]) -> None:
    keys = loaded()
    assert keys.begin_load(600, is_unknown=False)
    keys.loaded(document, 600)
    assert keys.find(ONE, 600) == KEY
    assert isinstance(keys.not_found(TWO), Undecided)


def token(expires_at: float = 100) -> VerifiedToken:
    return VerifiedToken("ada", (), expires_at)


def test_a_verified_token_is_known_until_it_expires() -> None:
    cache = TokenCache()
    assert cache.find("a", 0) is None
    cache.add("a", token(), 1000)
    cache.add("b", token(), 50)
    assert (cache.find("a", 99), cache.find("b", 49)) == (token(), token())
    assert (cache.find("a", 100), cache.find("b", 50)) == (None, None)
    assert (cache.find("a", 0), cache.find("b", 0)) == (None, None)


def test_a_refused_token_is_refused_again() -> None:
    cache = TokenCache()
    cache.add("a", TokenRejected("no"), 10)
    with pytest.raises(TokenRejected, match="no"):
        cache.find("a", 9)
    assert cache.find("a", 10) is None


def test_refused_tokens_push_out_no_valid_ones() -> None:
    """Anybody can send refused ones."""
    cache = TokenCache(2, max_refused=2)
    for name in "ab":
        cache.add(name, token(), 1000)
    for number in range(100):
        cache.add(f"random {number}", TokenRejected("no"), 1000)
    assert cache.find("a", 0) == cache.find("b", 0) == token()
    assert cache.find("random 97", 0) is None
    for number in (98, 99):
        with pytest.raises(TokenRejected):
            cache.find(f"random {number}", 0)


def test_a_token_can_become_invalid_and_valid_again() -> None:
    cache = TokenCache()
    cache.add("a", token(), 1000)
    cache.add("a", TokenRejected("no"), 1000)
    with pytest.raises(TokenRejected):
        cache.find("a", 0)
    cache.add("a", token(), 1000)
    assert cache.find("a", 0) == token()


def test_the_cache_is_bounded() -> None:
    cache = TokenCache(2)
    for name in "abcd":
        cache.add(name, token(), 1000)
        cache.find("a", 0)
    assert [name for name in "abcd" if cache.find(name, 0)] == ["a", "d"]
    with pytest.raises(LocalProtocolError):
        TokenCache("2")  # type: ignore[arg-type]
