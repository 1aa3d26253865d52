"""Skills that a server has: entries, and the verification of their files.

A skill is a folder of instructions for a model, with a ``SKILL.md`` at its root. Each of its files
is a resource. Its entry has the frontmatter of ``SKILL.md``, and the digest and the size of every
file. A file is used only if it is what the entry says; otherwise what a person has approved would
not be what the model gets.

A match says that entry and content belong together, not that either can be trusted: both are the
server's. Frontmatter such as ``allowed-tools`` is data here, and grants nothing.

Source: the extension io.modelcontextprotocol/skills at 2026-07-28; SEP-2640.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from .codecs import json
from .errors import InvalidResponse, LocalProtocolError, check_type
from .messages import Params
from .typed_results import Listing
from .types import elide

EXTENSION = "io.modelcontextprotocol/skills"
LIST, GET, READ_DIRECTORY = "skills/list", "skills/get", "resources/directory/read"
MANIFEST = "SKILL.md"

MAX_FILES = 512
"""Files of one skill. Source: Limits."""

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of all files of one skill. Source: Limits."""

SKILLS = Listing(LIST, "skills", "resources", "uri")
"""The list of a server that declares the extension."""

_READ = "resources/read"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class SkillMismatch(InvalidResponse):
    """A file is not what the entry of its skill says, or the entry has no such file.

    Do not use the content. The skill may have changed: get its entry again, and the approval of the
    user for the new one.
    """


@attrs.frozen
class SkillFile:
    """A file of a skill.

    Attributes:
        uri: its URI.
        digest: ``sha256:`` and the SHA-256 of its bytes in hexadecimal.
        size: its bytes.
    """

    uri: str
    digest: str
    size: int


@attrs.frozen
class Skill:
    """The entry of a skill. It holds for the server that sent it: others may have the same URI.

    Attributes:
        server: the URL or the command of the server, without what may be secret.
        uri: the URI of ``SKILL.md``.
        frontmatter: the frontmatter of ``SKILL.md``, a JSON object. It is data of the server:
            ``allowed-tools`` has no effect unless a person grants it.
        files: all files, ``SKILL.md`` among them; None if the server makes them when they are read,
            so that they cannot be verified (``"dynamic"``).
        problem: why the skill cannot be read, a text for the user; None if it can.
    """

    server: str
    uri: str
    frontmatter: Mapping[str, Any] = attrs.field(repr=elide)
    files: tuple[SkillFile, ...] | None = attrs.field(repr=False)
    problem: str | None = None

    @property
    def name(self) -> str:
        """The name, which is a label: other skills, also of this server, may have the same."""
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        """What the skill is for."""
        return str(self.frontmatter.get("description", ""))

    @property
    def root(self) -> str:
        """The URI of the folder, without a slash at its end."""
        return self.uri.removesuffix(f"/{MANIFEST}")


def mistake_in_uri(uri: str) -> str | None:
    """Return what is wrong with the URI of a ``SKILL.md``, after the URI; None if nothing is.

    A folder such as ``https:/``, of ``https://SKILL.md``, would contain each resource of the
    scheme, also those of other servers.
    """
    root = uri.removesuffix(f"/{MANIFEST}")
    if root == uri:
        return f"does not end in /{MANIFEST}"
    if not root.partition(":")[2].strip("/"):
        return "is in a folder that is no more than a scheme"
    return None


def skill_of(entry: Any, server: str) -> Skill:
    """Return the skill of an entry; one that breaks the rules has a ``problem``."""
    members = json.as_object(entry) or {}
    uri, files = members.get("uri"), members.get("resources")
    frontmatter = json.as_object(members.get("frontmatter")) or {}
    found = None if files == "dynamic" else _files_of(files)
    skill = Skill(server, uri if isinstance(uri, str) else "", frontmatter, found)
    return attrs.evolve(skill, problem=_problem(skill))


def get_request(uri: str) -> tuple[str, Params]:
    """Return method and parameters of the request for the entry of a skill."""
    return GET, {"uri": uri}


def skill_in(result: Any, server: str) -> Skill:
    """Return the skill in the result of that request; see :func:`skill_of`."""
    return skill_of((json.as_object(result) or {}).get("skill"), server)


def check_declared(capabilities: Mapping[str, Any]) -> None:
    """Raise LocalProtocolError unless a server declares skills."""
    if EXTENSION not in (json.as_object(capabilities.get("extensions")) or {}):
        raise LocalProtocolError("The server declares no skills, so it cannot be asked for them")


