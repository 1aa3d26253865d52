"""Tokens of our own, most of them hostile; keys that change; authorization servers that fail."""

from __future__ import annotations

import hmac
import json
import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

import pytest
from joserfc import jwk

from sansmcp import Access, ConnectionInfo, LocalProtocolError, Refusal, RequestHead
from sansmcp.tokens.claims import INVALID_TOKEN, UNDECIDED
from sansmcp.tokens.fetch import FetchedResponse, FetchRequest
from sansmcp_auth import IntrospectionVerifier, JwtVerifier

from .tokens import (
    AUDIENCE,
    EC,
    ISSUER,
    JWKS_URL,
    METADATA_URL,
    RSA,
    STRANGER,
    FakeIssuer,
    claims,
    encoded,
    header,
    request,
    token,
    verify,
)

requirement = pytest.mark.requirement


@pytest.fixture
def issuer() -> FakeIssuer:
    return FakeIssuer()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Put the clock of the verifiers forward by some seconds."""
    passed = 0.0
    real = time.time

    def wait(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr("sansmcp_auth._verifier.time.time", lambda: real() + passed)
    return wait


def test_a_valid_token(issuer: FakeIssuer) -> None:
    verifier = issuer.verifier()
    for each in (token(), token(EC, header(alg="ES256", kid="ec")), token(head=header(extra=1))):
        found = verify(verifier, each)
        assert isinstance(found, Access)
        assert (found.principal, sorted(found.scopes)) == (f"{ISSUER} ada", ["read", "use"])
        assert found.expires_in == pytest.approx(90, abs=5)
    assert issuer.fetched == [METADATA_URL, JWKS_URL]


def hmac_with_the_public_key() -> str:
    """The classic: a verifier that believes ``alg`` takes the public key for a secret."""
    signed = f"{encoded(header(alg='HS256'))}.{encoded(claims())}"
    tag = hmac.digest(RSA.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{encoded(tag)}"


def with_another_payload() -> str:
    start, _, end = token().split(".")
    return f"{start}.{encoded(claims(sub='root'))}.{end}"


def with_another_header() -> str:
    _, *rest = token().split(".")
    return ".".join([encoded(header(x=1)), *rest])


TWICE = b'{"alg":"RS256","alg":"RS256","typ":"at+jwt","kid":"rsa"}'

HOSTILE: dict[str, Callable[[], str]] = {
    "no algorithm": lambda: f"{encoded(header(alg='none'))}.{encoded(claims())}.",
    "no algorithm, with a signature": lambda: (
        f"{encoded(header(alg='none'))}.{encoded(claims())}.eA"
    ),
    "no signature": lambda: f"{token().rpartition('.')[0]}.",
    "an algorithm that is not allowed": lambda: token(head=header(alg="RS512")),
    "HMAC with the public key": hmac_with_the_public_key,
    "an algorithm that the key is not for": lambda: token(EC, header(alg="ES256", kid="rsa")),
    "an unknown extension": lambda: f"{encoded(header(crit=['x'], x=1))}.{encoded(claims())}.eA",
    "an unencoded payload": lambda: f"{encoded(header(crit=['b64'], b64=False))}.eA.eA",
    "an ID token": lambda: token(head=header(typ="JWT")),
    "another audience": lambda: token(aud="https://other.example.com/mcp"),
    "several other audiences": lambda: token(aud=["https://a", "https://b"]),
    "a longer audience": lambda: token(aud=AUDIENCE + "2"),
    "another issuer": lambda: token(iss="https://evil.example.com"),
    "expired": lambda: token(exp=time.time() - 31),
    "for ever": lambda: token(exp=None),
    "not yet": lambda: token(nbf=time.time() + 60),
    "from the future": lambda: token(iat=time.time() + 60),
    "nobody's": lambda: token(sub=None),
    "bound to a key": lambda: token(cnf={"jkt": "x"}),
    "of another's key": lambda: token(STRANGER),
    "with its own key": lambda: token(STRANGER, header(jwk=STRANGER.as_dict(private=False))),
    "with a key elsewhere": lambda: token(STRANGER, header(jku="https://evil.example.com")),
    "another payload": with_another_payload,
    "another header": with_another_header,
    "huge": lambda: token(junk="a" * 20_000),
    "deep": lambda: f"{encoded(b'[' * 5000)}.eA.eA",
    "a duplicate": lambda: ".".join([encoded(TWICE), "eA", "eA"]),
    "five parts": lambda: "a.b.c.d.e",
    "no JWT": lambda: "opaque",
    "no ASCII": lambda: "b\u00e4r",
}


@requirement("AUTH-S-002", "AUTH-S-003")
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_token(issuer: FakeIssuer, kind: str) -> None:
    found = verify(issuer.verifier(), HOSTILE[kind]())
    assert isinstance(found, Refusal)
    assert (found.status, "evil" in str(issuer.fetched)) == (401, False)


def test_two_tokens_are_none(issuer: FakeIssuer) -> None:
    pair = (b"authorization", b"Bearer " + token().encode())
    head = RequestHead(method=b"POST", target=b"/mcp", headers=(pair, pair))
    assert issuer.verifier()(head, ConnectionInfo()) == Refusal()


def test_what_is_wrong_is_for_the_operator(
    issuer: FakeIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sansmcp")
    wrong = token(aud="https://other.example.com/mcp")
    assert verify(issuer.verifier(), wrong) == INVALID_TOKEN
    assert f"its audience (aud) is not {AUDIENCE}" in caplog.text
    assert wrong not in caplog.text
    assert "aud" not in INVALID_TOKEN.message


# Time


def test_a_verified_token_is_known_until_it_expires(
    issuer: FakeIssuer, clock: Callable[[float], None]
) -> None:
    verifier, mine = issuer.verifier(), token()
    assert isinstance(verify(verifier, mine), Access)
    clock(89)
    late = verify(verifier, mine)
    assert isinstance(late, Access)
    assert late.expires_in == pytest.approx(1, abs=1)
    clock(2)
    assert verify(verifier, mine) == INVALID_TOKEN


def test_keys_change(issuer: FakeIssuer, clock: Callable[[float], None]) -> None:
    verifier = issuer.verifier()
    assert isinstance(verify(verifier, token()), Access)
    new = jwk.RSAKey.generate_key(2048, {"kid": "new"})
    issuer.documents[JWKS_URL] = {"keys": [new.as_dict(private=False)]}
    signed = token(new, header(kid="new"))
    assert verify(verifier, signed) == INVALID_TOKEN  # looked for less than 30 s ago
    clock(30)
    assert isinstance(verify(verifier, signed), Access)
    assert issuer.fetched.count(JWKS_URL) == 2
    assert verify(verifier, token(sub="eve")) == INVALID_TOKEN  # of the key that is withdrawn


def test_unknown_keys_cause_few_requests(
    issuer: FakeIssuer, clock: Callable[[float], None]
) -> None:
    verifier = issuer.verifier()
    for number in range(100):
        assert verify(verifier, token(STRANGER, header(kid=f"{number}"))) == INVALID_TOKEN
        clock(0.5)
    assert issuer.fetched.count(JWKS_URL) == 2


def test_old_keys_serve_while_loading_fails(
    issuer: FakeIssuer, clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    verifier = issuer.verifier()
    assert isinstance(verify(verifier, token()), Access)
    issuer.is_down = True
    for _ in range(5):
        clock(600)
        assert isinstance(verify(verifier, token(exp=time.time() + 10_000)), Access)
        assert verify(verifier, token(STRANGER, header(kid="unknown"))) == UNDECIDED
    assert len(caplog.records) <= 10
    clock(601)
    assert verify(verifier, token(exp=time.time() + 10_000)) == UNDECIDED
    issuer.is_down = False
    clock(30)
    assert isinstance(verify(verifier, token(exp=time.time() + 10_000)), Access)


def test_refused_tokens_are_a_warning_once_a_minute(
    issuer: FakeIssuer, clock: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sansmcp")
    verifier = issuer.verifier()
    expired, foreign = token(exp=int(time.time()) - 1000), token(aud="https://other.example")
    for seconds in (0, 1, 50, 20):
        clock(seconds)
        assert verify(verifier, expired) == verify(verifier, foreign) == INVALID_TOKEN
    told = [(each.levelname, each.getMessage()) for each in caplog.records]
    warned = [text for level, text in told if level == "WARNING"]
    assert len(told) == 8
    assert len(warned) == 2
    assert all("expired" in text for text in warned)


def test_a_warning_is_not_repeated(issuer: FakeIssuer, caplog: pytest.LogCaptureFixture) -> None:
    issuer.is_down = True
    verifier = issuer.verifier()
    for _ in range(10):
        assert verify(verifier, token()) == UNDECIDED
    assert len(caplog.records) == 1


# The metadata


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": ISSUER + "/", "jwks_uri": JWKS_URL},
        {"jwks_uri": JWKS_URL},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": 1},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.com/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        [],
    ],
)
def test_metadata_that_are_wrong(issuer: FakeIssuer, metadata: Any) -> None:
    issuer.documents[METADATA_URL] = metadata
    assert verify(issuer.verifier(), token()) == UNDECIDED
    assert JWKS_URL not in issuer.fetched


def test_metadata_of_openid(issuer: FakeIssuer) -> None:
    document = issuer.documents.pop(METADATA_URL)
    issuer.documents[f"{ISSUER}/.well-known/openid-configuration"] = document
    assert isinstance(verify(issuer.verifier(), token()), Access)
    assert len(issuer.fetched) == 4


@pytest.mark.parametrize(
    "other", [[], {"error": "not found"}, {"issuer": "https://other", "jwks_uri": JWKS_URL}]
)
def test_another_document_at_the_first_place(issuer: FakeIssuer, other: Any) -> None:
    document = issuer.documents[METADATA_URL]
    issuer.documents[METADATA_URL] = other
    issuer.documents[f"{ISSUER}/.well-known/openid-configuration"] = document
    assert isinstance(verify(issuer.verifier(), token()), Access)


def test_no_metadata(issuer: FakeIssuer) -> None:
    del issuer.documents[METADATA_URL]
    assert verify(issuer.verifier(), token()) == UNDECIDED


def test_the_url_of_the_keys_can_be_given(issuer: FakeIssuer) -> None:
    assert isinstance(verify(issuer.verifier(jwks_url=JWKS_URL), token()), Access)
    assert issuer.fetched == [JWKS_URL]


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "RSA", "kid": "rsa"},
        {"kty": "RSA", "kid": "rsa", "n": 1},
        {"kty": "EC", "kid": "rsa", "crv": "unknown", "x": "AA", "y": "AA"},
    ],
)
def test_a_key_that_is_none(issuer: FakeIssuer, key: dict[str, Any]) -> None:
    issuer.documents[JWKS_URL] = {"keys": [key]}
    assert verify(issuer.verifier(), token()) == INVALID_TOKEN


def test_one_thread_loads_the_keys_for_all(issuer: FakeIssuer) -> None:
    waiting, loading = threading.Event(), threading.Event()

    def slow(request: FetchRequest) -> FetchedResponse:
        loading.set()
        assert waiting.wait(30)
        return issuer.fetch(request)

    verifier = JwtVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=JWKS_URL, fetch=slow)
    found: list[Access | Refusal] = []
    threads = [
        threading.Thread(target=lambda: found.append(verify(verifier, token()))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    assert loading.wait(30)
    waiting.set()
    for thread in threads:
        thread.join()
    assert [type(each) for each in found] == [Access] * 8
    assert issuer.fetched == [JWKS_URL]


def test_a_thread_that_is_interrupted_while_it_loads(issuer: FakeIssuer) -> None:
    verifier = issuer.verifier()
    issuer.documents[JWKS_URL] = object()  # a bug: no JSON
    with pytest.raises(TypeError):
        verify(verifier, token())
    assert verify(verifier, token()) == UNDECIDED


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"jwks_url": "http://login.example.com/keys"},
        {"issuer": "http://login.example.com"},
    ],
)
def test_settings_that_are_not_safe(settings: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        JwtVerifier(**(dict[str, Any](issuer=ISSUER, audience=AUDIENCE) | settings))


# Introspection

INTROSPECTION_URL = "https://login.example.com/introspect"


def introspecting(issuer: FakeIssuer, **settings: Any) -> IntrospectionVerifier:
    issuer.documents[METADATA_URL] = {"issuer": ISSUER, "introspection_endpoint": INTROSPECTION_URL}
    return IntrospectionVerifier(
        issuer=ISSUER,
        audience=AUDIENCE,
        client_id="server",
        client_secret="secret",
        fetch=issuer.fetch,
        **settings,
    )


def test_an_answer_counts_for_a_while(issuer: FakeIssuer, clock: Callable[[float], None]) -> None:
    verifier = introspecting(issuer)
    issuer.documents[INTROSPECTION_URL] = {"active": True, **claims(exp=time.time() + 1000)}
    for _ in range(3):
        assert isinstance(verify(verifier, "opaque"), Access)
    assert issuer.fetched == [METADATA_URL, INTROSPECTION_URL]
    issuer.documents[INTROSPECTION_URL] = {"active": False}
    clock(59)
    assert isinstance(verify(verifier, "opaque"), Access)
    clock(2)
    for _ in range(3):
        assert verify(verifier, "opaque") == INVALID_TOKEN
    assert issuer.fetched.count(INTROSPECTION_URL) == 2
    clock(11)
    assert verify(verifier, "opaque") == INVALID_TOKEN
    assert issuer.fetched.count(INTROSPECTION_URL) == 3


class SlowIssuer:
    """Answers no question about a token that begins with ``slow`` before it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.asking = threading.Semaphore(0)
        """Released for each question."""
        self.answering = threading.Event()

    def fetch(self, request: FetchRequest) -> FetchedResponse:
        token = dict(parse_qsl(request.body.decode()))["token"]
        self.asked.append(token)
        self.asking.release()
        if token.startswith("slow"):
            assert self.answering.wait(30)
        answer = {"active": "good" in token, **claims(exp=time.time() + 1000)}
        body = json.dumps(answer).encode()
        response = FetchedResponse()
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
        response.receive_data(head + body)
        return response

    def verifier(self) -> IntrospectionVerifier:
        return IntrospectionVerifier(
            issuer=ISSUER,
            audience=AUDIENCE,
            client_id="server",
            client_secret="secret",
            introspection_url=INTROSPECTION_URL,
            fetch=self.fetch,
        )


