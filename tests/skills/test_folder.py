"""Folders of skills: what is served of them, and what is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sansmcp.skills import MAX_BYTES, MAX_FILES, digest_of
from sansmcp_local import FolderSkill, SkillError, SkillFolder


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def skill(folder: Path, name: str | None = None, more: str = "") -> Path:
    name = folder.name if name is None else name
    write(folder / "SKILL.md", f"---\nname: {name}\ndescription: About {name}.\n{more}---\n")
    return folder


def scanned(folder: Path, prefix: str = "") -> SkillFolder:
    found = SkillFolder(folder, prefix)
    found.scan()
    return found


def files_of(skill: FolderSkill) -> list[str]:
    return list(skill.files)


def test_skills_at_any_depth(tmp_path: Path) -> None:
    skill(tmp_path / "one")
    write(tmp_path / "one" / "references" / "a guide.md")
    skill(tmp_path / "acme" / "two")
    write(tmp_path / "README.md")
    found = scanned(tmp_path, "team/")
    assert found.problems == []
    assert list(found.skills) == ["skill://team/acme/two/SKILL.md", "skill://team/one/SKILL.md"]
    one = found.skills["skill://team/one/SKILL.md"]
    assert files_of(one) == [one.uri, "skill://team/one/references/a%20guide.md"]
    text = (tmp_path / "one" / "SKILL.md").read_bytes()
    assert one.entry["resources"][0] == {
        "uri": one.uri,
        "digest": digest_of(text),
        "size": len(text),
    }
    assert one.entry["frontmatter"] == {"name": "one", "description": "About one."}
    assert [each.mime_type for each in one.files.values()] == ["text/markdown"] * 2


def test_a_folder_that_is_a_skill(tmp_path: Path) -> None:
    skill(tmp_path / "one")
    assert list(scanned(tmp_path / "one").skills) == ["skill://one/SKILL.md"]


def test_a_skill_within_a_skill_is_one_of_its_own_and_belongs_to_both(tmp_path: Path) -> None:
    skill(tmp_path / "outer")
    skill(tmp_path / "outer" / "inner")
    found = scanned(tmp_path)
    inner = "skill://outer/inner/SKILL.md"
    assert files_of(found.skills[inner]) == [inner]
    assert files_of(found.skills["skill://outer/SKILL.md"]) == ["skill://outer/SKILL.md", inner]
    write(tmp_path / "outer" / "inner" / "SKILL.md", "no frontmatter")
    assert found.scan()
    assert list(found.skills) == ["skill://outer/SKILL.md"]
    assert inner in found.skills["skill://outer/SKILL.md"].files


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_no_link_leads_out_and_what_begins_with_a_dot_is_left_out(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret" / "key")
    folder = skill(tmp_path / "skills" / "one")
    (folder / "key").symlink_to(secret)
    (folder / "all").symlink_to(secret.parent)
    (tmp_path / "skills" / "two").symlink_to(skill(tmp_path / "elsewhere" / "two"))
    write(folder / ".git" / "config")
    write(folder / ".env")
    found = scanned(tmp_path / "skills")
    assert files_of(found.skills["skill://one/SKILL.md"]) == ["skill://one/SKILL.md"]
    assert len(found.skills) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_file_that_becomes_a_link_is_read_no_more(tmp_path: Path) -> None:
    folder = skill(tmp_path / "one")
    guide = write(folder / "guide.md", "same")
    found = scanned(tmp_path)
    file = found.skills["skill://one/SKILL.md"].files["skill://one/guide.md"]
    assert file.read() == b"same"
    guide.unlink()
    guide.symlink_to(write(tmp_path / "other", "same"))
    assert file.read() is None


@pytest.mark.skipif(
    os.open not in os.supports_dir_fd, reason="no file can be opened relative to a folder there"
)
def test_a_folder_that_becomes_a_link_is_read_no_more(tmp_path: Path) -> None:
    folder = skill(tmp_path / "skills" / "one")
    write(folder / "deep" / "er" / "guide.md", "same")
    found = scanned(tmp_path / "skills")
    files = found.skills["skill://one/SKILL.md"].files
    file = files["skill://one/deep/er/guide.md"]
    assert file.read() == b"same"
    (folder / "deep").rename(tmp_path / "elsewhere")
    assert file.read() is None
    (folder / "deep").symlink_to(tmp_path / "elsewhere")
    assert file.read() is None
    count = len(os.listdir("/dev/fd"))
    for _ in range(10):
        file.read()
        files["skill://one/SKILL.md"].read()
    assert len(os.listdir("/dev/fd")) == count
    (tmp_path / "link").symlink_to(
        tmp_path / "skills"
    )  # the folder itself is the choice of the user
    assert list(scanned(tmp_path / "link").skills) == ["skill://one/SKILL.md"]


def test_a_platform_that_opens_only_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", frozenset[Any]())
    skill(tmp_path / "one")
    (file,) = scanned(tmp_path).skills["skill://one/SKILL.md"].files.values()
    assert file.read() is not None


@pytest.mark.skipif(sys.platform == "win32", reason="there it is the time of creation")
def test_a_change_is_seen_whose_time_was_put_back(tmp_path: Path) -> None:
    guide = write(skill(tmp_path / "one") / "guide.md", "old")
    found = scanned(tmp_path)
    before = guide.stat()
    guide.write_text("new")
    os.utime(guide, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found.scan()
    file = found.skills["skill://one/SKILL.md"].files["skill://one/guide.md"]
    assert file.read() == b"new"
    guide.chmod(0o600)  # changes that time, and nothing that clients see
    assert not found.scan()


def test_a_prefix_with_spaces_is_encoded(tmp_path: Path) -> None:
    skill(tmp_path / "one")
    assert list(scanned(tmp_path, "my team/ä").skills) == ["skill://my%20team/%C3%A4/one/SKILL.md"]


def test_what_changes_is_read_again(tmp_path: Path) -> None:
    folder = skill(tmp_path / "one")
    guide = write(folder / "guide.md", "old")
    found = scanned(tmp_path)
    before = found.skills["skill://one/SKILL.md"]
    assert not found.scan()
    guide.write_text("new, and longer")
    old = before.files["skill://one/guide.md"]
    assert old.read() is None
    assert found.scan()
    new = found.skills[before.uri].files[old.uri]
    assert new.read() == b"new, and longer"
    skill(folder, more="license: MIT\n")
    assert found.scan()
    assert found.skills[before.uri].frontmatter["license"] == "MIT"
    guide.unlink()
    assert found.scan()
    assert old.uri not in found.skills[before.uri].files


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Body", "does not begin with frontmatter"),
        ("---\nname: one\n---\n", "has no description"),
        ("---\nname: one\ndescription: 1\n---\n", "has no description"),
        ("---\ndescription: x\n---\n", "None cannot be the name of a skill"),
        ("---\nname: two\ndescription: x\n---\n", "the folder must have the same, and is 'one'"),
        ("---\nname: One\ndescription: x\n---\n", "'One' cannot be the name of a skill"),
        ("---\nname: a--b\ndescription: x\n---\n", "no two together"),
        ("---\nname: -a\ndescription: x\n---\n", "no '-' at an end"),
    ],
)
def test_a_skill_that_cannot_be_served(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path / "one" / "SKILL.md", text)
    found = scanned(tmp_path)
    assert found.skills == {}
    (problem,) = found.problems
    assert why in problem


def test_the_limits_of_files_and_bytes(tmp_path: Path) -> None:
    folder = skill(tmp_path / "one")
    for number in range(MAX_FILES - 1):
        write(folder / f"{number}")
    found = scanned(tmp_path)
    assert len(found.skills["skill://one/SKILL.md"].files) == MAX_FILES
    write(folder / "one more")
    found.scan()
    assert f"it has {MAX_FILES + 1} files" in found.problems[0]
    for number in range(MAX_FILES - 1):
        (folder / f"{number}").unlink()
    used = (folder / "SKILL.md").stat().st_size
    with (folder / "one more").open("wb") as file:
        file.truncate(MAX_BYTES - used)
    found.scan()
    assert found.problems == []
    with (folder / "one more").open("wb") as file:
        file.truncate(MAX_BYTES - used + 1)
    found.scan()
    assert f"it has {MAX_BYTES + 1} bytes" in found.problems[0]


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SkillError, match="nothing cannot be read: No such file"):
        scanned(tmp_path / "nothing")
    monkeypatch.setattr("sansmcp_local._skill_folder._MAX_ENTRIES", 1)
    skill(tmp_path / "one")
    with pytest.raises(SkillError, match="more than 1 files"):
        scanned(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    folder = skill(tmp_path / "one")
    os.mkfifo(folder / "pipe")
    assert files_of(scanned(tmp_path).skills["skill://one/SKILL.md"]) == ["skill://one/SKILL.md"]
