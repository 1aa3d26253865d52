"""A folder with skills: which it has, their entries, and their files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from mimetypes import MimeTypes
from pathlib import Path
from typing import Any
from urllib.parse import quote

import attrs

from sansmcp.skills import MANIFEST, MAX_BYTES, MAX_FILES, digest_of
from sansmcp.types import elide

from ._frontmatter import parse_frontmatter

_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_MAX_ENTRIES = 20_000
"""Files and folders that are looked at."""

_TYPES = MimeTypes()
_TYPES.add_type("text/markdown", ".md")

Stamp = tuple[int, int, int, int]
"""Of a file: when its content and its inode were changed, its bytes, and its inode. Programs can
set the first to any time.
"""


class SkillError(Exception):
    """A folder cannot be served as skills. The text says why, and what to do."""


@attrs.frozen
class FolderFile:
    """A file of a skill."""

    folder: Path
    """The folder of all skills."""
    parts: tuple[str, ...]
    """The path in that folder."""
    uri: str
    stamp: Stamp = attrs.field(eq=False)
    digest: str
    size: int

    def read(self) -> bytes | None:
        """Return the bytes; None if they are no longer those of the digest."""
        try:
            data = _read(self.folder, self.parts)
        except (OSError, ValueError):
            return None
        return data if digest_of(data) == self.digest else None

    @property
    def mime_type(self) -> str | None:
        """The media type that the name of the file suggests."""
        return _TYPES.guess_type(self.parts[-1])[0]


@attrs.frozen
class FolderSkill:
    """A skill of a folder.

    Attributes:
        uri: the URI of ``SKILL.md``.
        frontmatter: its frontmatter.
        files: all files, by URI.
    """

    uri: str
    frontmatter: Mapping[str, Any] = attrs.field(repr=elide)
    files: Mapping[str, FolderFile] = attrs.field(repr=False)

    @property
    def entry(self) -> dict[str, Any]:
        """The entry, as ``skills/list`` has it."""
        resources = [
            {"uri": each.uri, "digest": each.digest, "size": each.size}
            for each in self.files.values()
        ]
        return {"uri": self.uri, "frontmatter": self.frontmatter, "resources": resources}


class SkillFolder:
    """The skills of a folder: it is one itself, or has them at any depth.

    Links are not followed, and what begins with a dot is left out, so nothing outside of the folder
    is served. A file is read again when one of its times, its size or its inode has changed. Not
    thread-safe.

    Attributes:
        skills: the skills, by URI; after :meth:`scan`.
        problems: why further ones are not served; after :meth:`scan`.
    """

    def __init__(self, folder: str | os.PathLike[str], prefix: str = "") -> None:
        """Create it; :meth:`scan` reads it.

        Args:
            folder: the folder.
            prefix: what comes before the path of each skill in its URI, such as ``acme/billing``.
        """
        self.folder = Path(folder).absolute()
        self.skills: dict[str, FolderSkill] = {}
        self.problems: list[str] = []
        self._prefix = [part for part in prefix.split("/") if part]
        self._files: dict[Path, FolderFile] = {}

    def scan(self) -> bool:
        """Read what has changed.

        Returns:
            True if a skill has come, has changed, or has gone.

        Raises:
            SkillError: the folder cannot be read, or has too many files.
        """
        paths = self._paths()
        by_root: dict[Path, list[Path]] = {
            path.parent: [] for path in paths if path.name == MANIFEST
        }
        for path in paths:
            for parent in path.parents:
                if parent in by_root:
                    by_root[parent].append(path)
        base = [*self._prefix, *([self.folder.name] if self.folder in by_root else [])]
        before, files = self.skills, dict[Path, FolderFile]()
        self.skills, self.problems = {}, []
        for root, inside in by_root.items():
            try:
                skill = self._skill_at(root, inside, base, files, before)
            except (OSError, ValueError) as error:
                self.problems.append(f"{root}: {error}")
            else:
                self.skills[skill.uri] = skill
        self._files = files
        return self.skills != before

    def _skill_at(
        self,
        root: Path,
        paths: list[Path],
        base: list[str],
        files: dict[Path, FolderFile],
        before: Mapping[str, FolderSkill],
    ) -> FolderSkill:
        if len(paths) > MAX_FILES:
            raise ValueError(f"it has {len(paths)} files; a skill can have {MAX_FILES}")
        stamps = {path: _stamp(path) for path in paths}
        total = sum(size for *_, size, _ in stamps.values())
        if total > MAX_BYTES:
            raise ValueError(f"it has {total} bytes; a skill can have {MAX_BYTES}")
        for path, stamp in stamps.items():
            known = files.get(path) or self._files.get(path)
            if known is None or known.stamp != stamp:
                parts = path.relative_to(self.folder).parts
                data = _read(self.folder, parts)
                uri = f"skill://{quoted((*base, *parts))}"
                known = FolderFile(self.folder, parts, uri, stamp, digest_of(data), len(data))
            files[path] = known
        manifest = files[root / MANIFEST]
        found = FolderSkill(manifest.uri, {}, {files[path].uri: files[path] for path in paths})
        same = before.get(manifest.uri)
        if same is not None and same.files[manifest.uri] == manifest:
            return attrs.evolve(found, frontmatter=same.frontmatter)
        text = manifest.read()
        if text is None:
            raise ValueError(f"{MANIFEST} is being written")
        frontmatter = parse_frontmatter(text.decode())
        description = frontmatter.get("description")
        if not isinstance(description, str) or not description:
            raise ValueError("its frontmatter has no description")
        check_name(frontmatter.get("name"), [*base, *root.relative_to(self.folder).parts][-1])
        return attrs.evolve(found, frontmatter=frontmatter)

    def _paths(self) -> list[Path]:
        """Return the files, in order; links and what begins with a dot are left out."""
        found: list[Path] = []
        folders, looked_at = [self.folder], 0
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        looked_at += 1
                        if looked_at > _MAX_ENTRIES:
                            raise SkillError(f"{self.folder} has more than {_MAX_ENTRIES} files")
                        if entry.name.startswith(".") or entry.is_symlink():
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(Path(entry.path))
                        elif entry.is_file(follow_symlinks=False):
                            found.append(Path(entry.path))
            except OSError as error:
                raise SkillError(f"{folder} cannot be read: {error.strerror}") from error
        return sorted(found)


def _stamp(path: Path) -> Stamp:
    found = path.lstat()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(folder: Path, parts: Sequence[str]) -> bytes:
    """Return the bytes of a file in a folder.

    Raises:
        OSError: the file cannot be read, or is a link. Where the platform can open a file relative
            to an open folder, no folder on the way to it may have become a link, either.
        ValueError: it is large.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0)
    if os.open in os.supports_dir_fd:
        descriptor = os.open(folder, os.O_RDONLY)
        for part in parts:
            above = descriptor
            try:
                descriptor = os.open(part, flags, dir_fd=above)
            finally:
                os.close(above)
    else:
        descriptor = os.open(folder.joinpath(*parts), flags)
    with open(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"{parts[-1]} has more than {MAX_BYTES} bytes")
    return data


def quoted(parts: Iterable[str]) -> str:
    """Return the path of a URI; what a URI cannot have, such as a space, is percent-encoded."""
    return "/".join(quote(part, safe="") for part in parts)


def check_name(name: Any, folder: str) -> None:
    """Check the name of a skill, and that the last part of its path is the same.

    Raises:
        ValueError: it is not a name of a skill, or is another one. The text says what to do.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"{elide(name)} cannot be the name of a skill: take 1 to 64 of a-z, 0-9 and '-', with "
            "no '-' at an end and no two together"
        )
    if name != folder:
        raise ValueError(f"its name is {name!r}; the folder must have the same, and is {folder!r}")
