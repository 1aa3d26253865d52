"""The authorization request and its redirect."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.codes import (
    PendingCode,
    authorization_request,
    challenge_of,
    code_in,
    scopes_of,
)
from sansmcp.auth.metadata import AuthorizationServer
from sansmcp.errors import AuthorizationFailed

SERVER = AuthorizationServer(
    issuer="https://as.example",
    token_endpoint="https://as.example/token",
    authorization_endpoint="https://as.example/authorize",
)


def begin(
    server: AuthorizationServer = SERVER,
    resource: str | None = "https://h.example",
    scopes: tuple[str, ...] = ("a", "b"),
    extra: dict[str, str] | None = None,
) -> PendingCode:
    return authorization_request(
        server,
        OAuthClient(client_id="c d"),
        redirect_uri="http://127.0.0.1:9/cb",
        resource=resource,
        scopes=scopes,
        extra=extra or {},
        random=bytes(range(64)),
    )


def parameters(pending: PendingCode) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(pending.url).query))


def test_the_challenge_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.requirement("AUTH-C-020", "AUTH-C-022")
def test_the_url() -> None:
    pending = begin()
    assert pending.url.startswith("https://as.example/authorize?")
    assert parameters(pending) == {
        "response_type": "code",
        "client_id": "c d",
        "redirect_uri": "http://127.0.0.1:9/cb",
        "code_challenge": challenge_of(pending.verifier),
        "code_challenge_method": "S256",
        "state": pending.state,
        "resource": "https://h.example",
        "scope": "a b",
    }
    assert len(pending.verifier) == len(pending.state) == 43
    assert pending.verifier != pending.state


def test_without_resource_and_scope() -> None:
    assert not {"resource", "scope"} & parameters(begin(resource=None, scopes=())).keys()


def test_the_query_of_the_endpoint_is_kept_and_further_parameters_replace_nothing() -> None:
    server = attrs.evolve(SERVER, authorization_endpoint="https://as.example/authorize?tenant=1")
    found = parameters(begin(server, extra={"prompt": "consent", "state": "mine"}))
    assert (found["tenant"], found["prompt"]) == ("1", "consent")
    assert found["state"] != "mine"


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "http://as/authorize", "https://as.example/ x", ""]
)
def test_a_url_that_must_not_be_opened(url: str) -> None:
    with pytest.raises(AuthorizationFailed) as caught:
        begin(attrs.evolve(SERVER, authorization_endpoint=url))
    assert caught.value.reason == "unsafe_url"


def test_no_secret_is_in_a_repr() -> None:
    pending = begin()
    assert pending.state not in repr(pending)
    assert pending.verifier not in repr(pending)


def redirect(pending: PendingCode, **given: str) -> str:
    return "http://127.0.0.1:9/cb?" + urlencode({"state": pending.state, **given})


def test_a_redirect_as_a_url_and_as_a_query() -> None:
    pending = begin()
    url = redirect(pending, code="x+/=")
    assert code_in(pending, url) == "x+/="
    assert code_in(pending, url.partition("?")[2]) == "x+/="
    assert code_in(pending, f"{url}#_=_") == "x+/="


@pytest.mark.parametrize(
    "query", ["", "code=x", "code=x&state=", "code=x&state=other", "%ff", "state=%F0%9F"]
)
def test_a_redirect_of_somebody_else_is_ignored(query: str) -> None:
    assert code_in(begin(), query) is None


@pytest.mark.requirement("AUTH-C-023")
@pytest.mark.parametrize(
    ("announced", "iss", "reason"),
    [
        (True, "https://as.example", None),
        (True, None, "issuer_missing"),
        (False, "https://as.example", None),
        (False, None, None),
        (True, "https://evil.example", "issuer_mismatch"),
        (False, "https://evil.example", "issuer_mismatch"),
        (False, "https://as.example/", "issuer_mismatch"),
        (False, "https://AS", "issuer_mismatch"),
        (False, "", "issuer_mismatch"),
    ],
)
@pytest.mark.parametrize("outcome", ["code", "error"])
def test_the_issuer_of_the_redirect(
    announced: bool, iss: str | None, reason: str | None, outcome: str
) -> None:
    pending = begin(attrs.evolve(SERVER, sends_issuer=announced))
    more = {} if iss is None else {"iss": iss}
    url = redirect(pending, **{outcome: "access_denied"}, **more)
    if reason is None and outcome == "code":
        assert code_in(pending, url) == "access_denied"
        return
    with pytest.raises(AuthorizationFailed) as caught:
        code_in(pending, url)
    assert caught.value.reason == (reason or "access_denied")
    assert ("access_denied" in str(caught.value)) is (reason is None)


@pytest.mark.parametrize("name", ["code", "state", "iss", "error"])
def test_a_repeated_parameter_is_refused(name: str) -> None:
    pending = begin()
    values = {"code": "x", "iss": "https://as.example", "error": "e", "state": pending.state}
    query = urlencode({**values, name: values[name]}) + "&" + urlencode({name: values[name]})
    with pytest.raises(AuthorizationFailed) as caught:
        code_in(pending, query)
    assert caught.value.reason == "invalid_redirect"


def test_a_redirect_without_a_result_is_refused() -> None:
    pending = begin()
    with pytest.raises(AuthorizationFailed, match="neither a code nor an error"):
        code_in(pending, redirect(pending, code="", error=""))


def test_the_text_of_an_error_is_safe_to_show() -> None:
    pending = begin()
    url = redirect(pending, error="access_denied", error_description="no\x1b[31m")
    with pytest.raises(AuthorizationFailed) as caught:
        code_in(pending, url)
    assert caught.value.reason == "access_denied"
    assert "access_denied: no\\u001b[31m" in str(caught.value)


@given(st.text(max_size=80))
def test_nothing_that_a_browser_sends_is_taken_for_the_answer(text: str) -> None:
    assert code_in(begin(), text) is None


def test_the_scopes_of_a_url_are_those_that_were_asked_for() -> None:
    pending = begin(scopes=("a", "b", "offline_access"))
    assert scopes_of(pending.url) == ("a", "b")
    assert scopes_of("https://as.example/authorize") == ()
