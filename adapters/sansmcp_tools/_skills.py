"""Skills of tools: folders, and skills that functions make.

A scan looks at all files of the folders, so it runs in a thread, and requests within a second share
one. What a client reads is of the last scan: a file that has changed since is scanned again, so
that content and entry belong together.

Source: the extension io.modelcontextprotocol/skills at 2026-07-28; SEP-2640.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from sansmcp import LocalProtocolError
from sansmcp.skills import MANIFEST
from sansmcp_local import (
    FolderFile,
    SkillError,
    SkillFolder,
    check_name,
    parse_frontmatter,
    quoted,
)

from ._content import EmbeddedResource, contents_of, without_none
from ._revisions import Features

_logger = logging.getLogger("sansmcp")

_FRESH = 1.0
"""Seconds in which the folders are not looked at again."""

_DIRECTORY = "inode/directory"
_MARKDOWN = "text/markdown"
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""What JSON may have in a string, and YAML not."""


@attrs.frozen
class NumberedEntry:
    """The entry of a skill, in a list."""

    number: int
    entry: Mapping[str, Any]
    weight: int
    """Bytes of the entry as JSON, about."""

    def shown(self, features: Features) -> dict[str, Any]:
        """Return its ``SKILL.md`` as a resource."""
        text = self.entry["frontmatter"]
        return {
            "uri": self.entry["uri"],
            "name": text["name"],
            "description": text["description"],
            "mimeType": _MARKDOWN,
        }


