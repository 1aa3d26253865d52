"""``sansmcp skills``."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

import sansmcp
import sansmcp_blocking
from sansmcp_tools import Tools

from .conftest import run_in_process

URI = "skill://git-workflow/SKILL.md"


@pytest.fixture
def url(tmp_path: Path) -> Generator[str, None, None]:
    folder = tmp_path / "git-workflow"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: git-workflow\ndescription: Commit.\n---\nBody\n")
    (folder / "guide.md").write_text("Branch.")
    tools = Tools("skills")
    tools.skills(tmp_path)
    with sansmcp_blocking.serve(tools, http=("127.0.0.1", 0)) as running:
        yield running.url


def test_the_list(url: str) -> None:
    done = run_in_process("skills", url)
    assert done.status == 0
    assert URI in done.out
    assert "Commit. (2 files)" in done.out
    (entry,) = json.loads(run_in_process("skills", url, "--json").out)["skills"]
    assert json.loads(run_in_process("skills", url, URI, "--json").out) == entry


def test_a_file(url: str) -> None:
    assert run_in_process("skills", url, URI).out.endswith("---\nBody\n")
    assert run_in_process("skills", url, URI, "guide.md").out == "Branch.\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["skill://none/SKILL.md"], "no skill"),
        (["git-workflw"], f"no skill 'git-workflw'; did you mean {URI}?"),
        (["skill://git-worflow/SKILL.md"], f"did you mean {URI}?"),
        (["other"], "no skill 'other'; sansmcp skills without it lists"),
        ([URI, "none.md"], "has no file 'none.md'; there are SKILL.md, guide.md"),
        ([URI, "guid.md"], "has no file 'guid.md'; did you mean guide.md?"),
        (["--files"], "--files lists the files of one skill"),
        ([URI, "guide.md", "--files"], "--files lists the files of one skill"),
        ([URI, "guide.md", "more"], "Too many words: 'more'"),
    ],
)
def test_what_cannot_be_shown(url: str, words: list[str], why: str) -> None:
    done = run_in_process("skills", url, *words)
    assert (done.status, done.out) == (1, "")
    assert why in done.err


def test_the_files_of_a_skill(url: str) -> None:
    done = run_in_process("skills", url, URI, "--files")
    assert done.status == 0
    assert done.out.split() == ["files:", "SKILL.md", "53", "bytes", "guide.md", "7", "bytes"]


def test_the_files_of_a_skill_that_a_function_makes(tmp_path: Path) -> None:
    tools = Tools("skills")
    tools.skill("daily", description="Report.")(lambda: "x")
    with sansmcp_blocking.serve(tools, http=("127.0.0.1", 0)) as running:
        done = run_in_process("skills", running.url, "skill://daily/SKILL.md", "--files")
    assert "announces no files" in done.out


def test_a_server_without_skills() -> None:
    with sansmcp_blocking.serve(sansmcp.App("none"), http=("127.0.0.1", 0)) as running:
        done = run_in_process("skills", running.url)
    assert done.status == 1
    assert "declares no skills" in done.err
