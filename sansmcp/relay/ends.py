"""The two ends of a relay: the upstream server, and the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from ..client.client import Client
from ..codecs import json
from ..events import Connected
from ..messages import Params
from ..meta_keys import LOG_LEVEL, UPDATED
from ..revisions import REVISIONS, Revision
from ..server.server import Server
from ..server_call import Peer, Session
from ..states import ClientState

SET_LEVEL = "logging/setLevel"


@attrs.define(eq=False)
class Upstream:
    """The upstream server: its client, what it is, and its log level."""

    client: Client
    capabilities: Mapping[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    level: str | None = attrs.field(default=None, init=False)
    """The log level that the clients have set last."""
    _revision: Revision | None = attrs.field(default=None, init=False)
    """None until it is connected for the first time."""

    @property
    def is_ready(self) -> bool:
        """True if it can be asked."""
        return self.client.state is ClientState.READY

    @property
    def is_known(self) -> bool:
        """True if it was connected."""
        return self._revision is not None

    @property
    def listens(self) -> bool:
        """True if it has ``subscriptions/listen``, and a log level in each request (2026-07-28)."""
        return self._revision is not None and self._revision.listen

    def offers(self, capability: str, member: str) -> bool:
        """Return whether a member of a capability is true."""
        return (json.as_object(self.capabilities.get(capability)) or {}).get(member) is True

    def connected(self, event: Connected) -> None:
        """Take what the client reported."""
        self._revision = REVISIONS[event.version]
        self.capabilities = event.capabilities

    def renew_level(self, now: float) -> None:
        """Set the log level in a new session."""
        if self.level is not None and not self.listens and self.is_ready:
            self.client.call(SET_LEVEL, {"level": self.level}, now=now)

    def needs_level(self, meta: Mapping[str, Any]) -> bool:
        """Return whether a client set a level for all requests, and each of them has to have it."""
        return self.listens and self.level is not None and LOG_LEVEL not in meta

    def follow_level(self, meta: Mapping[str, Any], now: float) -> None:
        """Set the level of a request, if the server has one level for all.

        Raises LocalProtocolError if it cannot be asked.
        """
        level = meta.get(LOG_LEVEL)
        if level is None or level == self.level or self.listens or not self.is_known:
            return
        if "logging" in self.capabilities:
            self.level = level
            self.client.call(SET_LEVEL, {"level": level}, now=now)


@attrs.frozen(eq=False)
class Audience:
    """The clients that a relay serves: all of a server, or that of one session."""

    _server: Server
    _session: Session | None

    @property
    def is_shared(self) -> bool:
        """True if it is more than the client of one session."""
        return self._session is None

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions of these clients."""
        return self._server.sessions if self._session is None else (self._session,)

    def is_alone(self, client: Peer | None) -> bool:
        """Return True if no other client may be told of changes. None is a client on stdio."""
        if self._session is not None or client is None:
            return True
        return not self._server.has_listeners and all(each is client for each in self.sessions)

    @property
    def resources(self) -> set[str]:
        """The resources to which these clients are subscribed."""
        listened = self._server.listened_resources if self._session is None else ()
        return {*listened, *(uri for each in self.sessions for uri in each.subscriptions)}

    def tell(self, method: str, params: Params | None, now: float) -> None:
        """Tell the clients that a list has changed, or those that are subscribed to a resource."""
        if self._session is None:
            self._server.publish(method, params, now=now)
            return
        uri = str((params or {}).get("uri"))
        if method != UPDATED or _is_subscribed(self._session, uri):
            self._session.notify(method, params, now=now)


def _is_subscribed(session: Session, uri: str) -> bool:
    """Return True if the client subscribed to a resource, or to a folder that contains it."""
    return any(
        uri == each or uri.startswith(f"{each.rstrip('/')}/") for each in session.subscriptions
    )
