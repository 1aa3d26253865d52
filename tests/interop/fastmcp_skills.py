"""Skills with fastmcp, on standard input and output; it runs where that is installed.

``fastmcp_skills.py serve FOLDER`` serves those of a folder, and ``fastmcp_skills.py read COMMAND
ARGUMENTS`` prints, as JSON, what its client finds at a server.
"""

# pyright: basic
# Pyright runs where fastmcp is not installed, and knows nothing of its types.

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from fastmcp import Client, FastMCP  # type: ignore[import-not-found]
from fastmcp.client.transports import StdioTransport  # type: ignore[import-not-found]
from fastmcp.server.providers.skills import (  # type: ignore[import-not-found]
    SkillsDirectoryProvider,
)
from fastmcp.skills import SkillsClientExtension  # type: ignore[import-not-found]
from fastmcp.skills.extension import SkillsExtension  # type: ignore[import-not-found]


def serve(folder: str) -> None:
    provider = SkillsDirectoryProvider(folder, experimental_skills=True)
    server = FastMCP("theirs", providers=[provider])
    server.add_extension(SkillsExtension(providers=[provider]))
    server.run(show_banner=False)


async def read(command: str, arguments: list[str]) -> dict[str, Any]:
    target = StdioTransport(command, arguments, dict(os.environ))
    client: Any
    async with Client(
        target, mode="auto", timeout=60, extensions=[SkillsClientExtension()]
    ) as client:
        uris = [str(each.uri) for each in await client.list_skills()]
        skill = await client.get_skill(uris[0])
        frontmatter = skill.model_dump(mode="json")["frontmatter"]
        texts = [(await client.read_resource(str(each.uri)))[0].text for each in skill.resources]
    return {"uris": uris, "texts": texts, "frontmatter": frontmatter}


if __name__ == "__main__":
    what, first, *rest = sys.argv[1:]
    if what == "serve":
        serve(first)
    else:
        print(json.dumps(asyncio.run(read(first, rest))))