@contextmanager
def unknown_tokens(
    slow: SlowIssuer, verifier: IntrospectionVerifier, *tokens: str, peer: str = "10.0.0.1"
) -> Generator[list[Access | Refusal], None, None]:
    """Requests with tokens that are asked about, until the block ends; gives their outcomes."""
    found: list[Access | Refusal] = []

    def send(token: str) -> None:
        found.append(verifier(request(token), ConnectionInfo(peer=(peer, 1))))

    threads = [threading.Thread(target=send, args=(each,)) for each in tokens]
    for thread in threads:
        thread.start()
    for _ in set(tokens):
        assert slow.asking.acquire(timeout=30)
    try:
        yield found
    finally:
        slow.answering.set()
        for thread in threads:
            thread.join()


def sent(verifier: IntrospectionVerifier, token: str, peer: str = "10.0.0.1") -> Access | Refusal:
    """The outcome of one more request."""
    return verifier(request(token), ConnectionInfo(peer=(peer, 1)))


def test_known_tokens_do_not_wait_for_unknown_ones() -> None:
    """Nor does the authorization server get any number of questions."""
    slow = SlowIssuer()
    verifier = slow.verifier()
    assert isinstance(sent(verifier, "good"), Access)
    assert sent(verifier, "bad", "10.0.0.2") == INVALID_TOKEN
    assert slow.asking.acquire(timeout=30)
    assert slow.asking.acquire(timeout=30)
    with unknown_tokens(slow, verifier, *(f"slow.{number}" for number in range(16))) as found:
        connection = ConnectionInfo(peer=("10.0.0.1", 1))
        assert isinstance(verifier.find_known(request("good"), connection), Access)
        assert verifier.find_known(request("bad"), connection) == INVALID_TOKEN
        assert verifier.find_known(request("other"), connection) is None
        assert sent(verifier, "other") == UNDECIDED
        assert sent(verifier, "other", "10.0.0.3") == UNDECIDED
        assert isinstance(sent(verifier, "good"), Access)
    assert found == [INVALID_TOKEN] * 16
    assert sent(verifier, "other") == INVALID_TOKEN
    assert len(slow.asked) == 2 + 16 + 1


