"""The program of the page on typed results runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ..docs.documents import DOCS, blocks


def test_the_program_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    (program,) = blocks(DOCS / "results.md", "python")
    exec(compile(program, "results.md", "exec", dont_inherit=True), names)
    asyncio.run(names["main"](url))
    assert capsys.readouterr().out.split() == ["3", "t0", "t1", "t2", "t3", "t4"]
