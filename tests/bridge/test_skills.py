"""Skills through a bridge: of one server, and of several."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
from sansmcp import JsonRpcError
from sansmcp.skills import EXTENSION
from sansmcp_bridge._bridge import Bridge
from sansmcp_bridge._lists import innermost_skill
from sansmcp_tools import Tools

from ..growth.work import steps
from .test_bridge import NEW, OLD, bridged, named


def served(tmp_path: Path, server: str, *names: str) -> Tools:
    """Tools with skills of these names, whose guides name the server."""
    tools = Tools(server)
    for name in names:
        folder = tmp_path / server / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {server}\n---\n")
        (folder / "guide.md").write_text(server)
    tools.skills(tmp_path / server)
    return tools


async def read(client: sansmcp_asyncio.Client, name: str) -> Any:
    skill = await client.get_skill(f"skill://{name}/SKILL.md")
    await client.read_skill(skill)
    return await client.read_skill(skill, "guide.md")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_skills_of_one_server_pass(tmp_path: Path, version: str) -> None:
    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url, versions=(version,)) as client:
            assert [each.name async for each in client.skills()] == ["a"]
            assert await read(client, "a") == "one"
            inside = await client.call("resources/directory/read", {"uri": "skill://a"})
            assert [each["name"] for each in inside["resources"]] == ["a", "guide.md"]

    bridged({"one": served(tmp_path, "one", "a")}, use)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_skills_of_several_servers(tmp_path: Path, version: str) -> None:
    """A URI that two servers have is of none, so that neither stands for the other."""

    async def use(bridge: Bridge, _: Any) -> None:
        async with sansmcp_asyncio.connect(bridge.url, versions=(version,)) as client:
            extensions = client.connected.capabilities["extensions"]
            assert extensions[EXTENSION] == {"directoryRead": True}
            assert [each.name async for each in client.skills()] == ["a", "b"]
            assert await read(client, "a") == "one"
            assert await read(client, "b") == "two"
            inside = await client.call("resources/directory/read", {"uri": "skill://b"})
            assert [each["name"] for each in inside["resources"]] == ["b", "guide.md"]
            for uri in ("skill://same/SKILL.md", "skill://same/guide.md"):
                with pytest.raises(JsonRpcError, match="not clear"):
                    await client.read_resource(uri)
            with pytest.raises(JsonRpcError, match="not clear"):
                await client.get_skill("skill://same/SKILL.md")
            with pytest.raises(JsonRpcError, match="Unknown uri"):
                await client.get_skill("skill://none/SKILL.md")
            found = await client.read_resource("three://a")
            assert found["contents"][0].get("text") == "three"

    apps: dict[str, sansmcp.App] = {
        "one": served(tmp_path, "one", "a", "same"),
        "two": served(tmp_path, "two", "b", "same"),
        "three": named("three", "c"),
    }
    bridged(apps, use)


@pytest.mark.parametrize(
    ("uri", "manifest"),
    [
        ("skill://a", "skill://a/SKILL.md"),
        ("skill://a/SKILL.md", "skill://a/SKILL.md"),
        ("skill://a/b/c", "skill://a/b/SKILL.md"),
        ("skill://ab", ""),
        ("skill:", ""),
    ],
)
def test_the_skill_of_a_uri(uri: str, manifest: str) -> None:
    known = ["skill://a/SKILL.md", "skill://a/b/SKILL.md", "skill:"]
    assert innermost_skill(uri, known) == manifest


def test_the_work_for_a_uri_does_not_depend_on_its_parts() -> None:
    """A client may send one of a million slashes; each part would take a copy of those before."""

    def look_up(parts: int) -> Iterator[str]:
        yield innermost_skill("skill://a" + "/" * parts, ["skill://a/b/SKILL.md"])

    assert steps(look_up(10)) == steps(look_up(1000))