def test_there_is_one_question_about_a_token() -> None:
    slow = SlowIssuer()
    verifier = slow.verifier()
    with unknown_tokens(slow, verifier, *["slow.good"] * 8) as found:
        pass
    assert [type(each) for each in found] == [Access] * 8
    assert slow.asked == ["slow.good"]


def test_an_address_that_sends_refused_tokens_leaves_room_for_others(
    clock: Callable[[float], None],
) -> None:
    slow = SlowIssuer()
    verifier = slow.verifier()
    assert sent(verifier, "bad") == INVALID_TOKEN
    assert slow.asking.acquire(timeout=30)
    with unknown_tokens(slow, verifier, *(f"slow.{number}" for number in range(4))):
        assert sent(verifier, "other") == UNDECIDED
        assert sent(verifier, "good", "10.0.0.2") != UNDECIDED
        clock(10)
        assert sent(verifier, "another") == INVALID_TOKEN


def test_only_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_auth._introspection._MAX_SUSPECTS", 1)
    slow = SlowIssuer()
    verifier = slow.verifier()
    for number in range(3):
        assert sent(verifier, f"bad.{number}", f"10.0.0.{number}") == INVALID_TOKEN
        assert slow.asking.acquire(timeout=30)
    with unknown_tokens(slow, verifier, *(f"slow.{number}" for number in range(5))):
        assert isinstance(sent(verifier, "good"), Access)


