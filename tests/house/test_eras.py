"""The stateless revisions need nothing of the older ones: their files can be deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sansmcp.revisions import HANDSHAKE_VERSIONS

from .sources import ROOT

OF_SESSIONS = ("client/legacy", "server/legacy", "codecs/event_id.py", "memory_store.py")
"""What only the handshake revisions need."""

MODERN_TESTS = ("tests/client/modern", "tests/server/modern")
OPTIONS = ("-q", "-p", "no:cacheprovider", "-m")


@pytest.fixture(scope="module")
def without_sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as it would be without the handshake revisions."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "pyproject.toml", root)
    for folder in ("sansmcp", "tests"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("node*"))
    for name in OF_SESSIONS:
        path = root / "sansmcp" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    revisions = root / "sansmcp" / "revisions.py"
    source = revisions.read_text()
    rows = source.index("            Revision(")
    rest = source.rindex("            Revision(")
    revisions.write_text(source[:rows] + source[rest:])
    return root


def run(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.thorough
def test_the_tests_of_the_stateless_revisions_pass_without_the_others(
    without_sessions: Path,
) -> None:
    output = run(without_sessions, "pytest", *OPTIONS, "not both_eras", *MODERN_TESTS)
    passed = int(output.split(" passed")[0].split()[-1])
    assert passed > 500


@pytest.mark.thorough
def test_a_test_that_needs_both_would_be_noticed(without_sessions: Path) -> None:
    with pytest.raises(AssertionError, match="failed"):
        run(without_sessions, "pytest", *OPTIONS, "both_eras", MODERN_TESTS[0])


def test_who_speaks_no_older_revision_imports_nothing_of_it() -> None:
    modules = [name.removesuffix(".py").replace("/", ".") for name in OF_SESSIONS]
    code = f"""
import sys
import sansmcp
versions = tuple(v for v in sansmcp.REVISIONS if v not in {HANDSHAKE_VERSIONS!r})
sansmcp.Server(sansmcp.App("a", "1"), new_token=str, versions=versions)
sansmcp.Client("http://localhost/mcp", jitter=float, versions=versions)
loaded = [n for n in sys.modules for m in {modules!r} if n.startswith("sansmcp." + m)]
sys.exit(", ".join(loaded) or None)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
