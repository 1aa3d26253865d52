"""The program and the client of the page about skills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sansmcp_asyncio

from .documents import DOCS, blocks

PAGE = DOCS / "skills.md"


def test_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server, client = blocks(PAGE, "python")
    (manifest,) = blocks(PAGE, "markdown")
    folder = tmp_path / "skills" / "git-workflow"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text(manifest)
    (folder / "references" / "branches.md").write_text("After the issue.")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    exec(server, names)
    exec(client, names)

    async def main() -> None:
        async with sansmcp_asyncio.serve(names["tools"], http=("127.0.0.1", 0)) as serving:
            await names["main"](serving.url)

    asyncio.run(main())
    out = capsys.readouterr().out
    assert "git-workflow How this team names branches" in out
    assert "daily Report on today's orders." in out
    assert "Name a branch as" in out
    assert out.endswith("After the issue.\n")