def test_a_question_that_fails_fails_for_all_who_wait(issuer: FakeIssuer) -> None:
    verifier = introspecting(issuer, introspection_url=INTROSPECTION_URL)
    issuer.documents[INTROSPECTION_URL] = object()  # a bug: no JSON
    for _ in range(20):
        with pytest.raises(TypeError):
            verify(verifier, "opaque")
    issuer.documents[INTROSPECTION_URL] = {"active": True, **claims()}
    assert isinstance(verify(verifier, "opaque"), Access)


def test_a_thread_that_is_interrupted_while_it_asks(issuer: FakeIssuer) -> None:
    def interrupted(request: FetchRequest) -> FetchedResponse:
        raise KeyboardInterrupt

    verifier = introspecting(issuer, introspection_url=INTROSPECTION_URL)
    verifier._fetch = interrupted  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KeyboardInterrupt):
        verify(verifier, "opaque")
    verifier._fetch = issuer.fetch  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    issuer.documents[INTROSPECTION_URL] = {"active": True, **claims()}
    assert isinstance(verify(verifier, "opaque"), Access)


@requirement("AUTH-S-002", "AUTH-S-003")
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"active": "true", **claims()},
        {"active": True, **claims(aud="https://other")},
        {"active": True, **claims(iss="https://other")},
        {"active": True, **claims(exp=1)},
    ],
)
def test_a_token_that_is_not_active_here(issuer: FakeIssuer, answer: dict[str, Any]) -> None:
    verifier = introspecting(issuer, introspection_url=INTROSPECTION_URL)
    issuer.documents[INTROSPECTION_URL] = answer
    assert verify(verifier, "opaque") == INVALID_TOKEN


