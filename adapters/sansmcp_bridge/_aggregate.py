"""Several upstream servers as one: merged lists, and calls that go to the server of a name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import attrs

import sansmcp
from sansmcp.codecs import json
from sansmcp.events import CallReceived, Connected, ServerEvent
from sansmcp.messages import Params
from sansmcp.relay import ToolFilter
from sansmcp_local import unique_names
from sansmcp_loop import Task

from ._link import Link

_MAX_PAGES = 100
"""Pages of a list that are read from one server."""

_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602

_LISTS = {
    "tools/list": ("tools", "name", "tools"),
    "prompts/list": ("prompts", "name", "prompts"),
    "resources/list": ("resources", "uri", "resources"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "resources"),
}
"""By method: the member with the items, that with the name of each, and the capability."""

_NAMED = {
    "tools/call": ("tools/list", "name"),
    "prompts/get": ("prompts/list", "name"),
    "resources/read": ("resources/list", "uri"),
    "resources/subscribe": ("resources/list", "uri"),
    "resources/unsubscribe": ("resources/list", "uri"),
}
"""By method: the list that has the name, and the parameter with it."""


class AggregateOwner(Protocol):
    """The part of a bridge that its aggregates use."""

    def now(self) -> float:
        """Return the time of the machines, in seconds."""
        ...

    def start_task(self, call: sansmcp.ServerCall, result: Awaitable[Any]) -> None:
        """Respond to a call with what an async function returns or raises."""

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Start a task that is cancelled when the server ends."""
        ...

    def run_pending(self) -> None:
        """Drive all machines."""

    def log(self, line: str) -> None:
        """Log a line."""


@attrs.frozen
class _Item:
    """A tool, prompt, resource or template of an upstream server."""

    link: Link
    own_name: str
    """Its name at that server."""
    fields: Mapping[str, Any]
    """What clients see, with the name that they use."""


def merged(connected: Mapping[str, Connected]) -> Connected:
    """Return what a server with all that these offer reports to its clients."""
    capabilities: dict[str, Any] = {}
    for each in connected.values():
        for name, value in each.capabilities.items():
            if name not in ("experimental", "extensions", "tasks"):
                members = json.as_object(value) or {}
                known = capabilities.setdefault(name, {})
                known.update({key: known.get(key) or flag for key, flag in members.items()})
    texts = [
        f"{name}: {each.instructions}" for name, each in connected.items() if each.instructions
    ]
    return attrs.evolve(
        list(connected.values())[-1],
        server_info={"name": "sansmcp-bridge", "version": sansmcp.__version__},
        capabilities=capabilities,
        instructions="\n\n".join(texts) or None,
    )


