"""``sansmcp skills``: what skills a server has, and one of their files, verified."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sansmcp import skills
from sansmcp.codecs.json import as_object
from sansmcp.events import Connected

from ._adapters import Script, ScriptCall
from ._display import Row, first_sentence, show_content, show_json, show_rows
from ._output import Commands, UsageError, print_line, write_bytes
from ._session import add_session, converse, pages, prepared
from ._target import USAGE


def add_to(commands: Commands) -> None:
    """Add the command and its options to the parser."""
    command = commands.add_parser(
        "skills",
        help="show the skills of a server, or a file of one",
        usage="sansmcp skills [options] URL [SKILL [PATH]]\n"
        "       sansmcp skills [options] [SKILL [PATH]] -- COMMAND [ARGS ...]",
        description="Show the skills of a server. With the URI of one, print its SKILL.md, or the "
        "file of PATH, if it is what the server has announced: digest, size and frontmatter are "
        f"compared. {USAGE[0].upper()}{USAGE[1:]}.",
    )
    command.add_argument("words", nargs="*", metavar="[URL] [SKILL [PATH]]")
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
    with prepared(options, words) as conversation:
        if len(words) > 2:
            raise UsageError(f"Too many words: {' '.join(words[2:])!r}; name a skill and a path")
        target = conversation.target
        server = target if isinstance(target, str) else " ".join(target)

        def script(connected: Connected) -> Script:
            skills.check_declared(connected.capabilities)
            if not words:
                entries.extend((yield from pages(skills.LIST, "skills")))
                return
            result = as_object((yield ScriptCall(*skills.get_request(words[0]))))
            entries.append(as_object((result or {}).get("skill")) or {})
            if not options.json:
                from sansmcp_skills import parse_frontmatter

                skill = skills.skill_of(entries[0], server)
                uri = skills.file_uri(skill, words[1] if words[1:] else None, server)
                found = yield ScriptCall("resources/read", {"uri": uri})
                contents.append(skills.verified(skill, uri, found, parse_frontmatter))

        converse(options, conversation, script)
    if options.json:
        show_json(entries[0] if words else {"skills": entries})
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


def _row(skill: skills.Skill) -> Row:
    files = "made when read" if skill.files is None else f"{len(skill.files)} files"
    why = files if skill.problem is None else f"cannot be read: it {skill.problem}"
    return Row(skill.uri, f"{first_sentence(skill.description)} ({why})")
