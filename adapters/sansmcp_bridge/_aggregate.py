"""Several upstream servers as one: calls go to the server of a name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import attrs

import sansmcp
from sansmcp.codecs import json
from sansmcp.events import (
    CallCancelled,
    CallReceived,
    ClientNotified,
    Connected,
    ListenReceived,
    ServerEvent,
)
from sansmcp.messages import Params
from sansmcp.meta_keys import NOTIFICATIONS
from sansmcp.relay import ToolFilter
from sansmcp.skills import EXTENSION, GET, LIST, READ_DIRECTORY

from ._link import Link
from ._lists import (
    KINDS,
    RESOURCES,
    TEMPLATES,
    TOOLS,
    Item,
    ListOwner,
    MergedList,
    UnknownName,
    check_one,
)

_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602

_LEVEL_TIMEOUT = 5.0
"""Seconds in which a server must set the level of its log, for which the client waits."""

_PROMPTS = "prompts/list"

_NAMED = {
    "tools/call": (TOOLS, "name"),
    "prompts/get": (_PROMPTS, "name"),
    "resources/read": (RESOURCES, "uri"),
    READ_DIRECTORY: (RESOURCES, "uri"),
    GET: (LIST, "uri"),
    "resources/subscribe": (RESOURCES, "uri"),
    "resources/unsubscribe": (RESOURCES, "uri"),
}
"""By method: the list that has the name, and the parameter with it."""


class AggregateOwner(ListOwner, Protocol):
    """The part of a bridge that its aggregates use."""

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        """Respond to a call with what an async function returns or raises."""

    def unexpected(self, error: Exception) -> None:
        """Log an exception that is a bug, with its traceback."""


_CAPABILITIES = ("tools", "prompts", "resources", "completions", "logging")
"""Those whose requests are routed."""

_FLAGS = ("listChanged", "subscribe")
"""What a capability can have, at each revision."""

_MAX_INSTRUCTIONS = 64 * 1024
"""Characters of the instructions of one server. All are in one message, which clients bound."""


def merged(connected: Mapping[str, Connected]) -> Connected:
    """Return what a server with all that these offer reports to its clients.

    What a server says reaches them in a form that it cannot break: of capabilities the flags that
    are true, and of its instructions the beginning, in lines that look like none of another server.
    """
    capabilities: dict[str, Any] = {}
    for each in connected.values():
        for name in _CAPABILITIES:
            if name in each.capabilities:
                members = json.as_object(each.capabilities[name]) or {}
                flags = {key: True for key in _FLAGS if members.get(key) is True}
                capabilities.setdefault(name, {}).update(flags)
    offers = [
        json.as_object(each.capabilities.get("extensions")) or {} for each in connected.values()
    ]
    skills = [json.as_object(each[EXTENSION]) or {} for each in offers if EXTENSION in each]
    if skills:
        reads = any(each.get("directoryRead") is True for each in skills)
        capabilities["extensions"] = {EXTENSION: {"directoryRead": True} if reads else {}}
    texts = [
        f"{name}: {_indented(_beginning(each.instructions))}"
        for name, each in connected.items()
        if each.instructions
    ]
    return attrs.evolve(
        list(connected.values())[-1],
        server_info={"name": "sansmcp-bridge", "version": sansmcp.__version__},
        capabilities=capabilities,
        instructions="\n\n".join(texts) or None,
    )


def _beginning(text: str) -> str:
    if len(text) <= _MAX_INSTRUCTIONS:
        return text
    return f"{text[:_MAX_INSTRUCTIONS]}\n(The bridge has left out the rest.)"


def _indented(text: str) -> str:
    """Return a text with its lines after the first indented."""
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines()).strip()


class Aggregate:
    """The links of some clients to all upstream servers. With one link, everything goes there."""

    def __init__(
        self, bridge: AggregateOwner, links: Sequence[Link], tools: ToolFilter | None
    ) -> None:
        self.links = links
        self._bridge = bridge
        self._lists = {
            method: MergedList(bridge, links, kind, tools) for method, kind in KINDS.items()
        }

    def receive_server_event(self, event: ServerEvent) -> None:
        """Relay an event of a client."""
        if len(self.links) == 1:
            self.links[0].receive_server_event(event)
        elif isinstance(event, CallReceived):
            self._route(event.call)
        elif isinstance(event, ListenReceived):  # all servers are asked; none knows all resources
            event.request.acknowledge(event.request.uris, now=self._bridge.now())
        elif isinstance(event, ClientNotified) and not event.notification.method.startswith(
            NOTIFICATIONS
        ):  # nothing says for which server it is
            self._bridge.log(f"{event.notification.method[:100]!r} of a client is lost")
        else:
            if isinstance(event, CallCancelled) and event.call.driver is not None:
                event.call.driver.cancel()  # it may wait for a list
            for link in self.links:
                link.receive_server_event(event)

    def _route(self, call: sansmcp.ServerCall) -> None:
        method, params = call.request.method, call.request.params or {}
        if method in self._lists:
            self._bridge.start_task(call, self._page(method, params))
        elif method in _NAMED:
            self._start(call, self._relay_named(call, *_NAMED[method]))
        elif method == "completion/complete":
            self._start(call, self._complete(call, json.as_object(params.get("ref")) or {}))
        elif method == "logging/setLevel":
            self._bridge.start_task(call, self._set_level(params))
        else:
            self._refuse(call, _METHOD_NOT_FOUND, f"Method not found: {method[:100]}")

    async def _page(self, method: str, params: Params) -> dict[str, Any]:
        if method == RESOURCES:  # what is in the folders of skills must be known first
            await self._lists[LIST].update(anew=False)
        return await self._lists[method].page(params)

    def _start(self, call: sansmcp.ServerCall, work: Coroutine[Any, Any, None]) -> None:
        call.driver = self._bridge.start(self._answered(call, work))

    async def _answered(self, call: sansmcp.ServerCall, work: Coroutine[Any, Any, None]) -> None:
        """Respond with an error to a call that cannot be relayed, whatever prevents it."""
        try:
            await work
        except UnknownName as error:
            self._refuse(call, _INVALID_PARAMS, str(error))
        except Exception as error:
            self._bridge.unexpected(error)
            call.respond_exception(RuntimeError(), now=self._bridge.now())
            self._bridge.pump()

    def _refuse(self, call: sansmcp.ServerCall, code: int, text: str) -> None:
        call.respond_error(code, text, now=self._bridge.now())
        self._bridge.pump()

    async def _relay_named(self, call: sansmcp.ServerCall, listing: str, parameter: str) -> None:
        params = call.request.params or {}
        kind = "tool" if listing == TOOLS else parameter
        item = await self._find(listing, params.get(parameter), kind)
        self._relay(call, item, {**params, parameter: item.own_name})

    async def _complete(self, call: sansmcp.ServerCall, reference: Mapping[str, Any]) -> None:
        is_prompt = reference.get("type") == "ref/prompt"
        parameter = "name" if is_prompt else "uri"
        listing = _PROMPTS if is_prompt else TEMPLATES
        item = await self._find(listing, reference.get(parameter), f"{parameter} to complete")
        params: Params = {
            **(call.request.params or {}),
            "ref": {**reference, parameter: item.own_name},
        }
        self._relay(call, item, params)

    def _relay(self, call: sansmcp.ServerCall, item: Item, params: Params) -> None:
        if call.is_running:
            item.link.relay_call(call, params)
            self._bridge.pump()

    async def _set_level(self, params: Params) -> dict[str, Any]:
        await asyncio.gather(*(self._set_level_at(link, params) for link in self.links))
        return {}

    async def _set_level_at(self, link: Link, params: Params) -> None:
        """Set the level at a server that has one; a failure is logged."""
        why = await link.connected(_LEVEL_TIMEOUT)
        client = link.client
        if why is not None or client is None or "logging" not in client.connected.capabilities:
            return
        try:
            settings: sansmcp.CallSettings = {
                "timeout": _LEVEL_TIMEOUT,
                "total_timeout": _LEVEL_TIMEOUT,
            }
            await client.call("logging/setLevel", params, None, settings)
        except (sansmcp.CallError, sansmcp.LocalProtocolError) as error:
            self._bridge.log(f"{link.upstream.name}: logging/setLevel failed: {error}")

    async def _find(self, listing: str, name: Any, kind: str) -> Item:
        """Return the item that clients call so, from a new list if it was not listed before.

        Raises UnknownName.
        """
        unknown = f"Unknown {kind}: {str(name)[:100]}"
        if not isinstance(name, str) or len(name) > self._bridge.core.limits.max_uri_length:
            raise UnknownName(unknown)
        listings = [self._lists[listing]]
        try:
            if listing == RESOURCES:
                listings.append(self._lists[TEMPLATES])
                found = await self._find_resource(name)
            else:
                found = await listings[0].find(name)
            if found is None:
                for each in listings:
                    each.check_complete()
        except UnknownName as error:
            raise UnknownName(f"{unknown}. {error}") from error
        if found is None:
            raise UnknownName(unknown)
        return found

    async def _find_resource(self, uri: str) -> Item | None:
        """Return the resource of a URI; None if no server is known to have it.

        A URI that clients know belongs to one server, and no list is waited for. Of others, skills
        are read first, so that no list has what is in the folder of another server's skill;
        templates count last.

        Raises:
            UnknownName: it is of several servers, or of one that cannot be told.
        """
        uris = self._bridge.uris
        servers = uris.of(uri)
        if not servers:
            await self._lists[LIST].update(anew=False)
            await self._lists[RESOURCES].update(anew=not uris.of_folder(uri))
            servers = uris.of(uri) or uris.of_folder(uri)
        if not servers:
            return await self._lists[TEMPLATES].find_template(uri)
        found = None
        if len(servers) == 1:
            found = next(
                (Item(link, uri) for link in self.links if link.upstream.name in servers), None
            )
        check_one(servers, found)
        return found