class Aggregate:
    """The links of some clients to all upstream servers. With one link, everything goes there."""

    def __init__(
        self, bridge: AggregateOwner, links: Sequence[Link], tools: ToolFilter | None
    ) -> None:
        self.links = links
        self._bridge = bridge
        self._tools = tools
        self._items: dict[str, dict[str, _Item]] = {}
        """By method of a list: the items that were listed last, by the name that clients use."""

    def receive_server_event(self, event: ServerEvent) -> None:
        """Relay an event of a client."""
        if len(self.links) == 1:
            self.links[0].receive_server_event(event)
        elif isinstance(event, CallReceived):
            self._route(event.call)
        else:
            for link in self.links:
                link.receive_server_event(event)

    def _route(self, call: sansmcp.ServerCall) -> None:
        method, params = call.request.method, call.request.params or {}
        if method in _LISTS:
            self._bridge.start_task(call, self._list(method))
        elif method in _NAMED:
            self._bridge.start(self._relay_named(call, *_NAMED[method]))
        elif method == "completion/complete":
            self._bridge.start(self._complete(call, json.as_object(params.get("ref")) or {}))
        elif method == "logging/setLevel":
            self._bridge.start_task(call, self._set_level(params))
        else:
            self._refuse(call, _METHOD_NOT_FOUND, f"Method not found: {method[:100]}")

    def _refuse(self, call: sansmcp.ServerCall, code: int, text: str) -> None:
        call.respond_error(code, text, now=self._bridge.now())
        self._bridge.run_pending()

    async def _relay_named(self, call: sansmcp.ServerCall, listing: str, parameter: str) -> None:
        params = call.request.params or {}
        name = params.get(parameter)
        item = await self._find(listing, name)
        if item is None:
            kind = "tool" if listing == "tools/list" else parameter
            self._refuse(call, _INVALID_PARAMS, f"Unknown {kind}: {str(name)[:100]}")
        elif call.is_running:
            item.link.relay_call(call, {**params, parameter: item.own_name})
            self._bridge.run_pending()

    async def _complete(self, call: sansmcp.ServerCall, reference: Mapping[str, Any]) -> None:
        is_prompt = reference.get("type") == "ref/prompt"
        parameter = "name" if is_prompt else "uri"
        listing = "prompts/list" if is_prompt else "resources/templates/list"
        item = await self._find(listing, reference.get(parameter))
        if item is None:
            self._refuse(call, _INVALID_PARAMS, "Nothing has the name to complete")
        elif call.is_running:
            params: Params = {
                **(call.request.params or {}),
                "ref": {**reference, parameter: item.own_name},
            }
            item.link.relay_call(call, params)
            self._bridge.run_pending()

    async def _set_level(self, params: Params) -> dict[str, Any]:
        await asyncio.gather(
            *(self._ask(link, "logging/setLevel", params, "logging") for link in self.links)
        )
        return {}

    async def _find(self, listing: str, name: Any) -> _Item | None:
        """Return the item that clients call so, from a new list if it was not listed before."""
        if not isinstance(name, str):
            return None
        if name not in self._items.get(listing, {}):
            await self._list(listing)
        found = self._items[listing].get(name)
        if found is None and listing == "resources/list":
            return await self._find_by_template(name)
        return found

    async def _find_by_template(self, uri: str) -> _Item | None:
        """Return the resource at the server whose template begins as the URI does."""
        await self._list("resources/templates/list")
        for template, item in self._items["resources/templates/list"].items():
            prefix = template.partition("{")[0]
            if prefix and uri.startswith(prefix):
                return _Item(item.link, uri, {})
        return None

    async def _list(self, method: str) -> dict[str, Any]:
        """Read a list from all servers, and merge it."""
        member, name_member, _ = _LISTS[method]
        lists = await asyncio.gather(
            *(self._read(link, method, *_LISTS[method]) for link in self.links)
        )
        names = unique_names(
            {
                link.upstream.name: [each[name_member] for each in items]
                for link, items in zip(self.links, lists, strict=True)
            }
        )
        merged: dict[str, _Item] = {}
        for link, items in zip(self.links, lists, strict=True):
            for each in items:
                own_name = each[name_member]
                name = names[link.upstream.name, own_name] if name_member == "name" else own_name
                if method == "tools/list" and self._tools and not self._tools.allows(name):
                    continue
                if name not in merged:
                    merged[name] = _Item(link, own_name, {**each, name_member: name})
        self._items[method] = merged
        return {member: [item.fields for item in merged.values()]}

    async def _read(
        self, link: Link, method: str, member: str, name_member: str, capability: str
    ) -> list[Mapping[str, Any]]:
        """Return all items of one server that have a name; none if it fails, which is logged."""
        found: list[Mapping[str, Any]] = []
        cursor: Any = None
        for _ in range(_MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            page = json.as_object(await self._ask(link, method, params, capability)) or {}
            items = page.get(member)
            given = [json.as_object(each) or {} for each in (items if json.is_array(items) else ())]
            found += [each for each in given if isinstance(each.get(name_member), str)]
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        else:
            what = f"{method} has more than {_MAX_PAGES} pages; the rest is left out"
            self._bridge.log(f"{link.upstream.name}: {what}")
        return found

    async def _ask(self, link: Link, method: str, params: Params, capability: str) -> Any:
        """Return the result of a server; None if it fails, or does not offer this."""
        ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        link.when_connected(lambda why: None if ready.done() else ready.set_result(why))
        self._bridge.run_pending()
        why = await ready
        client = link.client
        if why is not None or client is None or capability not in client.connected.capabilities:
            return None
        try:
            return await client.call(method, params)
        except sansmcp.CallError as error:
            self._bridge.log(f"{link.upstream.name} is left out of {method}: {error}")
            return None
