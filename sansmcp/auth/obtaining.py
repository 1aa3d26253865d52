"""Lead from a refused request, or from the start of a client, to a token.

These generators read from top to bottom: metadata of the resource, metadata of the authorization
server, then a refresh, or a new token with the grant of the settings.
"""

from __future__ import annotations

import attrs

from ..addresses import AddressClass
from ..errors import AuthorizationFailed
from ..states import AuthorizationEvent
from .challenges import Challenge
from .discovery import NOT_FOUND, Discovery
from .grants import Grants
from .metadata import AuthorizationServer, ProtectedResource, is_same_issuer
from .options import Authorization
from .reach import Reach
from .refresh import Refresh
from .step_ups import Attempt
from .steps import Steps
from .stored_credentials import StoredCredentials
from .tokens import Tokens

NO_CHALLENGE = Challenge("bearer")
"""What a server asks for that names nothing."""


@attrs.define(eq=False, repr=False)
class Obtaining:
    """Obtains tokens, and keeps what it has found of the servers."""

    _options: Authorization
    _stored: StoredCredentials
    _reach: Reach
    _discovery: Discovery
    _refresh: Refresh
    _grants: Grants
    _resource: ProtectedResource | None = attrs.field(default=None, init=False)
    _server: AuthorizationServer | None = attrs.field(default=None, init=False)

    def begin(self) -> Steps[None]:
        """Read the stored credentials; refresh an expired token, or log in if the settings say."""
        tokens = yield from self._stored.reload()
        is_public = tokens is not None and tokens.nearest is AddressClass.PUBLIC
        if is_public and not self._reach.may_be_public:
            tokens = None  # of an earlier release, or obtained with other allowed_hosts
        if tokens is not None and tokens.refresh_token and self._stored.is_expired(tokens):
            yield AuthorizationEvent.EXPIRED
            yield from self.refresh_expired(tokens)
            return
        self._stored.use(tokens)
        if tokens is None and self._options.log_in_first:
            yield AuthorizationEvent.CHALLENGED
            yield from self._log_in_first()
            return
        yield AuthorizationEvent.OBTAINED if tokens else AuthorizationEvent.FAILED

    def refresh_expired(self, tokens: Tokens) -> Steps[None]:
        """Refresh a token that has expired. If that is refused, go on without a token."""
        self._reach.nearest = tokens.nearest
        if not (yield from self._refresh.refresh(tokens)):
            self._stored.use(None)
            yield AuthorizationEvent.FAILED

    def _log_in_first(self) -> Steps[None]:
        """Obtain a token before the first request; go on without one if there is no metadata."""
        # The metadata has the origin of the endpoint, whose address is not known yet.
        self._reach.nearest = AddressClass.LOOPBACK
        try:
            resource, response = yield from self._discovery.find_resource(
                NO_CHALLENGE, is_first=True
            )
        except AuthorizationFailed as error:
            if error.reason not in NOT_FOUND:
                raise
            yield AuthorizationEvent.FAILED
            return
        self._resource = resource
        failure = self._reach.locate(response.peer, response.request.url)
        if failure is not None:
            raise failure
        yield from self._obtain_for(resource, NO_CHALLENGE, Attempt(""))

    def after_refusal(
        self, challenge: Challenge, attempt: Attempt, *, is_step_up: bool
    ) -> Steps[None]:
        """Obtain a token after a refusal.

        ``is_step_up``: the token of the request was accepted, and lacks scopes.
        """
        # A token was refused that should be valid: the server may have changed to another
        # authorization server. Only its metadata tell. A lack of scopes tells nothing of that.
        resource = self._resource
        if resource is None or not is_step_up:
            resource, _ = yield from self._discovery.find_resource(challenge)
            self._resource, self._server = resource, None
        yield from self._obtain_for(resource, challenge, None if is_step_up else attempt)

    def _obtain_for(
        self, resource: ProtectedResource, challenge: Challenge, refused: Attempt | None
    ) -> Steps[None]:
        """Obtain a token for a resource, whose metadata have been found.

        ``refused`` is the request for which the token may be refreshed; None if that is no use.
        """
        yield AuthorizationEvent.FOUND
        if refused is not None and (yield from self._refresh_refused(resource, challenge, refused)):
            return
        if self._server is None:
            self._server = yield from self._discovery.find_server(resource)
        yield AuthorizationEvent.FOUND
        resource = self._discovery.with_audience(resource, self._server)
        wanted = yield from self._grants.choose(resource, self._server, challenge)
        tokens = yield from self._grants.obtain(wanted)
        yield from self._stored.store(tokens)
        self._stored.logins += 1

    def _refresh_refused(
        self, resource: ProtectedResource, challenge: Challenge, attempt: Attempt
    ) -> Steps[bool]:
        """Refresh a token that the MCP server refused. Return False if a new one is needed."""
        tokens = self._stored.tokens
        if (
            tokens is None
            or tokens.refresh_token is None
            or not _is_issued_for(resource, tokens)
            or attempt.has_refreshed
            or not set(challenge.scopes) <= set(tokens.requested)  # a refresh cannot widen them
        ):
            return False
        attempt.has_refreshed = True
        yield AuthorizationEvent.EXPIRED
        has_token = yield from self._refresh.refresh(tokens)
        if not has_token:
            yield AuthorizationEvent.REFUSED
        return has_token


def _is_issued_for(resource: ProtectedResource, tokens: Tokens) -> bool:
    """Return whether the server still names the issuer of the tokens, or still names none."""
    return resource.resource is None or any(
        is_same_issuer(issuer, tokens.issuer) for issuer in resource.servers
    )
