"""Entries of skills, and the verification of what is read of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from sansmcp import InvalidResponse, LocalProtocolError, Skill, SkillMismatch
from sansmcp.skills import (
    EXTENSION,
    MAX_BYTES,
    MAX_FILES,
    check_declared,
    digest_of,
    file_uri,
    get_request,
    skill_in,
    skill_of,
    verified,
)

HERE = "https://a.example/mcp"
ROOT = "skill://acme/refunds"
MANIFEST = b"---\nname: refunds\n---\nRefund."
GUIDE = b"\xff\x00"
FRONTMATTER = {"name": "refunds", "description": "Refunds.", "metadata": {"a": [1, True, None]}}


def file(path: str, data: bytes) -> dict[str, Any]:
    return {"uri": f"{ROOT}/{path}", "digest": digest_of(data), "size": len(data)}


def entry(**changes: Any) -> dict[str, Any]:
    files = [file("SKILL.md", MANIFEST), file("references/guide.bin", GUIDE)]
    return {
        "uri": f"{ROOT}/SKILL.md",
        "frontmatter": FRONTMATTER,
        "resources": files,
        **changes,
    }


def parse(text: str) -> dict[str, Any]:
    assert text == MANIFEST.decode()
    return FRONTMATTER


def contents(**members: Any) -> dict[str, Any]:
    return {"contents": [{"uri": "any", **members}]}


def read(skill: Skill, path: str, result: Any, frontmatter_of: Any = parse) -> Any:
    return verified(skill, file_uri(skill, path, HERE), result, frontmatter_of)


def test_a_skill_and_its_files() -> None:
    skill = skill_of(entry(), HERE)
    assert (skill.name, skill.description, skill.root) == ("refunds", "Refunds.", ROOT)
    assert skill.problem is None
    assert skill.files is not None
    assert [each.size for each in skill.files] == [len(MANIFEST), len(GUIDE)]
    assert file_uri(skill, None, HERE) == skill.uri
    assert skill_in({"skill": entry()}, HERE) == skill
    assert get_request(skill.uri) == ("skills/get", {"uri": skill.uri})
    assert read(skill, "SKILL.md", contents(text=MANIFEST.decode())) == MANIFEST.decode()
    blob = base64.b64encode(GUIDE).decode()
    assert read(skill, "references/guide.bin", contents(blob=blob)) == GUIDE


def test_the_same_uri_at_another_server_is_another_skill() -> None:
    skill = skill_of(entry(), HERE)
    assert skill != skill_of(entry(), "https://b.example/mcp")
    with pytest.raises(LocalProtocolError, match=r"is of https://a.example/mcp, and must not be"):
        file_uri(skill, "SKILL.md", "https://b.example/mcp")


def test_a_uri_in_place_of_an_entry_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="skill"):
        file_uri("skill://one/SKILL.md", None, HERE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"uri": 1}, "does not end in /SKILL.md"),
        ({"uri": f"{ROOT}/skill.md"}, "does not end in /SKILL.md"),
        ({"uri": "https://SKILL.md"}, "no more than a scheme"),
        ({"uri": "https:/SKILL.md", "frontmatter": {"name": "https:"}}, "no more than a scheme"),
        ({"uri": "file:////SKILL.md"}, "no more than a scheme"),
        ({"uri": "/SKILL.md"}, "no more than a scheme"),
        ({"frontmatter": None}, "has no name and description"),
        ({"frontmatter": {"name": "refunds"}}, "has no name and description"),
        ({"frontmatter": {"name": "other", "description": "x"}}, "not in a folder of its name"),
        ({"resources": None}, "does not list its files"),
        ({"resources": []}, "does not list its files"),
        ({"resources": [1]}, "does not list its files"),
        ({"resources": [{**file("SKILL.md", b""), "digest": "sha256:A"}]}, "does not list its"),
        ({"resources": [{**file("SKILL.md", b""), "size": -1}]}, "does not list its files"),
        ({"resources": [{**file("SKILL.md", b""), "size": True}]}, "does not list its files"),
        ({"resources": [file(f"{n}", b"") for n in range(MAX_FILES + 1)]}, "more than 512"),
        ({"resources": [file("a", b"")]}, "does not list each file once"),
        ({"resources": [file("SKILL.md", b"")] * 2}, "does not list each file once"),
        (
            {"resources": [file("SKILL.md", b""), {**file("", b""), "uri": "skill://acme/refund"}]},
            "lists a file that is not in its folder",
        ),
        ({"resources": [{**file("SKILL.md", b""), "size": MAX_BYTES + 1}]}, "more than 16 MiB"),
    ],
)
def test_an_entry_that_breaks_the_rules_is_shown_and_not_read(
    changes: dict[str, Any], problem: str
) -> None:
    skill = skill_of(entry(**changes), HERE)
    assert skill.problem is not None
    assert problem in skill.problem
    with pytest.raises(SkillMismatch, match=problem):
        file_uri(skill, "SKILL.md", HERE)


def test_what_is_no_entry_at_all() -> None:
    assert skill_of(None, HERE).problem is not None


@pytest.mark.parametrize("path", ["other", "", ".", "../refunds/SKILL.md", "a/../SKILL.md", "a//b"])
@pytest.mark.parametrize("resources", [entry()["resources"], "dynamic"], ids=["files", "dynamic"])
def test_only_files_of_the_skill_are_read(path: str, resources: Any) -> None:
    skill = skill_of(entry(resources=resources), HERE)
    if resources == "dynamic" and path == "other":
        assert file_uri(skill, path, HERE) == f"{ROOT}/other"
    else:
        with pytest.raises(SkillMismatch, match="has no file"):
            file_uri(skill, path, HERE)


def test_what_a_function_makes_is_compared_with_its_frontmatter_only() -> None:
    skill = skill_of(entry(resources="dynamic"), HERE)
    assert skill.files is None
    assert skill.problem is None
    assert read(skill, "SKILL.md", contents(text=MANIFEST.decode())) == MANIFEST.decode()
    assert read(skill, "any", contents(text="anything")) == "anything"
    with pytest.raises(SkillMismatch, match="bytes"):
        read(skill, "any", contents(text="x" * (MAX_BYTES + 1)))


def other_frontmatter(**changes: Any) -> Any:
    def frontmatter_of(text: str) -> Any:
        return {**FRONTMATTER, **changes}

    return frontmatter_of


def no_frontmatter(text: str) -> Any:
    raise ValueError("there is none")


@pytest.mark.parametrize(
    ("text", "frontmatter_of", "why"),
    [
        (MANIFEST.decode() + "x", parse, r"it has \d+ bytes"),
        (MANIFEST.decode().replace("R", "r"), parse, "its digest is another one"),
        (MANIFEST.decode(), no_frontmatter, "there is none"),
        (MANIFEST.decode(), other_frontmatter(more=1), "its frontmatter is another one"),
        (MANIFEST.decode(), other_frontmatter(description="y"), "its frontmatter is another one"),
        (MANIFEST.decode(), other_frontmatter(metadata={"a": [1, 1, None]}), "another one"),
        (MANIFEST.decode(), other_frontmatter(metadata={"a": [1, True]}), "another one"),
    ],
)
def test_a_file_that_is_not_what_the_entry_says(text: str, frontmatter_of: Any, why: str) -> None:
    with pytest.raises(SkillMismatch, match=why):
        read(skill_of(entry(), HERE), "SKILL.md", contents(text=text), frontmatter_of)


NOT_ONE: list[Any] = [
    None,
    {},
    {"contents": []},
    {"contents": [{}, {}]},
    contents(),
    contents(text=1),
    contents(blob="?"),
    contents(blob="\u00e9"),
]


@pytest.mark.parametrize("result", NOT_ONE)
def test_a_result_that_has_not_one_file(result: Any) -> None:
    with pytest.raises(InvalidResponse, match="has not the content of one file"):
        read(skill_of(entry(), HERE), "SKILL.md", result)


def test_only_a_server_that_declares_skills_is_asked() -> None:
    check_declared({"extensions": {EXTENSION: {}}})
    without: list[dict[str, Any]] = [{}, {"extensions": None}, {"extensions": {"other": {}}}]
    for capabilities in without:
        with pytest.raises(LocalProtocolError, match="declares no skills"):
            check_declared(capabilities)
