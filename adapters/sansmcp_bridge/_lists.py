"""The lists of several upstream servers as one: read, merged, and given out in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import attrs

import sansmcp
from sansmcp.codecs import json
from sansmcp.codecs.conversion import mistake_in
from sansmcp.messages import Params
from sansmcp.relay import ToolFilter
from sansmcp.skills import EXTENSION, LIST, mistake_in_uri, skill_of
from sansmcp_local import SharedNames, Task

from ._link import Link
from ._patience import Patience
from ._templates import literal_length
from ._uris import UriOwners

_MAX_PAGES = 100
"""Pages of a list that are read from one server."""

_MAX_BYTES = 4 * 1024 * 1024
"""Bytes of JSON of one list that are kept of one server. Large ones have some hundred KiB."""

_MAX_CURSOR = 64 * 1024
"""Characters of a cursor, since those of all pages are kept while a list is read."""

_MAX_TEMPLATES, _MAX_TEMPLATE_TEXT = 1000, 64 * 1024
"""Templates that are kept of one server, and their characters. A URI that is in no list is compared
with all of them, which takes a few milliseconds for a server.
"""

_MAX_KEPT = 64 * 1024 * 1024
"""Bytes of all lists that a bridge keeps, those of sessions with connections of their own included:
640 KiB for each of 100 sessions. Those read longest ago are read again when they are needed.
"""

_ITEM_BYTES = 500
"""Bytes that an item takes beside its JSON."""

_PAGE_BYTES = 512 * 1024
"""Bytes of JSON of one page for clients, unless one item has more. Some clients take no event of
more than 1 MiB.
"""

_FRESH = 1.0
"""Seconds in which a list is not read again for a name that it does not have."""


class UnknownName(Exception):
    """No server has what clients call so, or more than one has it. Has the text for the client."""


class ListOwner(Protocol):
    """The part of a bridge that lists use."""

    @property
    def core(self) -> sansmcp.Server:
        """The machine of the server."""
        ...

    @property
    def names(self) -> Mapping[str, SharedNames]:
        """By method of a list: the names that clients use, the same for all of them."""
        ...

    @property
    def uris(self) -> UriOwners:
        """The servers of the URIs that clients know, also the same for all of them."""
        ...

    @property
    def kept(self) -> KeptLists:
        """The lists of all clients."""
        ...

    @property
    def patience(self) -> Patience:
        """How long the lists of each server may take, for all clients together."""
        ...

    def now(self) -> float:
        """Return the time of the machines, in seconds."""
        ...

    def pump(self) -> None:
        """Drive all machines."""

    def start(self, work: Coroutine[Any, Any, None]) -> Task:
        """Start a task that is cancelled when the server ends."""
        ...

    def log(self, line: str) -> None:
        """Log a line."""


@attrs.frozen
class Kind:
    """A kind of list."""

    method: str
    member: str
    """The member with the items."""
    name: str
    """The member with the name of each."""
    capability: str
    """The capability that a server with such a list declares."""
    type: str | None
    """The type of an item in ``sansmcp.schema``, which is imported when it is needed; None for
    skills, whose URIs are checked.
    """
    extension: str | None = None
    """The extension that it declares as well."""

    def is_offered(self, capabilities: Mapping[str, Any]) -> bool:
        """Return True if a server with these capabilities has such a list."""
        extensions = json.as_object(capabilities.get("extensions")) or {}
        is_known = self.extension is None or self.extension in extensions
        return is_known and self.capability in capabilities

    def mistake_in(self, item: Mapping[str, Any]) -> str | None:
        """Return how an item breaks the schema of the protocol; None if it does not.

        Clients with types, such as those of the official SDKs, refuse a whole list for one such
        item.
        """
        if self.type is None:
            mistake = mistake_in_uri(item[self.name])
            return None if mistake is None else f"Skill: The URI {mistake}"
        if self.method == TOOLS:
            arguments = json.as_object(item.get("inputSchema")) or {}
            if arguments.get("type") != "object":
                return "Tool: The type in inputSchema is not 'object'"
        return mistake_in(item, getattr(sansmcp.schema, self.type))


KINDS: Mapping[str, Kind] = {
    each.method: each
    for each in (
        Kind("tools/list", "tools", "name", "tools", "Tool"),
        Kind("prompts/list", "prompts", "name", "prompts", "Prompt"),
        Kind("resources/list", "resources", "uri", "resources", "Resource"),
        Kind(
            "resources/templates/list",
            "resourceTemplates",
            "uriTemplate",
            "resources",
            "ResourceTemplate",
        ),
        Kind(LIST, "skills", "uri", "resources", None, EXTENSION),
    )
}
"""By method."""

TOOLS, RESOURCES, TEMPLATES = "tools/list", "resources/list", "resources/templates/list"


def shared_names(servers: Sequence[str]) -> dict[str, SharedNames]:
    """Return the tables of names of a bridge. Templates cannot be changed, the other names can."""
    return {
        method: SharedNames(servers, has_prefixes=kind.name == "name")
        for method, kind in KINDS.items()
        if kind.name != "uri"
    }


@attrs.frozen
class Item:
    """A tool, prompt, resource or template of an upstream server."""

    link: Link
    own_name: str
    """Its name at that server."""
    fields: Mapping[str, Any] = attrs.field(factory=lambda: {})
    """What clients see, with the name that they use."""
    size: int = 0
    """Bytes of JSON at that server."""


class KeptLists:
    """The lists of a bridge that are kept: those read last, up to a number of bytes."""

    def __init__(self) -> None:
        self._sizes = WeakKeyDictionary[MergedList, int]()
        """Bytes by list, in the order in which they were read."""

    def keep(self, merged: MergedList, size: int) -> None:
        """Record that a list was read, and make the oldest ones forget what they have."""
        self._sizes.pop(merged, None)
        total = size + sum(self._sizes.values())
        for each, bytes_ in list(self._sizes.items()):
            if total <= _MAX_KEPT:
                break
            each.forget()
            del self._sizes[each]
            total -= bytes_
        self._sizes[merged] = size


class MergedList:
    """One list of several servers, as their clients see it."""

    def __init__(
        self, owner: ListOwner, links: Sequence[Link], kind: Kind, tools: ToolFilter | None
    ) -> None:
        self._owner = owner
        self._links = links
        self._kind = kind
        self._tools = tools if kind.method == TOOLS else None
        self._items: dict[str, Item] = {}
        """By the name that clients use."""
        self._read_last: dict[Link, list[Item]] = {}
        """What each server listed when its list was last read without an error."""
        self._failed: list[str] = []
        """The servers whose list could not be read the last time."""
        self._shared: dict[str, tuple[str, ...]] = {}
        """By name that is left out, as it may be of another server: the servers that list it."""
        self._read_at = 0.0
        self._is_kept = False
        """False before the list is first read, and once it is forgotten."""
        self._lock = asyncio.Lock()
        self._next: asyncio.Future[None] | None = None
        """The end of a reading that has yet to begin; it serves all who need a new list."""

    async def page(self, params: Params) -> dict[str, Any]:
        """Return a page: the first one of a new list, or what follows the cursor in the last one.

        Raises:
            JsonRpcError: the cursor is malformed.
        """
        cursor = params.get("cursor")
        if cursor is None:
            await self._refresh()
        elif not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit()):
            raise sansmcp.JsonRpcError(-32602, "Unknown cursor")
        elif not self._is_kept:
            await self._refresh()
        items = list(self._items.values())
        start = 0 if cursor is None else min(int(cursor[:9]), len(items))
        end, size = start, 0
        while end < len(items) and (end == start or size + items[end].size <= _PAGE_BYTES):
            size += items[end].size
            end += 1
        page: dict[str, Any] = {self._kind.member: [each.fields for each in items[start:end]]}
        if end < len(items):
            page["nextCursor"] = str(end)
        return page

    async def find(self, name: str) -> Item | None:
        """Return the item that clients call so, from a new list if it was not listed before.

        Raises:
            UnknownName: several servers have it, or it cannot be known if one does.
        """
        if name not in self._items:
            await self.update(anew=True)
        if name in self._items:
            return self._items[name]
        check_one(self._shared.get(name, ()), found=None)
        return None

    async def update(self, *, anew: bool) -> None:
        """Read a new list, unless there is a fresh one.

        Args:
            anew: False to read it only if there is none, or if a server has changed its.
        """
        is_current = self._is_fresh if anew else self._is_kept and not self._is_changed
        if not is_current:
            await self._refresh()

    async def find_template(self, uri: str) -> Item | None:
        """Return the resource at the server with the template that matches a URI best.

        That is the one with the longest text outside of its variables.

        Raises:
            UnknownName: the best ones are of several servers.
        """
        if not self._is_fresh:
            await self._refresh()
        templates = {
            **{template: (item.link.upstream.name,) for template, item in self._items.items()},
            **self._shared,
        }
        longest, best = -1, dict[str, str]()
        for template, servers in templates.items():
            length = literal_length(template, uri)
            if length is not None and length >= longest:
                best = best if length == longest else {}
                best.update(dict.fromkeys(servers, template))
                longest = length
        item = next((self._items.get(template) for template in best.values()), None)
        check_one(best, item)
        return None if item is None else Item(item.link, uri)

    def check_complete(self) -> None:
        """Raise UnknownName if a server could not be asked for its list the last time."""
        if self._failed:
            servers = ", ".join(self._failed)
            raise UnknownName(f"These servers did not say what they have: {servers}")

    def forget(self) -> None:
        """Free the memory of this list. It is read again when it is next needed."""
        self._is_kept = False
        self._items, self._read_last, self._shared = {}, {}, {}

    # Reading

    @property
    def _is_fresh(self) -> bool:
        """True if reading again would bring nothing new, or is not worth its cost."""
        is_new = self._is_kept and self._owner.now() - self._read_at < _FRESH
        return is_new and not self._is_changed

    @property
    def _is_changed(self) -> bool:
        return any(self._kind.method in link.changed for link in self._links)

    async def _refresh(self) -> None:
        """Read the list anew. Those who come while it is read share one further reading.

        It goes on for the others if the call of one of them is cancelled.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._owner.start(self._read_next(self._next))
        await asyncio.shield(self._next)

    async def _read_next(self, end: asyncio.Future[None]) -> None:
        try:
            async with self._lock:
                self._next = None
                await self._read_all()
        except Exception as error:  # a bug: the calls that wait are answered
            end.set_exception(error)
        else:
            end.set_result(None)

    async def _read_all(self) -> None:
        self._read_at = self._owner.now()
        self._failed = []
        for link in self._links:
            link.changed.discard(self._kind.method)
        lists = await asyncio.gather(*(self._read(link) for link in self._links))
        for link, items in zip(self._links, lists, strict=True):
            if items is None:
                self._failed.append(link.upstream.name)
            else:
                self._read_last[link] = items
        self._merge()
        self._is_kept = True
        sizes = [each.size + _ITEM_BYTES for items in self._read_last.values() for each in items]
        self._owner.kept.keep(self, sum(sizes))

    def _merge(self) -> None:
        key = self._kind.name
        lists = {link.upstream.name: items for link, items in self._read_last.items()}
        names = self._assign(
            {server: [each.own_name for each in items] for server, items in lists.items()}
        )
        merged: dict[str, Item] = {}
        unnamed: dict[str, list[str]] = {}
        for server, items in lists.items():
            for each in items:
                name = names.get((server, each.own_name))
                if name is None:
                    unnamed.setdefault(each.own_name, []).append(server)
                elif self._is_allowed(server, each.own_name, name):
                    fields = {**each.fields, key: name}
                    merged.setdefault(name, attrs.evolve(each, fields=fields))
        self._log_unnamed(unnamed)
        self._items = self._with_own_pages(merged) if self._kind.method == TOOLS else merged
        self._shared = {
            name: tuple(servers) for name, servers in unnamed.items() if name not in merged
        }
        if self._kind.method == LIST:
            for each in merged.values():
                for file in skill_of(each.fields, "").files or ():
                    self._owner.uris.note(each.link.upstream.name, file.uri)

    def _assign(self, lists: Mapping[str, Iterable[str]]) -> Mapping[tuple[str, str], str]:
        """Return the names for clients, by the server and the name there."""
        if self._kind.name == "uri":
            return self._owner.uris.assign(lists, are_skills=self._kind.method == LIST)
        return self._owner.names[self._kind.method].assign(lists)

    def _is_allowed(self, server: str, own_name: str, name: str) -> bool:
        if self._tools is None:
            return True
        is_forged = self._owner.names[TOOLS].is_forged(server, own_name)
        return self._tools.allows(name if is_forged else own_name, name)

    def _with_own_pages(self, tools: Mapping[str, Item]) -> dict[str, Item]:
        """Note the resources that show results of tools (``_meta.ui``); servers need not list them.

        A tool loses one that belongs to another server. Source: SEP-1865, Resource Discovery.
        """
        pages: dict[str, list[str]] = {}
        for each in tools.values():
            page = _page_of(each.fields)
            if page is not None and len(page) <= self._owner.core.limits.max_uri_length:
                pages.setdefault(each.link.upstream.name, []).append(page)
        uris = self._owner.uris
        uris.assign(pages)
        foreign = {
            (server, page)
            for server, found in pages.items()
            for page in found
            if server not in uris.of(page)
        }
        return {
            name: attrs.evolve(each, fields=_without_page(each.fields))
            if (each.link.upstream.name, _page_of(each.fields)) in foreign
            else each
            for name, each in tools.items()
        }

    def _log_unnamed(self, unnamed: Mapping[str, Iterable[str]]) -> None:
        new = [(name, each) for name, each in unnamed.items() if name not in self._shared]
        for name, servers in new[:10]:
            what = f"{name[:100]!r} is left out: it is what another server has"
            self._owner.log(f"{', '.join(servers)}: {self._kind.method}: {what}")

    async def _read(self, link: Link) -> list[Item] | None:
        """Return the items of one server that have a name; None if it fails, which is logged."""
        name, patience, begun = link.upstream.name, self._owner.patience, self._owner.now()
        until = begun + patience.with_server(name, now=begun)
        try:
            return await self._read_until(link, until)
        finally:
            now = self._owner.now()
            patience.took(name, now - begun, now=now)

    async def _read_until(self, link: Link, until: float) -> list[Item] | None:
        name = link.upstream.name
        why = await link.connected(until - self._owner.now())
        client = link.client
        if why is not None or client is None:
            self._owner.log(f"{name} is left out of {self._kind.method}: {why}")
            return None
        if not self._kind.is_offered(client.connected.capabilities):
            return []
        reading = _Reading(link, self._kind, self._tools)
        try:
            while reading.is_open:
                left = max(until - self._owner.now(), 0.001)
                settings: sansmcp.CallSettings = {"timeout": left, "total_timeout": left}
                page = await client.call(self._kind.method, reading.params, None, settings)
                reading.add(json.as_object(page) or {})
        except (sansmcp.CallError, sansmcp.LocalProtocolError) as error:
            self._owner.log(f"{name} is left out of {self._kind.method}: {error}")
            return None
        for what in reading.lost[:10]:
            self._owner.log(f"{name}: {self._kind.method}: left out: {what}")
        if reading.is_cut is not None:
            what = f"{self._kind.method} {reading.is_cut}; the rest is left out"
            self._owner.log(f"{name}: {what}")
        return list(reading.items.values())


