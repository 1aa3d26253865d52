"""The names that clients use for what several servers offer together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

_MAX_NAMES = 10_000
"""Names of one server that are kept. Beyond it those that it does not list any more are forgotten;
other servers cannot push them out.
"""


class SharedNames:
    """Names that tell what several servers offer apart, each of which stays with its server.

    A name is kept if one server has it, and becomes SERVER_NAME if several have it. Once given, it
    goes to no other server, even if its server does not list it any more, or fails: a client that
    knows the name never calls another server by it. A name that begins as those of another server
    do (``SERVER_``) is never kept.
    """

    def __init__(self, servers: Iterable[str], *, has_prefixes: bool = True) -> None:
        """Create an empty table.

        Args:
            servers: the names of all servers.
            has_prefixes: False for names that cannot be changed, such as URIs. Those that several
                servers have when they are first listed are given to none of them.
        """
        self._has_prefixes = has_prefixes
        self._prefixes = {server: f"{server}_" for server in servers} if has_prefixes else {}
        self._owners: dict[str, str] = {}
        """By name for clients: its server."""
        self._refused: dict[str, None] = {}
        """Names that are given to no server, as several had them."""
        self._given: dict[str, dict[str, str]] = {}
        """By server and the name there: the name for clients."""

    def assign(self, names: Mapping[str, Iterable[str]]) -> dict[tuple[str, str], str]:
        """Return the names for clients, by the server and the name there.

        What gets no name, because it would be that of another server, is left out.

        Args:
            names: by server, the names of its tools, or of its prompts.
        """
        lists = {server: dict.fromkeys(each) for server, each in names.items()}
        counts = Counter(name for each in lists.values() for name in each)
        for server, own_names in lists.items():
            given = self._given.setdefault(server, {})
            for own_name in own_names:
                if own_name not in given:
                    self._give(server, own_name, counts[own_name] > 1)
            self._forget(server, own_names)
        return {
            (server, own_name): name
            for server, own_names in lists.items()
            for own_name in own_names
            if (name := self._given[server].get(own_name)) is not None
        }

    def is_forged(self, server: str, name: str) -> bool:
        """Return True if a name that a server has begins as those of another one do."""
        return self._by_prefix(name) not in (None, server)

    def _give(self, server: str, own_name: str, is_shared: bool) -> None:
        if is_shared and not self._has_prefixes and len(self._refused) < _MAX_NAMES:
            self._refused[own_name] = None
        candidates = (own_name, f"{server}_{own_name}") if self._has_prefixes else (own_name,)
        for name in candidates[is_shared:]:
            is_free = name not in self._owners and name not in self._refused
            if is_free and not self.is_forged(server, name):
                self._owners[name] = server
                self._given[server][own_name] = name
                return

    def _by_prefix(self, name: str) -> str | None:
        """Return the server whose names begin so: the longest, if there are several."""
        found = [server for server, each in self._prefixes.items() if name.startswith(each)]
        return max(found, key=len, default=None)

    def _forget(self, server: str, own_names: Mapping[str, object]) -> None:
        """Forget what the server does not list any more, if there is too much of it."""
        given = self._given[server]
        if len(given) <= _MAX_NAMES:
            return
        for own_name in [each for each in given if each not in own_names]:
            del self._owners[given.pop(own_name)]
