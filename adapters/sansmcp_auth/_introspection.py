"""Verify access tokens by asking their authorization server about each (RFC 7662)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager

from sansmcp.errors import LocalProtocolError, check_type
from sansmcp.tokens.claims import TokenRejected, TokenRules, Undecided, VerifiedToken
from sansmcp.tokens.fetch import INTROSPECTION, FetchRequest

from ._fetch import fetch
from ._verifier import Fetch, Verifier

_REJECTED = 10.0
"""Seconds for which a token stays refused."""

_MAX_UNKNOWN = 16
"""Requests that wait for the authorization server. Each waits in a thread, of which a server in an
event loop has 32 for this.
"""

_MAX_SUSPECT = 4
"""The same for an address from which a refused token has come within the last ``_REJECTED``
seconds, so that one that sends random tokens leaves room for others.
"""

_MAX_SUSPECTS = 1_000
"""The addresses that are remembered so."""


class IntrospectionVerifier(Verifier):
    """Verify access tokens by introspection (RFC 7662); pass an instance as ``authenticate``.

    The authorization server is asked about each token, and its answer counts for ``max_age``
    seconds: a token that it revokes works so long. It gets one question about a token at a time.
    At most 16 requests wait for it, 4 from an address that has just sent a refused token; others
    with unknown tokens are refused with 503. Those with known tokens are not affected.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        client_id: str,
        client_secret: str,
        introspection_url: str | None = None,
        max_age: float = 60.0,
        max_cached: int = 10_000,
        fetch: Fetch = fetch,
    ) -> None:
        """Set up the verifier.

        Args:
            issuer: the authorization server, exactly as its metadata has it.
            audience: the URL of this server, exactly as ``ProtectedResource.resource``.
            client_id, client_secret: the credentials of this server at the authorization server.
            introspection_url: where to ask; None looks it up in the metadata of the server.
            max_age: seconds for which an answer counts.
            max_cached: how many answers are remembered.
            fetch: sends the requests; ``functools.partial(sansmcp_auth.fetch, ssl_context=...)``
                for an authority of your own.

        Raises:
            LocalProtocolError: a URL or the type of an argument is wrong.
        """
        check_type(str, client_id=client_id, client_secret=client_secret)
        check_type((int, float), max_age=max_age)
        super().__init__(TokenRules(issuer, audience), max_cached, fetch)
        self._credentials = client_id, client_secret
        self._max_age = max_age
        self._questions: dict[str, Future[VerifiedToken]] = {}
        """The questions under way, by token."""
        self._waiting = Counter[str]()
        """The requests that wait for their answers, by address."""
        self._suspects: OrderedDict[str, float] = OrderedDict()
        """The addresses that have sent refused tokens, and until when that counts."""
        self._url = introspection_url
        if introspection_url is not None:
            FetchRequest.get(introspection_url)

    def _find_out(self, token: str, now: float, *, peer: str) -> VerifiedToken:
        with self._admitted(peer, now):
            with self._lock:
                question = self._questions.get(token)
                if is_new := question is None:
                    question = self._questions[token] = Future()
            if is_new:
                self._ask_for_all(token, now, question)
            try:
                return question.result()
            except TokenRejected:
                with self._lock:
                    self._suspects[peer] = now + _REJECTED
                    self._suspects.move_to_end(peer)
                    if len(self._suspects) > _MAX_SUSPECTS:
                        self._suspects.popitem(last=False)
                raise

    @contextmanager
    def _admitted(self, peer: str, now: float) -> Generator[None, None, None]:
        """Count a request while it waits. Raises Undecided if too many do."""
        with self._lock:
            most = _MAX_SUSPECT if now < self._suspects.get(peer, now) else _MAX_UNKNOWN
            if self._waiting.total() >= _MAX_UNKNOWN or self._waiting[peer] >= most:
                raise Undecided("too many requests with unknown tokens wait for the server")
            self._waiting[peer] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[peer] -= 1
                if not self._waiting[peer]:
                    del self._waiting[peer]

    def _ask_for_all(self, token: str, now: float, question: Future[VerifiedToken]) -> None:
        """Ask about a token, and tell the outcome to all requests that wait for it."""
        try:
            question.set_result(self._ask(token, now))
        except BaseException as error:
            question.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._lock:
                del self._questions[token]

    def _ask(self, token: str, now: float) -> VerifiedToken:
        try:
            url = self._url = self._url or self._endpoint(INTROSPECTION)
            request = FetchRequest.introspect(url, token, *self._credentials)
        except LocalProtocolError as error:
            self._url = None
            raise Undecided(error.message) from None
        answer = self._fetch(request).document()
        found: VerifiedToken | TokenRejected
        try:
            found = self._rules.check_introspected(answer, now)
        except TokenRejected as error:
            found = error
        age = self._max_age if isinstance(found, VerifiedToken) else _REJECTED
        with self._lock:
            self._cache.add(token, found, now + age)
        if isinstance(found, TokenRejected):
            raise found
        return found
