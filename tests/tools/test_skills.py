"""Skills of tools: lists, entries, folders and files, and what clients make of them."""

from __future__ import annotations

import asyncio
import math
import re
from pathlib import Path
from typing import Any

import pytest

import sansmcp
import sansmcp_asyncio
import sansmcp_blocking
from sansmcp import LocalProtocolError
from sansmcp.skills import EXTENSION
from sansmcp.trace import Tracer
from sansmcp_local import SkillFolder
from sansmcp_pytest import Client, Connect
from sansmcp_tools import Tools

from .conftest import connect, in_revisions

GUIDE = "skill://git-workflow/references/guide.md"
WORKFLOW = "skill://git-workflow/SKILL.md"
REFUNDS = "skill://acme/refunds/SKILL.md"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    more = "allowed-tools: Bash\nmetadata: {day: 2026-11-28}\n"
    for name, rest in (("git-workflow", more), ("acme/refunds", "")):
        text = f"---\nname: {name.rpartition('/')[2]}\ndescription: About {name}.\n{rest}---\n"
        write(tmp_path / name / "SKILL.md", text)
    write(tmp_path / "git-workflow" / "references" / "guide.md", "Branch.")
    (tmp_path / "git-workflow" / "logo.png").write_bytes(b"\xff\x00")
    return tmp_path


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request looks at the files."""
    monkeypatch.setattr("sansmcp_tools._skills._FRESH", 0.0)


def refused(client: Client, method: str, uri: Any, match: str) -> None:
    with pytest.raises(sansmcp.JsonRpcError, match=match) as error:
        client.call(method, {"uri": uri})
    assert error.value.code == -32602


@in_revisions
def test_what_clients_get(mcp_client: Connect, tools: Tools, folder: Path, revision: str) -> None:
    tools.skills(folder, max_age=60)
    client = connect(mcp_client, tools, revision)
    capabilities = client.connected.capabilities
    assert capabilities["extensions"][EXTENSION] == {"directoryRead": True}
    assert capabilities["resources"] == {"subscribe": True, "listChanged": True}
    listed = client.call("skills/list")
    assert [each["uri"] for each in listed["skills"]] == [REFUNDS, WORKFLOW]
    entry = client.call("skills/get", {"uri": WORKFLOW})
    assert entry["skill"] == listed["skills"][1]
    if revision == "2026-07-28":
        assert [listed["ttlMs"], entry["ttlMs"]] == [60_000] * 2
    else:
        assert "ttlMs" not in {**listed, **entry}
    assert entry["skill"]["frontmatter"] == {
        "name": "git-workflow",
        "description": "About git-workflow.",
        "allowed-tools": "Bash",
        "metadata": {"day": "2026-11-28"},
    }
    files = [each["uri"].removeprefix("skill://") for each in entry["skill"]["resources"]]
    root = "git-workflow"
    assert files == [f"{root}/SKILL.md", f"{root}/logo.png", f"{root}/references/guide.md"]
    manifests = {
        "uri": WORKFLOW,
        "name": "git-workflow",
        "description": "About git-workflow.",
        "mimeType": "text/markdown",
    }
    assert client.list_resources()["resources"][1] == manifests
    guide = {"uri": GUIDE, "mimeType": "text/markdown", "text": "Branch."}
    assert client.read_resource(GUIDE)["contents"] == [guide]
    logo: Any
    (logo,) = client.read_resource("skill://git-workflow/logo.png")["contents"]
    assert (logo["mimeType"], logo["blob"]) == ("image/png", "/wA=")
    inside = client.call("resources/directory/read", {"uri": "skill://git-workflow"})
    assert inside["resources"] == [
        manifests,
        {"uri": "skill://git-workflow/logo.png", "name": "logo.png", "mimeType": "image/png"},
        {
            "uri": "skill://git-workflow/references",
            "name": "references",
            "mimeType": "inode/directory",
        },
    ]


def test_what_is_not_there(mcp_client: Connect, tools: Tools, folder: Path) -> None:
    tools.skills(folder)
    client = connect(mcp_client, tools)
    for uri in (None, 1, "skill://git-workflow", GUIDE):
        refused(client, "skills/get", uri, "no skill")
    for uri in (None, 1, "skill://acme", "skill://git-workflow/", GUIDE):
        refused(client, "resources/directory/read", uri, "no folder")
    for uri in ("skill://git-workflow/../x", "skill://git-workflow/no", "skill://git-workflow"):
        refused(client, "resources/read", uri, "no resource")
    with pytest.raises(sansmcp.JsonRpcError, match="cursor"):
        client.call("skills/list", {"cursor": "x"})


def test_pages_of_skills(
    mcp_client: Connect, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page_size, page_bytes in ((1, 512 * 1024), (100, 10)):
        monkeypatch.setattr("sansmcp_tools._pages._PAGE_BYTES", page_bytes)
        tools = Tools("pages", page_size=page_size)
        tools.skills(folder)
        client = connect(mcp_client, tools)
        first = client.call("skills/list")
        assert [each["uri"] for each in first["skills"]] == [REFUNDS]
        second = client.call("skills/list", {"cursor": first["nextCursor"]})
        assert [each["uri"] for each in second["skills"]] == [WORKFLOW]
        assert "nextCursor" not in second


@pytest.mark.usefixtures("at_once")
def test_changed_files_are_seen_and_verified(tools: Tools, folder: Path) -> None:
    tools.skills(folder)
    told: list[str] = []
    tools.attach(lambda method, params: told.append(method))
    with (
        sansmcp_blocking.serve(tools, http=("127.0.0.1", 0)) as serving,
        sansmcp_blocking.connect(serving.url) as client,
    ):
        refunds, skill = client.skills()
        assert (refunds.name, skill.name) == ("refunds", "git-workflow")
        assert client.read_skill(skill, "references/guide.md") == "Branch."
        assert client.read_skill(skill, "logo.png") == b"\xff\x00"
        assert str(client.read_skill(skill)).startswith("---\nname: git-workflow")
        tools.refresh_skills()
        assert told == []
        write(folder / "git-workflow" / "references" / "guide.md", "Another.")
        with pytest.raises(sansmcp.SkillMismatch, match="bytes"):
            client.read_skill(skill, "references/guide.md")
        write(folder / "git-workflow" / "references" / "new.md", "New.")
        with pytest.raises(sansmcp.SkillMismatch, match="no file"):
            client.read_skill(skill, "references/new.md")
        tools.refresh_skills()
        assert told == ["notifications/resources/list_changed"]
        changed = client.get_skill(skill.uri)
        assert changed != skill
        assert client.read_skill(changed, "references/new.md") == "New."
        write(folder / "git-workflow" / "SKILL.md", "broken")
        assert [each.name for each in client.skills()] == ["refunds"]


def test_a_skill_says_what_to_write_if_it_is_used_bare() -> None:
    tools: Any = Tools("skills")
    with pytest.raises(LocalProtocolError, match=r'write it as @tools\.skill\("reports/daily", '):
        tools.skill(lambda: "x")

    with pytest.raises(LocalProtocolError, match=r"skill\('daily'\) has no description"):
        tools.skill("daily")


def test_the_path_of_a_skill_with_spaces_is_encoded() -> None:
    tools = Tools("skills")
    tools.skill("my team/daily", description="Report.")(lambda: "x")
    with pytest.raises(LocalProtocolError, match="There is a skill at skill://my%20team/daily/"):
        tools.skill("my team/daily", description="Report.")(lambda: "x")


def test_uris_that_are_made_up_do_not_make_the_server_look_at_the_files(
    mcp_client: Connect, tools: Tools, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.skills(folder)
    client = connect(mcp_client, tools)
    client.call("skills/list")
    monkeypatch.setattr("sansmcp_tools._skills._FRESH", math.inf)
    monkeypatch.delattr(SkillFolder, "scan")
    refused(client, "resources/read", "skill://none", "There is no resource")


def test_an_async_client_reads_skills(tools: Tools, folder: Path) -> None:
    tools.skills(folder)

    async def main() -> None:
        async with (
            sansmcp_asyncio.serve(tools, http=("127.0.0.1", 0)) as serving,
            sansmcp_asyncio.connect(serving.url) as client,
        ):
            found = [skill async for skill in client.skills()]
            assert [each.uri for each in found] == [REFUNDS, WORKFLOW]
            skill = await client.get_skill(WORKFLOW)
            assert skill == found[1]
            assert await client.read_skill(skill, "references/guide.md") == "Branch."
            assert str(await client.read_skill(skill)).startswith("---\nname: git-workflow")

    asyncio.run(main())


def test_nothing_is_fetched_before_it_is_asked_for(tools: Tools, folder: Path) -> None:
    tools.skills(folder)
    lines: list[str] = []

    def asked() -> list[str]:
        found = re.findall(r'"method":"((?:skills|resources)/[a-z/]+)"', "\n".join(lines))
        lines.clear()
        return found

    with (
        sansmcp_blocking.serve(tools, http=("127.0.0.1", 0)) as serving,
        sansmcp_blocking.connect(
            serving.url, trace=Tracer("client", lines.append, is_full=True)
        ) as client,
    ):
        assert asked() == []
        _, skill = client.skills()
        assert asked() == ["skills/list"]
        assert skill.frontmatter["allowed-tools"] == "Bash"
        client.get_skill(WORKFLOW)
        assert asked() == ["skills/get"]
        client.read_skill(skill, "references/guide.md")
        assert asked() == ["resources/read"]


def test_a_server_without_skills_is_not_asked(tools: Tools) -> None:
    with (
        sansmcp_blocking.serve(tools, http=("127.0.0.1", 0)) as serving,
        sansmcp_blocking.connect(serving.url) as client,
    ):
        with pytest.raises(sansmcp.LocalProtocolError, match="no skills"):
            list(client.skills())
        with pytest.raises(sansmcp.LocalProtocolError, match="no skills"):
            client.get_skill("skill://a/SKILL.md")


def test_a_skill_that_a_function_makes(tools: Tools, folder: Path) -> None:
    numbers = iter(range(9))

    @tools.skill("reports/daily", description='Says "é" \u2028.', frontmatter={"license": "MIT"})
    def daily() -> str:
        return f"Report {next(numbers)}."

    tools.skills(folder)
    with (
        sansmcp_blocking.serve(tools, http=("127.0.0.1", 0)) as serving,
        sansmcp_blocking.connect(serving.url) as client,
    ):
        skill = client.get_skill("skill://reports/daily/SKILL.md")
        assert skill.files is None
        assert dict(skill.frontmatter) == {
            "name": "daily",
            "description": 'Says "é" \u2028.',
            "license": "MIT",
        }
        for number in range(2):
            assert str(client.read_skill(skill)).endswith(f"---\nReport {number}.")
        uris = [each["uri"] for each in client.resources()]
        assert uris == [skill.uri, REFUNDS, WORKFLOW]
        inside = client.call("resources/directory/read", {"uri": "skill://reports/daily"})
        assert [each["name"] for each in inside["resources"]] == ["daily"]


@pytest.mark.parametrize(
    ("path", "settings", "match"),
    [
        ("Daily", {}, "cannot be the name"),
        ("a/", {}, "cannot be the name"),
        ("daily", {"frontmatter": {"x": object()}}, "not JSON"),
        ("daily", {"frontmatter": {"x": float("nan")}}, "not JSON"),
        ("daily", {"frontmatter": {"x": "y" * 40_000}}, "more than 32768"),
        ("git-workflow", {}, "There is a skill at"),
    ],
)
def test_skills_that_cannot_be_made(
    tools: Tools, folder: Path, path: str, settings: dict[str, Any], match: str
) -> None:
    tools.skills(folder)
    with pytest.raises(sansmcp.LocalProtocolError, match=match):
        tools.skill(path, description="x", **settings)(lambda: "x")


def test_folders_that_cannot_be_served(tools: Tools, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    tools.skills(folder)
    with pytest.raises(sansmcp.LocalProtocolError, match="There is a skill at"):
        tools.skills(folder)
    with pytest.raises(sansmcp.LocalProtocolError, match=r"has no SKILL\.md"):
        tools.skills(tmp_path / "empty")
    with pytest.raises(sansmcp.LocalProtocolError, match="cannot be read"):
        tools.skills(tmp_path / "nothing")
    write(folder / "bad" / "SKILL.md", "broken")
    with pytest.raises(sansmcp.LocalProtocolError, match="does not begin with frontmatter"):
        tools.skills(folder, prefix="other")


@pytest.mark.usefixtures("at_once")
def test_a_skill_that_breaks_is_left_out_and_logged_once(
    mcp_client: Connect, tools: Tools, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools.skills(folder)
    write(folder / "acme" / "refunds" / "SKILL.md", "broken")
    client = connect(mcp_client, tools)
    for _ in range(2):
        listed = client.call("skills/list")["skills"]
        assert [each["uri"] for each in listed] == [WORKFLOW]
    refused(client, "resources/read", REFUNDS, "no resource")
    assert caplog.text.count("a skill is not served") == 1
