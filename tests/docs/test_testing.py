"""The page on testing is a file of tests that pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .documents import DOCS, ROOT, blocks


def test_its_tests_pass(tmp_path: Path) -> None:
    file = tmp_path / "test_greeter.py"
    file.write_text("\n".join(blocks(DOCS / "testing.md", "python")), encoding="utf-8")
    settings = ["-q", "-p", "no:cacheprovider", "-c", "pyproject.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "31 passed" in done.stdout