class SkillTable:
    """All skills of some tools."""

    def __init__(self, numbers: Iterator[int]) -> None:
        """Create it; ``numbers`` are those of the entries of all lists."""
        self._new_numbers = numbers
        self._folders: list[SkillFolder] = []
        self._made: dict[str, dict[str, Any]] = {}
        """The entries of skills that functions make, by URI."""
        self._numbers: dict[str, int] = {}
        """By URI; one that comes back has the number that it had."""
        self._lock = threading.RLock()
        self._scanned_at = 0.0
        self._entries: dict[str, NumberedEntry] = {}
        self._files: dict[str, FolderFile] = {}
        self._folders_of: dict[str, dict[str, str | None]] = {}
        """By URI of a folder: its files and folders, and their media types."""
        self._told: set[str] = set()

    def add_folder(self, folder: SkillFolder) -> None:
        """Add a folder.

        Raises:
            LocalProtocolError: it cannot be read, has no skill, or one that cannot be served.
        """
        try:
            folder.scan()
        except SkillError as error:
            raise LocalProtocolError(f"skills(): {error}") from error
        if folder.problems:
            raise LocalProtocolError(f"skills(): {folder.problems[0]}")
        if not folder.skills:
            raise LocalProtocolError(f"skills(): {folder.folder} has no {MANIFEST}")
        with self._lock:
            self._check_new(folder.skills)
            self._folders.append(folder)
            self._index()

    def add_made(self, path: str, frontmatter: Mapping[str, Any]) -> tuple[str, str]:
        """Add a skill that a function makes.

        Args:
            path: the path of the skill; its last part is the name.
            frontmatter: further members of the frontmatter, and the description.

        Returns:
            The URI of its ``SKILL.md``, and the text before what the function returns.

        Raises:
            LocalProtocolError: the path or the frontmatter cannot be used.
        """
        members = {"name": path.rpartition("/")[2], **frontmatter}
        uri = f"skill://{quoted(path.split('/'))}/{MANIFEST}"
        lines = [f"{json.dumps(key)}: {_json_of(value)}\n" for key, value in members.items()]
        text = f"---\n{''.join(lines)}---\n"
        try:
            check_name(members["name"], members["name"])
            if parse_frontmatter(text) != members:
                raise ValueError("its frontmatter is more than JSON")
        except ValueError as error:
            raise LocalProtocolError(f"skill({path!r}): {error}") from error
        with self._lock:
            self._check_new({uri: None})
            self._made[uri] = {"uri": uri, "frontmatter": members, "resources": "dynamic"}
            self._index()
        return uri, text

    def _check_new(self, skills: Mapping[str, Any]) -> None:
        known = skills.keys() & self._entries.keys()
        if known:
            raise LocalProtocolError(f"There is a skill at {min(known)} already")

    def refresh(self, *, at_once: bool = False) -> bool:
        """Look at the folders again, unless that was done a moment ago.

        Returns:
            True if a skill has come, has changed, or has gone.
        """
        with self._lock:
            if time.monotonic() - self._scanned_at < _FRESH and not at_once:
                return False
            has_changed = [self._scan(folder) for folder in self._folders]
            self._index()
            return any(has_changed)

    def _scan(self, folder: SkillFolder) -> bool:
        try:
            has_changed = folder.scan()
            problems = folder.problems
        except SkillError as error:
            has_changed, problems = False, [str(error)]
        for problem in problems:
            if problem not in self._told:
                _logger.error("a skill is not served: %s", problem)
        self._told = self._told.intersection(problems).union(problems)
        return has_changed

    def _index(self) -> None:
        """Index what the folders have now, and what functions make."""
        self._scanned_at = time.monotonic()
        entries = dict(self._made)
        self._files, self._folders_of = {}, {}
        for folder in self._folders:
            for uri, skill in folder.skills.items():
                if uri not in entries:
                    entries[uri] = skill.entry
                    for each in skill.files.values():
                        self._files[each.uri] = each
                        self._put(uri, each.uri, each.mime_type)
        for uri in self._made:
            self._put(uri, uri, _MARKDOWN)
        for uri in entries:
            if uri not in self._numbers:
                self._numbers[uri] = next(self._new_numbers)
        ordered = sorted(entries, key=self._numbers.__getitem__)
        self._entries = {
            uri: NumberedEntry(self._numbers[uri], entries[uri], len(str(entries[uri])))
            for uri in ordered
        }

    def _put(self, skill: str, uri: str, mime_type: str | None) -> None:
        """Record a file in its folder, and that in the one above, up to the root of the skill."""
        root = skill.removesuffix(f"/{MANIFEST}")
        while uri != root:
            above = uri.rpartition("/")[0]
            inside = self._folders_of.setdefault(above, {})
            if uri in inside:
                return
            inside[uri] = mime_type
            uri, mime_type = above, _DIRECTORY

    # What clients ask for

    def entries(self) -> tuple[NumberedEntry, ...]:
        """Return the entries, in the order of their numbers."""
        with self._lock:
            return tuple(self._entries.values())

    def of_folders(self) -> tuple[NumberedEntry, ...]:
        """Return those of folders; those that functions make are resources of their own."""
        return tuple(each for each in self.entries() if each.entry["uri"] not in self._made)

    def entry(self, uri: Any) -> NumberedEntry | None:
        """Return the entry of the skill of a URI; None if there is none."""
        with self._lock:
            return self._entries.get(uri) if isinstance(uri, str) else None

    def contents(self, uri: str) -> dict[str, Any] | None:
        """Return the contents of a file, as ``resources/read`` has them; None if it has gone."""
        for is_again in (False, True):  # again if it has changed since the scan
            self.refresh(at_once=is_again)
            with self._lock:
                file = self._files.get(uri)
            if file is None:  # no scan at once: clients could cause one by each URI they make up
                break
            if (data := file.read()) is not None:
                return contents_of(EmbeddedResource(uri, _text_or_bytes(data), file.mime_type))
        return None

    def children(self, uri: Any) -> list[dict[str, Any]] | None:
        """Return the files and folders in a folder, in order; None if it is no folder."""
        with self._lock:
            inside = self._folders_of.get(uri) if isinstance(uri, str) else None
            if inside is None:
                return None
            return [
                self._entries[each].shown(Features())
                if each in self._entries
                else without_none(
                    {"uri": each, "name": each.rpartition("/")[2], "mimeType": mime_type}
                )
                for each, mime_type in sorted(inside.items())
            ]


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _json_of(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"The frontmatter is not JSON: {error}") from error
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
