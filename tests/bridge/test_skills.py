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
from sansmcp_bridge._uris import UriOwners
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
    ("uri", "servers"),
    [
        ("skill://a", ("one",)),
        ("skill://a/SKILL.md", ("one",)),
        ("skill://a/b/c", ("two",)),
        ("skill://ab", ()),
        ("skill:", ()),
    ],
)
def test_the_skill_of_a_uri(uri: str, servers: tuple[str, ...]) -> None:
    owners = UriOwners()
    listed = {"one": ["skill://a/SKILL.md"], "two": ["skill://a/b/SKILL.md"]}
    assert len(owners.assign(listed, are_skills=True)) == 2
    assert owners.of_folder(uri) == servers


def test_the_work_for_a_uri_does_not_depend_on_its_parts() -> None:
    """A client may send one of a million slashes; each part would take a copy of those before."""
    owners = UriOwners()
    owners.assign(
        {"one": ["skill://a/b/SKILL.md", f"skill://{'/' * 40}/SKILL.md"]}, are_skills=True
    )

    def look_up(parts: int) -> Iterator[str]:
        yield str(owners.of_folder("skill://a" + "/" * parts))

    assert steps(look_up(40)) == steps(look_up(1000))
    assert owners.of_folder(f"skill://{'/' * 40}/x") == ()
