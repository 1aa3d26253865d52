"""The names that clients use for what several servers offer together."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping

_MAX_NAMES = 10_000
"""Names of one server that are kept. Beyond it those that it does not list any more are forgotten;
other servers cannot push them out.
"""

_UNSEEN = re.compile(r"[^\w./-]|[\u115f\u1160]")
"""Characters of a name that tell little: names of tools should have none of them. The last two are
fillers: letters of Hangul that are shown by nothing; NFKC makes U+1160 of the others.
"""


class SharedNames:
    """Names that tell what several servers offer apart, each of which stays with its server.

    A name of ASCII characters is kept if one server has it, and becomes SERVER_NAME if several have
    it. One with other characters, some of which look like ASCII (a Cyrillic a), is kept only if
    there is no other server. Once given, a name goes to no other server, even if its server does
    not list it any more, or fails: a client that knows the name never calls another server by it. A
    name that begins as those of another server do (``SERVER_``) is never kept. Names that hardly
    differ for a person or a model are one name in all of this: those that differ in upper case, for
    example, or in a character without a shape.
    """

    def __init__(self, servers: Iterable[str], *, has_prefixes: bool = True) -> None:
        """Create an empty table.

        Args:
            servers: the names of all servers.
            has_prefixes: False for names that cannot be changed, such as URIs. Those that several
                servers have when they are first listed are given to none of them.
        """
        self._has_prefixes = has_prefixes
        self._prefixes = {each: self._look(f"{each}_") for each in servers} if has_prefixes else {}
        self._owners: dict[str, str] = {}
        """By name for clients: its server."""
        self._looks: dict[str, str] = {}
        """The same, by what is seen of these names."""
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
        counts = Counter(look for each in lists.values() for look in {*map(self._look, each)})
        for server, own_names in lists.items():
            given = self._given.setdefault(server, {})
            for own_name in own_names:
                if own_name not in given:
                    self._give(server, own_name, counts[self._look(own_name)] > 1)
            self._forget(server, own_names)
        return {
            (server, own_name): name
            for server, own_names in lists.items()
            for own_name in own_names
            if (name := self._given[server].get(own_name)) is not None
        }

    def is_forged(self, server: str, name: str) -> bool:
        """Return True if a name that a server has begins as those of another one do."""
        look = self._look(name)
        found = {each: prefix for each, prefix in self._prefixes.items() if look.startswith(prefix)}
        longest = max(map(len, found.values()), default=0)
        return longest > 0 and len(found.get(server, "")) < longest

    def _give(self, server: str, own_name: str, is_shared: bool) -> None:
        if is_shared and not self._has_prefixes and len(self._refused) < _MAX_NAMES:
            self._refused[own_name] = None
        candidates = [] if is_shared else [own_name]
        if self._has_prefixes:
            if not own_name.isascii() and len(self._prefixes) > 1:
                candidates = []
            candidates.append(f"{server}_{own_name}")
        for name in candidates:
            look = self._look(name)
            is_free = name not in self._owners and name not in self._refused
            is_free = is_free and self._looks.get(look, server) == server
            if is_free and not self.is_forged(server, name):
                self._owners[name] = self._looks[look] = server
                self._given[server][own_name] = name
                return

    def _look(self, name: str) -> str:
        """Return what is seen of a name; a URI is compared by programs only."""
        if not self._has_prefixes:
            return name
        return _UNSEEN.sub("", unicodedata.normalize("NFKC", name).casefold())

    def _forget(self, server: str, own_names: Mapping[str, object]) -> None:
        """Forget what the server does not list any more, if there is too much of it."""
        given = self._given[server]
        if len(given) <= _MAX_NAMES:
            return
        for own_name in [each for each in given if each not in own_names]:
            del self._owners[given.pop(own_name)]
        self._looks = {self._look(name): owner for name, owner in self._owners.items()}
