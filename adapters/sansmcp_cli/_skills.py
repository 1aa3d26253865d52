"""``sansmcp skills``: what skills a server has, and one of their files, verified."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import sansmcp
from sansmcp import skills
from sansmcp.codecs.json import as_object
from sansmcp.events import Connected

from ._adapters import Script, ScriptCall
from ._arguments import nearest
from ._display import Row, first_sentence, show_content, show_json, show_rows
from ._output import Commands, UsageError, print_line, write_bytes
from ._session import add_session, converse, pages, prepared
from ._target import USAGE, target_of


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "skills",
        help="show the skills of a server, or a file of one",
        usage="sansmcp skills [options] URL [SKILL [PATH]]\n"
        "       sansmcp skills [options] [SKILL [PATH]] -- COMMAND [ARGS ...]",
        description="Show the skills of a server. With the URI of one, print its SKILL.md, or the "
        "file of PATH, if it is what the server has announced: digest, size and frontmatter are "
        f"compared. With --files, list its files. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] [SKILL [PATH]]")
    command.add_argument("--files", action="store_true", help="list the files of SKILL")
    add_session(
        command,
        "skills http://127.0.0.1:8000/mcp",
        "skills shop skill://git-workflow/SKILL.md references/branches.md",
    )
    command.set_defaults(run=_skills)


def _skills(options: argparse.Namespace) -> int:
    words: list[str] = options.words
    entries: list[dict[str, Any]] = []
    contents: list[str | bytes] = []
    target = target_of(options, words)
    if len(words) > 2:
        raise UsageError(f"Too many words: {' '.join(words[2:])!r}; name a skill and a path")
    if options.files and len(words) != 1:
        raise UsageError("--files lists the files of one skill; name its URI, and no path")
    with prepared(options, target) as conversation:
        server = target if isinstance(target, str) else " ".join(target)

        def script(connected: Connected) -> Script:
            skills.check_declared(connected.capabilities)
            if not words:
                entries.extend((yield from pages(skills.LIST, "skills")))
                return
            try:
                result = as_object((yield ScriptCall(*skills.get_request(words[0]))))
            except sansmcp.JsonRpcError as error:
                listed = yield from pages(skills.LIST, "skills")
                found = [skills.skill_of(each, server) for each in listed]
                if any(each.uri == words[0] for each in found):
                    raise
                raise UsageError(_no_skill(words[0], found)) from error
            entries.append(as_object((result or {}).get("skill")) or {})
            if not (options.json or options.files):
                from sansmcp_local import parse_frontmatter

                skill = skills.skill_of(entries[0], server)
                _check_path(skill, words)
                uri = skills.file_uri(skill, words[1] if words[1:] else None, server)
                found = yield ScriptCall("resources/read", {"uri": uri})
                contents.append(skills.verified(skill, uri, found, parse_frontmatter))

        converse(options, conversation, script)
    if options.json:
        show_json(entries[0] if words else {"skills": entries})
        return 0
    if options.files:
        _show_files(skills.skill_of(entries[0], server))
        return 0
    for content in contents:
        if isinstance(content, str):
            show_content({"type": "text", "text": content})
        elif sys.stdout.isatty():
            print_line(f"[{len(content)} bytes; write them to a file]")
        else:
            write_bytes(content)
    if not words:
        rows = [_row(skills.skill_of(each, server)) for each in entries]
        if rows:
            show_rows("skills", rows)
        else:
            print_line("no skills in the list; the server may have others", sys.stderr)
    return 0


def _no_skill(word: str, found: Iterable[skills.Skill]) -> str:
    """Return the text of an error that names the skills whose URIs or names are near to a word."""
    uris = {name: each.uri for each in found for name in (each.name, each.uri)}
    near = dict.fromkeys(uris[each] for each in get_close_matches(word, uris, 3))
    if near:
        return f"There is no skill {word!r}; did you mean {' or '.join(near)}?"
    return f"There is no skill {word!r}; sansmcp skills without it lists those of the server"


def _paths(skill: skills.Skill) -> dict[str, int]:
    """Return the paths of the files of a skill, and their sizes."""
    root = f"{skill.root}/"
    return {each.uri.removeprefix(root): each.size for each in skill.files or ()}


def _check_path(skill: skills.Skill, words: list[str]) -> None:
    """Raise UsageError with the near paths if a skill has no file of the path that was given."""
    paths = list(_paths(skill))
    if words[1:] and paths and words[1] not in paths:
        raise UsageError(f"The skill has no file {words[1]!r}{nearest(words[1], paths)}")


def _show_files(skill: skills.Skill) -> None:
    if skill.files is None:
        print_line("the server makes this skill when it is read, and announces no files")
    show_rows("files", [Row(path, f"{size} bytes") for path, size in _paths(skill).items()])


def _row(skill: skills.Skill) -> Row:
    files = "made when read" if skill.files is None else f"{len(skill.files)} files"
    why = files if skill.problem is None else f"cannot be read: it {skill.problem}"
    return Row(skill.uri, f"{first_sentence(skill.description)} ({why})")
