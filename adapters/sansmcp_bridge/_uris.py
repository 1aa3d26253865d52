"""Which upstream server a URI belongs to, in whatever way clients came to know it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from sansmcp.codecs import json
from sansmcp.messages import Request
from sansmcp.skills import GET, MANIFEST, READ_DIRECTORY

_METHODS = ("resources/read", "resources/subscribe", READ_DIRECTORY, GET)
"""Requests that find a URI, if they have a result."""

_MAX_URIS = 200_000
"""URIs of one server that are kept: more than one list may have, and those that were read besides.
Beyond it those noted longest ago are forgotten; other servers cannot push them out.
"""

_MAX_DEPTH = 32
"""Slashes in the folder of a skill, so that finding the folder of a URI takes few steps. Of skills
that are deeper only the files in their entries are known.
"""

Servers = tuple[str, ...]
"""The server that has a URI. Several if it is not clear which, so that the URI is refused; none if
clients do not know it.
"""


class UriOwners:
    """The server of each URI that clients know.

    A URI belongs to the server that first gave it to a client, in a list, as the page of a tool, as
    a file of a skill or in a result, or from which a client has read it. It stays with that server,
    whatever others offer later. One that several servers list when it is first seen is given to
    none of them, and so is one that another server lists in the folder of a skill.
    """

    def __init__(self) -> None:
        self._uris = _Noted()
        self._folders = _Noted()

    def of(self, uri: str) -> Servers:
        """Return the server of a URI that clients know."""
        return self._uris.servers_of(uri)

    def of_folder(self, uri: str) -> Servers:
        """Return the server of the innermost folder of a skill that a URI is, or is in."""
        found: Servers = ()
        end = -1
        for _ in range(_MAX_DEPTH + 1 if self._folders else 0):
            end = uri.find("/", end + 1)
            found = self._folders.servers_of(uri if end < 0 else uri[:end]) or found
            if end < 0:
                break
        return found

    def assign(
        self, lists: Mapping[str, Iterable[str]], *, are_skills: bool = False
    ) -> dict[tuple[str, str], str]:
        """Return the URIs that belong to the server that lists them, by that server and the URI.

        Args:
            lists: by server, the URIs that it lists.
            are_skills: True if each is a ``SKILL.md``, with whose folder all in it is listed.
        """
        listed: dict[str, dict[str, None]] = {}
        for server, uris in lists.items():
            for uri in uris:
                listed.setdefault(uri, {})[server] = None
        owners = {uri: self._owners(uri, servers) for uri, servers in listed.items()}
        for uri, servers in owners.items():
            self._uris.note(uri, servers)
            root = uri.removesuffix(f"/{MANIFEST}")
            if are_skills and listed[uri].keys() >= {*servers} and root.count("/") <= _MAX_DEPTH:
                self._folders.note(root, servers)
        return {
            (server, uri): uri
            for uri, servers in listed.items()
            for server in servers
            if owners[uri] == (server,)
        }

    def _owners(self, uri: str, servers: Iterable[str]) -> Servers:
        return self.of(uri) or tuple(dict.fromkeys((*self.of_folder(uri), *servers)))

    def note(self, server: str, uri: Any) -> None:
        """Record that clients know a URI from a server, unless it may be of another one."""
        if isinstance(uri, str) and self._owners(uri, (server,)) == (server,):
            self._uris.note(uri, (server,))

    def note_result(self, server: str, request: Request, result: Any) -> None:
        """Record the URIs in the result of a request, and the one that it read.

        Args:
            server: the server that has sent the result.
            request: the request of the client.
            result: the result.
        """
        members = json.as_object(result) or {}
        if members.get("resultType", "complete") != "complete":
            return
        if request.method in _METHODS:
            self.note(server, (request.params or {}).get("uri"))
        for uri in _uris_in(members):
            self.note(server, uri)


def _uris_in(result: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the URIs of resources in a result: contents and links of all methods that have some."""
    for name in ("contents", "resources"):
        yield from (each.get("uri") for each in _objects(result.get(name)))
    messages = (each.get("content") for each in _objects(result.get("messages")))
    for blocks in (result.get("content"), *messages):
        for block in _objects(blocks if json.is_array(blocks) else [blocks]):
            if block.get("type") == "resource_link":
                yield block.get("uri")
            elif block.get("type") == "resource":
                yield (json.as_object(block.get("resource")) or {}).get("uri")


def _objects(values: Any) -> list[Mapping[str, Any]]:
    return [json.as_object(each) or {} for each in values] if json.is_array(values) else []


class _Noted:
    """Texts, each with the servers that it belongs to.

    Digests stand for them: a long text takes no more memory than a short one.
    """

    def __init__(self) -> None:
        self._digests: dict[Servers, dict[bytes, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._digests)

    def servers_of(self, text: str) -> Servers:
        digest = _digest(text)
        return next((each for each, known in self._digests.items() if digest in known), ())

    def note(self, text: str, servers: Servers) -> None:
        known, digest = self._digests.setdefault(servers, {}), _digest(text)
        known.pop(digest, None)
        known[digest] = None
        if len(known) > _MAX_URIS:
            del known[next(iter(known))]


def _digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
