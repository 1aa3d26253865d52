"""Obtain tokens for the requests of one client to one MCP server.

A *flow* leads from a refused request to a token. It is a generator of :class:`Obtaining`, and reads
from top to bottom: metadata of the resource, metadata of the authorization server, client, login,
token. It yields what it waits for and is sent the result. One flow runs at a time, and the requests
of the client wait for it.

:class:`Flow` is what the client talks to. It decides when a flow is needed. Its owner, the client,
pulls steps, performs each as an effect or an event of its own, and reports the result.

Source: 2025-03-26 to 2026-07-28, basic/authorization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from ..codecs.headers import Headers, get_all
from ..credentials import CredentialsKey
from ..effects import AuthEffect, SignJwt
from ..errors import AuthorizationFailed
from ..http import ResponseHead, ResponsePart
from ..states import AuthorizationEvent, AuthorizationState
from .challenges import find_challenge
from .client_choice import Clients
from .discovery import Discovery
from .grants import Grants
from .http import nonce_in
from .obtaining import NO_CHALLENGE, Obtaining
from .options import Authorization
from .reach import Reach
from .refresh import Logout, Refresh
from .runner import Runner
from .signatures import Signer
from .step_ups import MAX_SENDS, MAX_STEP_UPS, Attempt, StepUps
from .steps import Step
from .stored_credentials import StoredCredentials
from .token_requests import TokenRequests
from .tokens import Tokens


@attrs.frozen
class SendAgain:
    """Send the request again when the flow, if one runs, has ended."""


@attrs.frozen
class GiveUp:
    """The request fails with ``error``."""

    error: AuthorizationFailed


Verdict: TypeAlias = SendAgain | GiveUp | None
"""What to do about a refusal; None if it is not about authorization."""


class Flow:
    """The authorization of one client."""

    def __init__(
        self,
        endpoint: str,
        options: Authorization,
        random: Callable[[int], bytes],
        wall_clock: Callable[[], float],
        is_legacy_allowed: bool,
    ) -> None:
        """Prepare the authorization.

        Args:
            endpoint: the URL of the MCP server. Tokens are sent to its origin only.
            options: the settings.
            random: returns a number of random bytes.
            wall_clock: returns the seconds since 1970.
            is_legacy_allowed: True if the client supports 2025-03-26.
        """
        self.endpoint = endpoint
        self._step_ups = StepUps(endpoint)
        self._stored = stored = StoredCredentials(
            CredentialsKey(endpoint, options.account), wall_clock
        )
        self._signer = Signer(random, wall_clock)
        self._reach = reach = Reach(endpoint, options.allowed_hosts, self._signer)
        self._runner = Runner(stored, options.login_timeout)
        clients = Clients(options, stored, reach)
        discovery = Discovery(endpoint, options, is_legacy_allowed, stored, reach, clients)
        requests = TokenRequests(stored, reach, self._signer)
        refresh = Refresh(stored, clients, requests)
        grants = Grants(options, random, stored, reach, clients, requests)
        self._obtaining = Obtaining(options, stored, reach, discovery, refresh, grants)
        self._logout = Logout(stored, reach, discovery, clients, requests)

    @property
    def state(self) -> AuthorizationState:
        """The present state."""
        return self._runner.state

    @property
    def is_busy(self) -> bool:
        """True if requests must wait."""
        return self._runner.is_busy

    @property
    def tokens(self) -> Tokens | None:
        """The tokens in use; None if there are none."""
        return self._stored.tokens

    @property
    def generation(self) -> int:
        """Grows with each new token."""
        return self._stored.generation

    @property
    def logins(self) -> int:
        """How often it has obtained tokens otherwise than by a refresh."""
        return self._stored.logins

    @property
    def deadline(self) -> float:
        """When :meth:`due` is to be called, in seconds on the machine's clock."""
        return self._runner.deadline

    # Inputs

    def start(self, now: float) -> None:
        """Read the stored credentials, and refresh an expired token."""
        self._runner.run(AuthorizationEvent.STARTED, self._obtaining.begin(), now)

    def log_out(self, now: float) -> None:
        """Revoke the stored tokens, and delete them; call this instead of :meth:`start`."""
        self._runner.run_logout(self._logout.log_out(), now)

    def close(self) -> None:
        """Break off the flow, and release the lock."""
        self._runner.close()

    def next_step(self) -> Step | None:
        """Remove and return what to do next; None if there is nothing."""
        return self._runner.next_step()

    def receive(self, part: ResponsePart, now: float) -> None:
        """Receive a part of the response to the request of the last :class:`Fetch`."""
        self._runner.receive(part, now)

    def completed(self, effect: AuthEffect, result: Any, now: float) -> None:
        """Receive the result of an effect. Those of a flow that was broken off are ignored."""
        self._runner.completed(effect, result, now)

    def effect_failed(self, effect: AuthEffect, reason: str, now: float) -> None:
        """Record that an effect could not be performed."""
        self._runner.effect_failed(effect, reason, now)

    def redirected(self, redirect: str, now: float) -> bool:
        """Receive the URL to which a browser was sent. Return False if it is not of this login."""
        return self._runner.redirected(redirect, now)

    def login_failed(self, reason: str, now: float) -> None:
        """Record that the person does not log in."""
        self._runner.login_failed(reason, now)

    def due(self, now: float) -> None:
        """Handle the deadline."""
        self._runner.due(now)

    # Requests of the client

    def prepare(self, now: float) -> bool:
        """Return whether a request can be sent now. If not, it must wait for the flow."""
        expired = self._stored.to_refresh() if self.state is AuthorizationState.READY else None
        if expired is not None:
            steps = self._obtaining.refresh_expired(expired)
            self._runner.run(AuthorizationEvent.EXPIRED, steps, now)
        return not self.is_busy

    def proof(self, method: bytes, url: str) -> SignJwt | None:
        """Return the effect that signs the proof for a request; None if the token needs none."""
        tokens = self.tokens
        if tokens is None or not tokens.is_dpop or tokens.dpop_key is None:
            return None
        return self._signer.proof(tokens.dpop_key, method, url, tokens.access_token)

    def headers(self, proof: str | None) -> Headers:
        """Return the headers that authorize a request; empty if there is no token."""
        if self.tokens is None:
            return ()
        token = self.tokens.access_token.encode()
        if proof is None:
            return ((b"authorization", b"Bearer " + token),)
        return ((b"authorization", b"DPoP " + token), (b"dpop", proof.encode()))

    def responded(self, attempt: Attempt, url: str, head: ResponseHead) -> None:
        """Record what the head of a response tells."""
        self._signer.remember_nonce(url, head.headers)
        if head.status < 400:
            self._step_ups.forget(attempt.operation)

    def refused(self, attempt: Attempt, url: str, head: ResponseHead, now: float) -> Verdict:
        """Return what to do about a refusal of the MCP server, and start a flow if one is needed.

        Args:
            attempt: the attempt that was refused; it is counted here.
            url: the URL of the request.
            head: the head of the response.
            now: the current time in seconds, on the machine's clock.
        """
        challenge = find_challenge(get_all(head.headers, b"www-authenticate"))
        error = "" if challenge is None else challenge.error
        lacks_scope = head.status == 403 and error == "insufficient_scope"
        if head.status != 401 and not lacks_scope:
            return None
        if attempt.sends >= MAX_SENDS + MAX_STEP_UPS * lacks_scope:
            text = f"The server refused the request {attempt.sends} times, each with another token"
            return GiveUp(AuthorizationFailed(text, reason="refused_again", url=url))
        if error == "use_dpop_nonce" and nonce_in(head.headers) and not attempt.has_used_nonce:
            attempt.has_used_nonce = True
            return SendAgain()
        if self.is_busy or attempt.generation != self.generation:
            return SendAgain()
        challenge = challenge or NO_CHALLENGE
        if lacks_scope:
            failure = self._step_ups.count(attempt.operation, challenge, self.tokens)
            if failure is not None:
                return GiveUp(failure)
        failure = self._reach.locate(head.peer, url)
        if failure is not None:
            self._stored.use(None)  # the name of a private server leads elsewhere now
            return GiveUp(failure)
        steps = self._obtaining.after_refusal(challenge, attempt, is_step_up=lacks_scope)
        self._runner.run(AuthorizationEvent.CHALLENGED, steps, now)
        failure = self._runner.next_failure()
        return SendAgain() if failure is None else GiveUp(failure)
