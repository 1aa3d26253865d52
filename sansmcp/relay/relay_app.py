"""The App of a server that relays: with what the upstream server says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..app import App
from ..codecs import json
from ..errors import LocalProtocolError
from ..events import Connected
from ..reclaim import EXTENSION as KEYS
from ..tasks import EXTENSION


def relay_app(connected: Connected) -> App:
    """Return the App of a server that relays: with the name and capabilities of the upstream.

    Args:
        connected: what the upstream client reported when it was connected.

    Returns:
        An App that takes every method, and says of itself what the upstream server does. Its
        handler only raises: a :class:`Relay` takes the calls from the events of the server. If the
        upstream has tasks at 2026-07-28, so has the App, and the server needs a store and a clock
        for them.
    """
    capabilities = dict(connected.capabilities)
    extensions = dict(json.as_object(capabilities.get("extensions")) or {})
    has_tasks = extensions.pop(EXTENSION, None) is not None
    has_keys = extensions.pop(KEYS, None) is not None
    if has_tasks or has_keys:  # the server declares those of its own
        capabilities["extensions"] = extensions
    info = connected.server_info
    app = _RelayApp(
        str(info.get("name", "")),
        str(info.get("version", "")),
        instructions=connected.instructions,
        capabilities=capabilities,
        upstream_info=info,
    )
    app.confirms_listeners = True
    app.fallback(_relayed, inline=True)
    if has_tasks:
        app.handler("tools/call", inline=True, task="optional")(_relayed)
    return app


@attrs.define(eq=False)
class _RelayApp(App):
    upstream_info: Mapping[str, Any] = attrs.field(kw_only=True)

    @property
    def server_info(self) -> dict[str, Any]:
        """What the upstream server says about itself, with all that it adds."""
        return {**self.upstream_info, **self.identity}


def _relayed(call: object) -> None:
    raise LocalProtocolError("A Relay must take the calls of this App from the server's events")