def test_an_authorization_server_that_does_not_answer(issuer: FakeIssuer) -> None:
    verifier = introspecting(issuer)
    assert verify(verifier, "opaque") == UNDECIDED
    issuer.documents[METADATA_URL]["introspection_endpoint"] = "http://10.0.0.1/"
    verifier = introspecting(issuer)
    issuer.documents[METADATA_URL]["introspection_endpoint"] = "http://10.0.0.1/"
    assert verify(verifier, "opaque") == UNDECIDED
    issuer.documents[METADATA_URL]["introspection_endpoint"] = INTROSPECTION_URL
    issuer.documents[INTROSPECTION_URL] = {"active": True, **claims()}
    assert isinstance(verify(verifier, "opaque"), Access)
    assert json.dumps(issuer.fetched).count("10.0.0.1") == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"client_secret": None},
        {"introspection_url": "http://login.example.com"},
        {"max_age": "1"},
    ],
)
def test_settings_of_introspection_that_are_wrong(
    issuer: FakeIssuer, settings: dict[str, Any]
) -> None:
    arguments = dict[str, Any](client_id="server", client_secret="secret") | settings
    with pytest.raises(LocalProtocolError):
        IntrospectionVerifier(issuer=ISSUER, audience=AUDIENCE, **arguments)
