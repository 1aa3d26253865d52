"""Whatever goes wrong, a flow ends: with a token, or with an error that says why."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from sansmcp.auth.clients import OAuthClient
from sansmcp.auth.options import Authorization, ClientCredentials
from sansmcp.auth.steps import Failed, Obtained
from sansmcp.auth.urls import origin_of
from sansmcp.effects import LoadCredentials, LockCredentials, MakeKey, SaveCredentials, SignJwt

from .bench import ASM, PRM, RESOURCE, SERVER, Answer, Asked, Bench, World

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
CHANGED: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        *[
            {name: value}
            for name in (*SERVER, *RESOURCE)
            for value in (None, "", 7, ["https://evil.example"], "https://evil.example")
        ],
        {"access_token": "x"},
        {"token_type": "other", "access_token": "x"},
        {"expires_in": 0},
        {"scope": "other"},
    ]
)


@attrs.frozen
class Fault:
    """What happens to the request of this number: nothing, or one of these."""

    at: int
    answer: Any = None
    change: dict[str, Any] = attrs.field(factory=dict[str, Any])


def replaced(at: int) -> st.SearchStrategy[Fault]:
    answers = st.one_of(
        st.just("the connection broke"),
        st.just(None),
        st.tuples(st.sampled_from([200, 201, 302, 400, 401, 404, 500, 503]), DOCUMENTS),
        st.tuples(st.just(200), st.binary(max_size=20)),
        st.tuples(
            st.just(400),
            st.sampled_from(["invalid_grant", "invalid_client", "use_dpop_nonce", "x"]).map(
                lambda error: {"error": error}
            ),
            st.sampled_from([{}, {"dpop-nonce": "n"}]),
        ),
    )
    return answers.map(lambda answer: Fault(at, answer=(answer,)))


def faults() -> st.SearchStrategy[list[Fault]]:
    one = st.integers(0, 8).flatmap(
        lambda at: replaced(at) | CHANGED.map(lambda change: Fault(at, change=change))
    )
    return st.lists(one, max_size=4)


OPTIONS = (
    Authorization(),
    Authorization(dpop=True),
    Authorization(client=OAuthClient(client_id="c", client_secret="s")),
    Authorization(client=OAuthClient(client_id="c", private_key="k"), grant=ClientCredentials()),
)


class FaultyWorld(World):
    """A world in which requests fail."""

    faults: dict[int, Fault]

    def answer(self, request: Asked) -> Answer:
        fault = self.faults.get(len(self.asked) - 1)
        if fault is not None and fault.answer is not None:
            return fault.answer[0]  # type: ignore[no-any-return]
        usual = super().answer(request)
        if fault is not None and isinstance(usual, tuple) and isinstance(usual[1], dict):
            changed: dict[str, Any] = {**usual[1], **fault.change}
            return usual[0], changed
        return usual


@settings(max_examples=6 * settings().max_examples, deadline=None)
@given(
    plan=faults(),
    options=st.sampled_from(OPTIONS),
    burning=st.sets(
        st.sampled_from([LoadCredentials, SaveCredentials, LockCredentials, MakeKey, SignJwt]),
        max_size=1,
    ),
    refusals=st.lists(
        st.sampled_from(
            [
                (401, "Bearer"),
                (401, "DPoP"),
                (401, 'Bearer scope="a b"'),
                (403, 'Bearer error="insufficient_scope", scope="c"'),
                (403, 'Bearer error="insufficient_scope"'),
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    expires=st.booleans(),
)
def test_every_flow_ends(
    plan: list[Fault],
    options: Authorization,
    burning: set[type],
    refusals: list[tuple[int, str]],
    expires: bool,
) -> None:
    server = {
        **SERVER,
        "dpop_signing_alg_values_supported": ["ES256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
    }
    world = FaultyWorld(
        documents={PRM: RESOURCE, ASM: server},
        gives_refresh=True,
        lifetime=100.0,
        token_type="DPoP" if options.dpop else "Bearer",
        storage_fails=burning,
    )
    world.faults = {fault.at: fault for fault in plan}
    bench = Bench(world, options)
    bench.start()
    settle(bench)
    for status, challenge in refusals:
        bench.refused(status, challenge)
        settle(bench)
        if expires:
            world.wall_time += 200
            bench.flow.prepare(bench.now)
            bench.run()
            settle(bench)
    assert all(isinstance(end, Obtained | Failed) for end in bench.ends)
    assert world.locked == set()
    for asked in world.asked:
        check_secrets_stay(asked)


def settle(bench: Bench) -> None:
    """Let time pass until no flow runs."""
    for _ in range(400):
        if not bench.flow.is_busy:
            return
        assert bench.flow.deadline < float("inf")
        bench.wait()
    raise AssertionError("the flow does not end")


def check_secrets_stay(asked: Asked) -> None:
    """A code and a refresh token go to the server that issued them; access tokens nowhere."""
    assert b"token-" not in asked.body
    if b"code=code-" in asked.body or b"refresh-" in asked.body:
        assert origin_of(asked.url) in ("https://as.example:443", "https://evil.example:443")