def _page_of(tool: Mapping[str, Any]) -> str | None:
    """Return the URI of the resource that shows the results of a tool; None without one."""
    meta = json.as_object(tool.get("_meta")) or {}
    page = (json.as_object(meta.get("ui")) or {}).get("resourceUri", meta.get("ui/resourceUri"))
    return page if isinstance(page, str) else None  # no schema says what is in _meta


def _without_page(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = dict(json.as_object(tool.get("_meta")) or {})
    meta.pop("ui/resourceUri", None)
    if (ui := json.as_object(meta.get("ui"))) is not None:
        meta["ui"] = {name: value for name, value in ui.items() if name != "resourceUri"}
    return {**tool, "_meta": meta}


def check_one(servers: Collection[str], found: Item | None) -> None:
    """Raise UnknownName if several servers list a name, or one that was given to another one."""
    if len(servers) > 1 or (servers and found is None):
        raise UnknownName(
            f"Which server has it is not clear. It is listed by: {', '.join(servers)}"
        )


class _Reading:
    """The pages of one list of one server."""

    def __init__(self, link: Link, kind: Kind, tools: ToolFilter | None) -> None:
        self.items: dict[str, Item] = {}
        """By the name at that server."""
        self.params: Params = {}
        self.is_open = True
        self.is_cut: str | None = None
        """Why the rest of the list is not read."""
        self.lost: list[str] = []
        """The items that clients cannot get, and why."""
        self._link = link
        self._kind = kind
        self._tools = tools
        self._cursors: set[str] = set()
        self._bytes = 0
        self._characters = 0
        """Of the names, which are the URI templates in their list."""

    def add(self, page: Mapping[str, Any]) -> None:
        """Take a page, and prepare the request for the next one."""
        items = page.get(self._kind.member)
        for each in items if json.is_array(items) else ():
            self._add_item(json.as_object(each) or {})
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str):
            self.is_open = False
        elif len(cursor) > _MAX_CURSOR:
            self._cut(f"has a cursor of more than {_MAX_CURSOR >> 10} KiB")
        elif cursor in self._cursors:
            self._cut("repeats a cursor")
        elif len(self._cursors) == _MAX_PAGES - 1:
            self._cut(f"has more than {_MAX_PAGES} pages")
        self._cursors.add(str(cursor))
        self.params = {"cursor": cursor}

    def _add_item(self, fields: Mapping[str, Any]) -> None:
        name = fields.get(self._kind.name)
        if not isinstance(name, str) or name in self.items or self.is_cut:
            return
        if self._tools is not None and self._tools.denies(name):
            return
        longest = self._link.bridge.core.limits.max_uri_length
        if len(name) > longest:  # clients could not use it, and names are kept for long
            self.lost.append(f"{name[:100]!r}: it has more than {longest} characters")
            return
        try:
            size = len(json.encode(fields))
        except sansmcp.LocalProtocolError as error:
            self.lost.append(f"{name[:100]!r}: {error}")
            return
        mistake = self._kind.mistake_in(fields)
        if mistake is not None:
            self.lost.append(f"{name[:100]!r}: {mistake}")
            return
        self._bytes += size
        self._characters += len(name)
        has_templates = self._kind.method == TEMPLATES
        if self._bytes > _MAX_BYTES:
            self._cut(f"has more than {_MAX_BYTES >> 20} MiB")
        elif has_templates and len(self.items) == _MAX_TEMPLATES:
            self._cut(f"has more than {_MAX_TEMPLATES} templates")
        elif has_templates and self._characters > _MAX_TEMPLATE_TEXT:
            self._cut(f"has templates of more than {_MAX_TEMPLATE_TEXT >> 10} KiB")
        else:
            self.items[name] = Item(self._link, name, fields, size)

    def _cut(self, why: str) -> None:
        self.is_open = False
        self.is_cut = why
