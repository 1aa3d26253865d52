"""The page on testing is a file of tests that pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from .documents import DOCS, ROOT, blocks


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    settings = ["-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", *options]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *settings, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_tests_pass(tmp_path: Path) -> None:
    file = tmp_path / "test_shop.py"
    file.write_text("\n".join(blocks(DOCS / "testing.md", "python")), encoding="utf-8")
    done = run(file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "74 passed" in done.stdout


def test_the_mistake_that_it_describes_is_found(tmp_path: Path) -> None:
    source = "\n".join(blocks(DOCS / "testing.md", "python"))
    assert "if size not in orders:" in source
    file = tmp_path / "test_shop.py"
    file.write_text(source.replace("if size not in orders:", "if True:"), encoding="utf-8")
    done = run(file, "-k", "placed_once")
    assert done.returncode == 1, done.stdout
    assert re.search(
        r"^seed \d+, faults: (cut|silence)@\d+\n(\(the fewest .* at first\)\n)?"
        r"Run it again: pytest \S*placed_once\S* --mcp-seed \d+ --mcp-faults (cut|silence)@\d+$",
        done.stdout,
        re.MULTILINE,
    )
