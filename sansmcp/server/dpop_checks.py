"""Compare the DPoP proof of a request with the request, and accept each proof once.

``authenticate`` has verified signature and key of the proof. What is left is the same for every
function, and needs what only the server has: the URL of the resource, nonces, and the store that
instances share.

The names of accepted proofs (``jti``) are kept by ``accepted_proofs``. Where instances share a
store, a name is also a log there, which only one instance can begin.

Source: RFC 9449, 4.3, 7, 9 and 11.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias
from urllib.parse import urlsplit

import attrs

from ..authentication import Access, DpopProof
from ..effects import StoreEffect
from ..errors import LocalProtocolError, RemoteProtocolError
from ..http import RequestHead, Url
from ..input_required import StateSigner
from ..protected_resource import ProtectedResource
from ..store import Entry, StreamKey
from . import refusals
from .accepted_proofs import AcceptedProofs
from .challenges import proof_refused, scheme_of, token_not_bound
from .core import ServerCore
from .exchange import ServerExchange
from .logs import Logs, StoreOperation
from .records import write_members

_SESSION = ".dpop"
"""What stands for the session of the logs. Sessions have no such names: tokens have no point."""

_NONCE = "dpop-nonce"
"""The method for which nonces are signed, so that no state of a handler is one."""

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


GoOn: TypeAlias = Callable[[Access | RemoteProtocolError, float], None]
"""Goes on with a request; the second argument is the time."""


@attrs.define(eq=False, repr=False)
class DpopChecks:
    """The checks of the proofs of one server.

    Raises:
        LocalProtocolError: nonces are demanded, and there is no signer.
    """

    _core: ServerCore
    _logs: Logs
    _resource: ProtectedResource
    waiting: set[ServerExchange] = attrs.field(factory=set[ServerExchange], init=False)
    """The requests whose proofs the store has not confirmed yet."""
    _accepted: AcceptedProofs = attrs.field(init=False)
    _nonces: StateSigner | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        options, max_age = self._core.options, self._resource.dpop_max_age
        if options.shared_store:
            max_age = min(max_age, AcceptedProofs.longest_age(options.limits.max_stored_age))
        self._accepted = AcceptedProofs(options.limits.max_dpop_proofs, max_age)
        if self._resource.dpop_nonces:
            if options.state_signer is None:
                raise LocalProtocolError("dpop_nonces needs state_signer=StateSigner(...)")
            self._nonces = attrs.evolve(
                options.state_signer, lifetime=self._resource.dpop_max_age, claim_once=None
            )

    @property
    def now(self) -> float:
        """The latest time that was passed to the server."""
        return self._core.now

    def concerns(self, head: RequestHead, access: Access) -> bool:
        """Return True if a request has a proof, or should have one."""
        is_required = self._resource.dpop == "required"
        return is_required or scheme_of(head) == "dpop" or access.proof is not None

    def check(
        self, exchange: ServerExchange, head: RequestHead, access: Access, go_on: GoOn
    ) -> bool:
        """Check the proof of a request. Returns False if the store is to be asked first.

        Args:
            exchange: the exchange of the request.
            head: its head, with its credentials.
            access: what ``authenticate`` has found.
            go_on: is called with the access, or the refusal, when the store has answered.

        Raises:
            RemoteProtocolError: the refusal of the request.
        """
        proof, core = access.proof, self._core
        if proof is None:
            raise token_not_bound(self._resource)
        self._compare(head, proof)
        if self._nonces is not None:
            self._check_nonce(exchange, proof, self._nonces)
        name = self._accepted.take(access.principal, proof, core.now)
        if name is None:
            raise self.used_before()
        if not core.options.shared_store:
            return True
        if core.store_health.is_down(core.now):
            raise refusals.store_failed()
        self.waiting.add(exchange)
        # 16 sessions, because stores bound the bytes of each.
        key = StreamKey(access.principal, f"{_SESSION}.{name[0]}", name)
        shared = _SharedName(self, exchange, access, go_on)
        self._logs.append(key, (Entry(1, write_members({})),), shared)
        return False

    def _compare(self, head: RequestHead, proof: DpopProof) -> None:
        """Compare a proof with its request and the clock. Source: RFC 9449, 4.3."""
        url = self._url_of(head)
        if proof.method != head.method.decode("latin-1"):
            text = "its htm is not the method of the request"
        elif (named := _normal_url(proof.url)) is None or named != _normal_url(url):
            text = f"its htu is not {url}"
        elif not abs(proof.age) <= self._accepted.max_age:
            text = f"its iat is not within {self._accepted.max_age:g} s of the clock of this server"
        else:
            return
        raise proof_refused(self._resource, text)

    def _url_of(self, head: RequestHead) -> str:
        """Return the URL of a request as clients know it, whatever proxies have made of it."""
        url, path = self._resource.resource, head.path
        if path.rstrip(b"/") == self._core.options.path.encode().rstrip(b"/"):
            return url
        parts = urlsplit(url)  # the paths of HTTP+SSE are told to clients as the server knows them
        return f"{parts.scheme}://{parts.netloc}{(head.root + path).decode('latin-1')}"

    def _check_nonce(self, exchange: ServerExchange, proof: DpopProof, nonces: StateSigner) -> None:
        """Demand a nonce of this server; send a new one before it expires.

        Source: RFC 9449, 8.2 and 9.
        """
        try:
            issued = nonces.verify(proof.nonce or "", "", _NONCE, {})
        except RemoteProtocolError:
            raise proof_refused(self._resource, "", (self._new_nonce(nonces),)) from None
        if nonces.clock() >= issued + nonces.lifetime / 2:
            exchange.common_headers = (*exchange.common_headers, self._new_nonce(nonces))

    def _new_nonce(self, nonces: StateSigner) -> tuple[bytes, bytes]:
        signed = nonces.sign(nonces.clock(), "", _NONCE, {}, name=self._core.token())
        return (b"dpop-nonce", signed.encode())

    def used_before(self) -> RemoteProtocolError:
        """Return the refusal of a proof that was used before, here or at another instance."""
        return proof_refused(self._resource, "it was used before: make one for each request")


@attrs.frozen(eq=False, repr=False)
class _SharedName(StoreOperation):
    """Writes the name of a proof to the store, for all instances. The request waits for it."""

    _checks: DpopChecks
    _exchange: ServerExchange
    _access: Access
    _go_on: GoOn

    def on_append_done(self) -> None:
        self._end(self._access)

    def on_append_conflict(self) -> None:
        """Refuse the request: another instance has accepted the proof."""
        self._end(self._checks.used_before())

    def on_append_behind(self) -> None:
        """Refuse the request: the store cannot tell if the proof was used."""
        self._end(refusals.store_failed())

    def failed(self, effect: StoreEffect) -> bool:
        """Refuse the request, of which nothing was run. Its client makes another proof."""
        self._end(refusals.store_failed())
        return True

    def _end(self, outcome: Access | RemoteProtocolError) -> None:
        self._checks.waiting.discard(self._exchange)
        self._go_on(outcome, self._checks.now)


def _normal_url(text: str) -> tuple[str, str, int, str] | None:
    """Return what two URLs have in common that are the same but for query and fragment.

    None for what is no URL. A slash at the end is ignored, as in the paths of requests. Source:
    RFC 9449, 4.3; RFC 3986, 6.2.2 and 6.2.3.
    """
    try:
        url = Url.parse(text.partition("#")[0].partition("?")[0])
    except LocalProtocolError:
        return None
    return (*url.origin, _ESCAPE.sub(_normal_escape, url.target).rstrip("/"))


def _normal_escape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if _UNRESERVED.fullmatch(character) else found[0].upper()
