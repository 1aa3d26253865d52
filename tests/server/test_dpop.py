"""DPoP at the server: a proof is compared with its request, and accepted once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from sansmcp import (
    Access,
    ConnectionInfo,
    DpopProof,
    Limits,
    LocalProtocolError,
    MemoryStore,
    Refusal,
    RequestHead,
    Server,
    StateSigner,
)
from sansmcp.authentication import bearer_token, dpop_token
from sansmcp.effects import Authenticate, ServerEffect, StoreAppend
from sansmcp.events import CallReceived
from sansmcp.protected_resource import DPOP_ALGORITHMS
from sansmcp.store import AppendResult

from .harness import STREAM, RawExchange, expect, initialize
from .modern.harness import KEY, modern
from .protected_harness import METADATA, RESOURCE, URL, ProtectedHarness, scoped_app

REQUIRED = attrs.evolve(RESOURCE, dpop="required")
NONCES = attrs.evolve(RESOURCE, dpop_nonces=True)
BAD, USED = "invalid_dpop_proof", "used before"


class DpopHarness(ProtectedHarness):
    """A server whose clients make proofs, which are verified already; ``proof`` is the next one.

    The token ``bound`` is bound to a key, ``user`` is not.
    """

    def __init__(self, **settings: Any) -> None:
        self.made = 0
        self.principal = "ada"
        self.proof: DpopProof | None = None
        self.outcome: Access | Refusal | None = None
        """What ``authenticate`` returns; None to look at the request."""
        super().__init__(**settings)
        self.token = None
        self.verify = self.authenticate  # type: ignore[assignment]

    def authenticate(self, head: RequestHead, connection: ConnectionInfo) -> Access | Refusal:
        if self.outcome is not None:
            return self.outcome
        if (bearer_token(head), dpop_token(head)) == (None, None):
            return Refusal()
        has_proof = dpop_token(head) == "bound"
        return Access(self.principal, {"use"}, proof=self.proof if has_proof else None)

    def make(self, **changes: Any) -> DpopProof:
        """Make the proof of the next request, with these changes."""
        self.made += 1
        fresh = DpopProof(thumbprint="key", method="POST", url=URL, id=f"{self.made}", age=0.0)
        self.proof = attrs.evolve(fresh, **changes)
        return self.proof

    def attempt(self, proof: DpopProof | None = None, scheme: str = "DPoP bound") -> RawExchange:
        """A request with this proof, or a new one."""
        self.proof = proof or self.make()
        return self.ask(modern(1, "tools/list"), {"authorization": scheme})


def challenged(talk: RawExchange, error: str) -> dict[str, str]:
    """The parameters of the challenge of a request that was refused with this error."""
    value = talk.header("www-authenticate")
    assert (talk.status, talk.header("cache-control")) == (401, "no-store")
    assert value is not None
    scheme, _, rest = value.partition(" ")
    assert scheme == "DPoP"
    found = dict(pair.removesuffix('"').split('="') for pair in rest.split(", "))
    assert (found["algs"], found["error"]) == (" ".join(DPOP_ALGORITHMS), error)
    assert (found["resource_metadata"], found["scope"]) == (METADATA, "use")
    return found


def told(talk: RawExchange, status: int, reason: str, code: int = -32600) -> str:
    """The text of a refusal."""
    expect(talk, status, reason, code)
    text: str = talk.error["message"]
    return text


def is_accepted(talk: RawExchange) -> bool:
    """Whether the handler of a request was called."""
    return not talk.ended and talk.status is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"age": 300.0},
        {"age": -300.0},
        {"url": URL + "?a=1#b"},
        {"url": URL + "/"},
        {"url": "HTTPS://MCP.example.com:443/mcp"},
        {"url": "https://mcp.example.com/%6dcp"},
        {"nonce": "which is not asked for"},
    ],
)
def test_a_proof_that_is_valid(changes: Mapping[str, Any]) -> None:
    harness = DpopHarness()
    assert is_accepted(harness.attempt(harness.make(**changes)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"method": "GET"}, "htm"),
        ({"method": "post"}, "htm"),
        ({"url": "https://mcp.example.com/other"}, "htu is not https://mcp.example.com/mcp"),
        ({"url": "https://mcp.example.com/mcp/more"}, "htu"),
        ({"url": "https://mcp.example.com/MCP"}, "htu"),
        ({"url": "https://mcp.example.com/%2Fmcp"}, "htu"),
        ({"url": "https://mcp.example.com:8443/mcp"}, "htu"),
        ({"url": "http://mcp.example.com/mcp"}, "htu"),
        ({"url": "https://mcp.example.org/mcp"}, "htu"),
        ({"url": "https://user@mcp.example.com/mcp"}, "htu"),
        ({"url": "http://localhost/mcp"}, "htu"),
        ({"url": "/mcp"}, "htu"),
        ({"url": "https://[/mcp"}, "htu"),
        ({"url": "https://mcp.example.com/./mcp"}, "htu"),
        ({"url": "https://mcp.example.com/a/../mcp"}, "htu"),
        ({"url": "https://mcp.example.com/%2e/mcp"}, "htu"),
        ({"url": "https://mcp.example.com//mcp"}, "htu"),
        ({"url": "https://mcp.example.com/mcp;a"}, "htu"),
        ({"url": "https://mcp.example.com/mcp%00"}, "htu"),
        ({"url": "https://mcp.example.com./mcp"}, "htu"),
        ({"url": "https://mcp.example.com\\mcp"}, "htu"),
        ({"url": " https://mcp.example.com/mcp"}, "htu"),
        ({"url": "https:mcp.example.com/mcp"}, "htu"),
        ({"url": "//mcp.example.com/mcp"}, "htu"),
        ({"age": 300.1}, "iat is not within 300 s"),
        ({"age": -300.1}, "iat"),
        ({"age": float("nan")}, "iat"),
        ({"age": float("inf")}, "iat"),
    ],
)
def test_a_proof_that_is_for_another_request_or_time(changes: Mapping[str, Any], text: str) -> None:
    harness = DpopHarness()
    talk = harness.attempt(harness.make(**changes))
    assert "error_description" in challenged(talk, BAD)
    message = told(talk, 401, BAD)
    assert message.startswith("The DPoP proof is not valid: its ")
    assert text in message
    assert is_accepted(harness.attempt())


def test_a_path_that_is_no_url_has_no_proof() -> None:
    harness = DpopHarness()
    for target in ("/\x80", "/other"):
        harness.make(url="no url")
        challenged(harness.send("POST", {"authorization": "DPoP bound"}, target=target), BAD)


def test_the_age_is_a_setting() -> None:
    harness = DpopHarness(protected_resource=attrs.evolve(RESOURCE, dpop_max_age=5))
    challenged(harness.attempt(harness.make(age=6.0)), BAD)
    assert is_accepted(harness.attempt(harness.make(age=5.0)))


def test_a_proof_is_accepted_once_until_no_clock_accepts_it() -> None:
    harness = DpopHarness()
    proof = harness.make(age=-300.0)
    assert is_accepted(harness.attempt(proof))
    for passed in (0.0, 300.0, 359.0):
        harness.now += passed
        talk = harness.attempt(attrs.evolve(proof, age=proof.age + passed, url=URL + "?another"))
        if passed < 359:
            assert USED in told(talk, 401, BAD)
    other_key = attrs.evolve(proof, thumbprint="another key", age=0.0)
    assert is_accepted(harness.attempt(other_key))
    harness.now += 2.0
    assert is_accepted(harness.attempt(attrs.evolve(proof, age=0.0)))


def test_accounts_that_flood_a_server_cost_others_nothing() -> None:
    """The accounts have to wait, and the proofs of all others are accepted, each once."""
    harness = DpopHarness(limits=Limits(max_dpop_proofs=40))
    harness.principal = "eve"
    used = harness.make()
    assert is_accepted(harness.attempt(used))
    for account in range(6):
        harness.principal = f"account {account}"
        while is_accepted(talk := harness.attempt()):
            pass
        assert told(talk, 429, "too_many_proofs").endswith("try again in 60 s")
        assert talk.header("retry-after") == "60"
        harness.principal = f"user {account}"
        assert is_accepted(harness.attempt())
        harness.principal = "eve"
        assert USED in told(harness.attempt(used), 401, BAD)
    assert is_accepted(harness.attempt())


@pytest.mark.parametrize("scheme", ["DPoP user", "dpop user", "DPoP", "DPoPx bound"])
def test_a_token_that_is_not_bound_is_not_sent_with_the_scheme_dpop(scheme: str) -> None:
    harness = DpopHarness()
    harness.outcome = Access("ada", {"use"})
    talk = harness.attempt(scheme=scheme)
    challenged(talk, "invalid_token")
    expect(talk, 401, reason="token_not_bound")
    assert is_accepted(harness.attempt(scheme="Bearer user"))


def test_a_server_that_requires_dpop() -> None:
    harness = DpopHarness(protected_resource=REQUIRED)
    challenged(harness.attempt(scheme="Bearer user"), "invalid_token")
    value = harness.ask(modern(1, "tools/list")).header("www-authenticate")
    assert value == (
        f'DPoP algs="{" ".join(DPOP_ALGORITHMS)}", scope="use", resource_metadata="{METADATA}"'
    )
    assert is_accepted(harness.attempt())
    document = harness.send("GET", target="/.well-known/oauth-protected-resource").json
    assert document["dpop_bound_access_tokens_required"] is True


def test_what_the_metadata_say() -> None:
    def document(**settings: Any) -> Any:
        resource = attrs.evolve(RESOURCE, **settings)
        harness = ProtectedHarness(protected_resource=resource)
        return harness.send("GET", target="/.well-known/oauth-protected-resource").json

    accepted, none = document(), document(dpop=None)
    assert accepted.pop("dpop_signing_alg_values_supported") == list(DPOP_ALGORITHMS)
    assert accepted == none
    assert not any("dpop" in name for name in none)


def test_the_challenge_for_a_scope_has_the_scheme_of_the_request() -> None:
    harness = DpopHarness()
    for message in (modern(1, "resources/list"), modern(1, name="sum")):
        for scheme in ("DPoP bound", "Bearer user"):
            harness.make()
            talk = harness.ask(message, {"authorization": scheme})
            value = talk.header("www-authenticate") or ""
            assert (talk.status, value.split()[0]) == (403, scheme.split()[0])
            assert 'error="insufficient_scope"' in value
    harness.outcome = Access("ada", proof=harness.make())
    talk = harness.ask(modern(1, "tools/list"), {"authorization": "DPoP bound"})
    assert (talk.header("www-authenticate") or "").startswith("DPoP ")


def test_a_refusal_of_the_application_names_the_scheme() -> None:
    harness = DpopHarness()
    for reason, error in (("invalid_token", "invalid_token"), (BAD, BAD), (None, "invalid_token")):
        harness.outcome = Refusal(reason=reason)
        challenged(harness.attempt(), error)


@pytest.mark.parametrize("settings", [{"protected_resource": None}, {}])
def test_a_proof_that_the_server_cannot_check_is_no_access(settings: dict[str, Any]) -> None:
    harness = DpopHarness(**{"protected_resource": attrs.evolve(RESOURCE, dpop=None), **settings})
    with pytest.raises(LocalProtocolError, match="dpop="):
        harness.attempt()


def test_the_streams_of_a_proof_of_2025() -> None:
    """Each request of a session has a proof of its own, at the URL of the resource."""
    harness = DpopHarness()
    sent = {"authorization": "DPoP bound"}
    harness.make()
    talk = harness.post(initialize(), headers=sent)
    session = talk.header("mcp-session-id")
    assert (talk.status, session is not None) == (200, True)
    challenged(harness.post({"jsonrpc": "2.0", "method": "x"}, session, headers=sent), BAD)
    harness.make(method="GET")
    stream = {"accept": STREAM, "mcp-session-id": session, **sent}
    assert harness.send("GET", stream).status == 200
    harness.make(method="DELETE")
    assert harness.send("DELETE", {"mcp-session-id": session, **sent}).status == 200


@pytest.mark.parametrize(("root", "path"), [("", ""), ("/app", "/app")])
def test_http_sse_has_urls_of_its_own(root: str, path: str) -> None:
    harness = DpopHarness(http_sse="/sse")
    origin, sent = URL.removesuffix("/mcp"), {"accept": STREAM, "authorization": "DPoP bound"}
    for url, status in ((URL, 401), (f"{origin}{path}/sse", 200)):
        harness.make(method="GET", url=url)
        talk = harness.send("GET", sent, target="/sse", root=root)
        assert talk.status == status
    uri = talk.events[0].data or ""
    harness.make(url=f"{origin}{uri}")
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    target = uri.removeprefix(root)
    headers = {"content-type": "application/json", "authorization": "DPoP bound"}
    assert harness.send("POST", headers, body, target=target, root=root).status == 202
    challenged(harness.send("POST", headers, body, target=target, root=root), BAD)


# Nonces


class NonceHarness(DpopHarness):
    """A server that demands nonces."""

    def __init__(self, **settings: Any) -> None:
        self.time = 1000.0
        signer = StateSigner(keys=(KEY,), clock=lambda: self.time, claim_once=lambda name: False)
        super().__init__(protected_resource=NONCES, state_signer=signer, **settings)


def test_a_nonce_is_demanded_and_renewed() -> None:
    harness = NonceHarness()
    for nonce in (None, "", "made up", "ü"):
        refused = harness.attempt(harness.make(nonce=nonce))
        challenged(refused, "use_dpop_nonce")
        expect(refused, 401, reason="use_dpop_nonce")
    nonce = refused.header("dpop-nonce")
    assert nonce is not None
    for _ in range(2):
        talk = harness.ask(modern(1, "ping"), {"authorization": "DPoP bound"})
        harness.make(nonce=nonce)
        talk = harness.ask(modern(1, "server/discover"), {"authorization": "DPoP bound"})
        assert (talk.status, talk.header("dpop-nonce")) == (200, None)
        harness.make(nonce=nonce)
    harness.time += 150
    harness.make(nonce=nonce)
    talk = harness.ask(modern(1, "server/discover"), {"authorization": "DPoP bound"})
    renewed = talk.header("dpop-nonce")
    assert talk.status == 200
    assert renewed not in (None, nonce)
    harness.time += 150
    challenged(harness.attempt(harness.make(nonce=nonce)), "use_dpop_nonce")
    assert is_accepted(harness.attempt(harness.make(nonce=renewed)))


def test_a_state_of_a_handler_is_no_nonce() -> None:
    harness = NonceHarness()
    signer = StateSigner(keys=(KEY,), clock=lambda: harness.time)
    state = signer.sign(1000.0, "", "tools/call", {}, name="n")
    challenged(harness.attempt(harness.make(nonce=state)), "use_dpop_nonce")


def test_nonces_need_a_signer() -> None:
    with pytest.raises(LocalProtocolError, match="state_signer"):
        Server(
            scoped_app(), new_token=lambda: "t" * 16, authentication=True, protected_resource=NONCES
        )


# Instances that share a store


def two(limits: Limits | None = None, **settings: Any) -> tuple[DpopHarness, DpopHarness]:
    """Two instances with one store."""
    store = MemoryStore(limits or Limits())
    first, second = (
        DpopHarness(
            store=store, tokens=f"instance-{n}", shared_store=True, limits=limits, **settings
        )
        for n in (1, 2)
    )
    return first, second


def test_a_proof_is_accepted_at_one_instance() -> None:
    first, second = two()
    for one, other in ((first, second), (second, first)):
        proof = one.make(id=f"by {one is first}")
        assert is_accepted(one.attempt(proof))
        for again in (other, one, other):
            talk = again.attempt(proof)
            assert USED in told(talk, 401, BAD)
            challenged(talk, BAD)


def test_accounts_that_flood_instances_cost_others_nothing() -> None:
    """What others have used at one instance is not accepted at the other, before and after."""
    first, second = two(Limits(max_dpop_proofs=50, max_stored_entries=120))
    used = [first.make(id=f"{number} of eve") for number in range(4)]
    for each, harness in zip(used, (first, second) * 2, strict=True):
        harness.principal = "eve"
        assert is_accepted(harness.attempt(each))
    for account in range(5):
        for harness in (first, second):
            harness.principal = f"account {account}"
            for _ in range(40):
                harness.attempt()
    for harness in (first, second):
        harness.principal = "eve"
        assert {harness.attempt(each).status for each in used} == {401}
        assert is_accepted(harness.attempt(harness.make(id=f"last at {harness is first}")))


def test_a_request_waits_for_the_store() -> None:
    harness, _ = two()
    harness.store_works = False
    talk = harness.attempt()
    held = [each for each in harness.waiting if isinstance(each, StoreAppend)]
    ours = [each for each in held if each.stream.session.startswith(".dpop.")]
    assert (talk.status, len(ours)) == (None, 1)
    assert not harness.events
    harness.perform_store_effect(ours[0])
    harness.run_pending()
    assert [type(each) for each in harness.events] == [CallReceived]


def test_a_store_that_fails_accepts_no_proof() -> None:
    harness, other = two()
    harness.store_works = False
    proof = harness.make()
    for number in range(6):
        talk = harness.attempt(proof if number == 0 else None)
        if number < 5:  # after five failures the store is not asked
            assert talk.status is None
            harness.server.store_failed(harness.waiting.pop(), "it is gone", now=harness.now)
            talk.pull()
        assert told_of(talk) == (503, "store_failed", "1")
    assert is_accepted(other.attempt(proof))


def told_of(talk: RawExchange) -> tuple[int | None, str, str | None]:
    """The status of a refusal, its reason, and when to try again."""
    return talk.status, talk.error["data"]["reason"], talk.header("retry-after")


def test_a_client_that_leaves_before_the_store_has_answered() -> None:
    harness, _ = two()
    harness.store_works = False
    talk = harness.attempt()
    effect = harness.waiting.pop()
    assert isinstance(effect, StoreAppend)
    talk.lose_connection()
    harness.server.append_completed(effect, AppendResult.STORED, now=harness.now)
    harness.run_pending()
    assert (talk.status, list(harness.events)) == (None, [])


def test_a_store_that_has_lost_entries_accepts_no_proof() -> None:
    harness, _ = two()
    harness.store_works = False
    talk = harness.attempt()
    effect = harness.waiting.pop()
    assert isinstance(effect, StoreAppend)
    harness.server.append_completed(effect, AppendResult.BEHIND, now=harness.now)
    talk.pull()
    assert told_of(talk) == (503, "store_failed", "1")


def test_access_is_reported_once() -> None:
    """A second report changes nothing, also while the store is asked."""
    harness, _ = two()
    harness.store_works = False
    reported: list[tuple[Authenticate, Access | Refusal]] = []

    def authenticate(head: RequestHead, connection: ConnectionInfo) -> Access | Refusal:
        return Access("ada", {"use"}, proof=harness.proof)

    harness.verify = authenticate  # type: ignore[assignment]
    perform = harness.perform

    def noted(effect: ServerEffect) -> None:
        if isinstance(effect, Authenticate):
            reported.append((effect, authenticate(effect.head, ConnectionInfo())))
        perform(effect)

    harness.perform = noted  # type: ignore[method-assign]
    talk = harness.attempt()
    for outcome in (reported[0][1], Refusal()):
        harness.server.authenticated(reported[0][0], outcome, now=harness.now)
    assert talk.status is None
    harness.perform_store_effect(harness.waiting.pop())
    harness.run_pending()
    assert [type(each) for each in harness.events] == [CallReceived]


def test_the_age_is_bounded_by_what_a_store_keeps() -> None:
    harness, _ = two(limits=Limits(max_stored_age=100))
    challenged(harness.attempt(harness.make(age=21.0)), BAD)
    assert is_accepted(harness.attempt(harness.make(age=20.0)))