def file_uri(skill: Skill, path: str | None, server: str) -> str:
    """Return the URI of a file of a skill.

    Args:
        skill: the entry.
        path: the path in the folder of the skill, as the URI has it, such as
            ``references/guide.md``; None for ``SKILL.md``.
        server: the server that is about to be asked.

    Raises:
        LocalProtocolError: ``skill`` is no entry, or one of another server.
        SkillMismatch: the skill has a problem, or the entry has no such file.
    """
    check_type(Skill, skill=skill)
    if skill.server != server:
        raise LocalProtocolError(
            f"The skill {elide(skill.uri)} is of {skill.server}, and must not be read from {server}"
        )
    if skill.problem is not None:
        raise SkillMismatch(f"The skill {elide(skill.uri)} {skill.problem}", method=_READ)
    path = MANIFEST if path is None else path
    uri = f"{skill.root}/{path}"
    is_known = skill.files is None or any(each.uri == uri for each in skill.files)
    if not is_known or any(part in ("", ".", "..") for part in path.split("/")):
        raise SkillMismatch(f"The entry of the skill has no file {elide(path)}", method=_READ)
    return uri


def verified(
    skill: Skill, uri: str, result: Any, frontmatter_of: Callable[[str], Mapping[str, Any]]
) -> str | bytes:
    """Return the content of a file of a skill.

    Args:
        skill: the entry.
        uri: what was read, of :func:`file_uri`.
        result: the result of ``resources/read``.
        frontmatter_of: returns the frontmatter of a ``SKILL.md``; raises ValueError.

    Raises:
        InvalidResponse: the result has not the content of one resource.
        SkillMismatch: the content is not what the entry says.
    """
    content = _content_of(result, uri)
    data = content if isinstance(content, bytes) else content.encode()
    file = next((each for each in skill.files or () if each.uri == uri), None)
    if len(data) > MAX_BYTES if file is None else len(data) != file.size:
        raise _mismatch(uri, f"it has {len(data)} bytes")
    if file is not None and digest_of(data) != file.digest:
        raise _mismatch(uri, "its digest is another one")
    if uri == skill.uri:
        try:
            frontmatter = frontmatter_of(data.decode())
        except ValueError as error:  # it is no UTF-8, or no frontmatter
            raise _mismatch(uri, str(error)) from None
        if not _is_same(frontmatter, skill.frontmatter):
            raise _mismatch(uri, "its frontmatter is another one")
    return content


def digest_of(data: bytes) -> str:
    """Return the digest of a file, as entries have it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _files_of(files: Any) -> tuple[SkillFile, ...]:
    """Return the files of an entry; an empty tuple if they are not what the entry must have."""
    found: list[SkillFile] = []
    for each in files if json.is_array(files) and len(files) <= MAX_FILES else ():
        match json.as_object(each):
            case {"uri": str(uri), "digest": str(digest), "size": int(size)} if (
                _DIGEST.fullmatch(digest) and not isinstance(size, bool) and size >= 0
            ):
                found.append(SkillFile(uri, digest, size))
            case _:
                return ()
    return tuple(found)


def _problem(skill: Skill) -> str | None:
    """Return what is wrong with an entry, after the URI; None if nothing is."""
    name, description = map(skill.frontmatter.get, ("name", "description"))
    if mistake := mistake_in_uri(skill.uri):
        return mistake
    if not (isinstance(name, str) and isinstance(description, str) and name and description):
        return "has no name and description in its frontmatter"
    if skill.root.rpartition("/")[2] != name:
        return f"is not in a folder of its name, {elide(name)}"
    if skill.files is None:
        return None
    uris = {each.uri for each in skill.files}
    if not skill.files:
        return f"does not list its files with digests and sizes, or has more than {MAX_FILES}"
    if skill.uri not in uris or len(uris) < len(skill.files):
        return "does not list each file once"
    if not all(uri.startswith(f"{skill.root}/") for uri in uris):
        return "lists a file that is not in its folder"
    if sum(each.size for each in skill.files) > MAX_BYTES:
        return f"has files of more than {MAX_BYTES >> 20} MiB"
    return None


def _content_of(result: Any, uri: str) -> str | bytes:
    contents = (json.as_object(result) or {}).get("contents")
    match contents:
        case [{"text": str(text)}]:
            return text
        case [{"blob": str(blob)}]:
            try:
                return b64decode(blob, validate=True)
            except ValueError:  # it is no Base64, or not even ASCII
                pass
        case _:
            pass
    raise InvalidResponse(f"{elide(uri)} has not the content of one file", method=_READ)


def _mismatch(uri: str, why: str) -> SkillMismatch:
    text = f"{elide(uri)} is not what the entry of its skill says: {why}"
    return SkillMismatch(text, method=_READ)


def _is_same(one: Any, other: Any) -> bool:
    """Return True if two values are the same in JSON, where true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if json.is_array(one) and json.is_array(other):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if json.is_object(one) and json.is_object(other):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    return bool(one == other)
