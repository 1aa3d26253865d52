"""A patch breaks a copy of the project, never the checkout, and says so if it no longer fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..patches import PROJECT, Ending, Hunk, Patch, StalePatch, attempt, read_patch

DIFF = """\
The limit for attempts is a hundred times what it should be.

A client tries for hours.

diff --git a/sansmcp/revisions.py b/sansmcp/revisions.py
index 1234567..89abcde 100644
--- a/sansmcp/revisions.py
+++ b/sansmcp/revisions.py
@@ -1,3 +1,3 @@
 one

-two
+2
 three
@@ -9 +9,2 @@
-nine
+9
+10
"""


def hunk(old: str, new: str) -> Hunk:
    return Hunk(path="a.py", old=old, new=new)


def patch(*hunks: Hunk) -> Patch:
    return Patch(name="x", about="", hunks=hunks)


def test_a_patch_is_a_text_and_a_unified_diff(tmp_path: Path) -> None:
    path = tmp_path / "too-many-attempts.patch"
    path.write_text(DIFF)
    revisions = "sansmcp/revisions.py"
    assert read_patch(path) == Patch(
        name="too-many-attempts",
        about="The limit for attempts is a hundred times what it should be.\n\n"
        "A client tries for hours.",
        hunks=(
            Hunk(path=revisions, old="one\n\ntwo\nthree\n", new="one\n\n2\nthree\n"),
            Hunk(path=revisions, old="nine\n", new="9\n10\n"),
        ),
    )


def test_hunks_change_whole_lines_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nxx = 1\n    x = 1\n")
    both = patch(hunk("x = 1\n", "x = 2\n"), hunk("x = 2\nxx = 1\n", "y = 0\n"))
    assert both.patched(tmp_path) == {"a.py": "y = 0\n    x = 1\n"}


@pytest.mark.parametrize("text", ["", "y = 1\n", "x = 1\nx = 1\n", "x = 1 + 1\n", "  x = 1\n"])
def test_a_patch_is_stale_if_its_lines_are_not_there_once(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)
    with pytest.raises(StalePatch, match=r"a\.py has [02] places like 'x = 1', not one"):
        patch(hunk("x = 1\n", "x = 2\n")).patched(tmp_path)


def test_a_trial_of_a_stale_patch_runs_nothing() -> None:
    trial = attempt(patch(hunk("x = 1\n", "x = 2\n")), ["-c", "raise SystemExit(7)"], time_limit=60)
    assert (trial.ending, trial.status) == (Ending.STALE, None)
    assert trial.output == "a.py has 0 places like 'x = 1', not one"


BATCHING = """                batching=True,\n"""
WITHOUT_BATCHES = Patch(
    name="no-batches",
    about="",
    hunks=(
        Hunk(
            path="sansmcp/revisions.py",
            old=BATCHING,
            new="",
        ),
    ),
)


@pytest.mark.parametrize(
    ("end", "ending", "status"),
    [("sys.exit(3)", Ending.FOUND, 3), ("", Ending.MISSED, 0)],
)
def test_a_trial_sees_the_patched_copy(end: str, ending: Ending, status: int) -> None:
    program = "import sys; from sansmcp.revisions import REVISIONS; print('first'); "
    program += f"print(REVISIONS['2025-03-26'].batching); {end}"
    trial = attempt(WITHOUT_BATCHES, ["-c", program], time_limit=60)
    assert (trial.ending, trial.status) == (ending, status)
    assert trial.last_lines(1) == "False"
    assert BATCHING in (PROJECT / "sansmcp" / "revisions.py").read_text()


def test_a_trial_under_pytest_sees_the_patched_copy() -> None:
    command = ["-m", "pytest", "-q", "tests/vocabulary/test_revisions.py"]
    trial = attempt(WITHOUT_BATCHES, command, time_limit=120)
    assert (trial.ending, trial.status) == (Ending.FOUND, 1)
    assert "batching" in trial.output


def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    program = "import subprocess, sys; print(1, flush=True); "
    program += "subprocess.run([sys.executable, '-c', 'import time; time.sleep(1000)'])"
    trial = attempt(WITHOUT_BATCHES, ["-c", program], time_limit=2)
    assert (trial.ending, trial.status, trial.output) == (Ending.HUNG, None, "1\n")


def test_a_patch_that_cannot_be_imported_is_not_found() -> None:
    hunk = Hunk(path="sansmcp/revisions.py", old=BATCHING, new="(\n")
    with pytest.raises(RuntimeError, match="cannot be imported"):
        attempt(Patch(name="x", about="", hunks=(hunk,)), ["-c", ""], time_limit=60)
