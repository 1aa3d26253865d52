"""The planted bugs still fit the code, and say what they break."""

from __future__ import annotations

import ast

import pytest

from ..patches import MOST_STALE, Patch, read_patches, stale
from ..simulation.kinds import KINDS
from .__main__ import BUGS

PATCHES = read_patches(BUGS)


def test_there_are_as_many_as_are_said() -> None:
    assert len(PATCHES) >= 40


def test_few_bugs_no_longer_fit_the_code() -> None:
    """Make them again with git diff; make planted names them, too."""
    found = stale(PATCHES)
    assert len(found) <= MOST_STALE, "\n".join(found)


@pytest.mark.parametrize("bug", PATCHES, ids=lambda bug: bug.name)
def test_a_bug_is_one_of_the_core_that_can_be_compiled(bug: Patch) -> None:
    assert bug.hunks
    assert all(hunk.path.startswith("sansmcp/") for hunk in bug.hunks)
    for text in () if stale([bug]) else bug.patched().values():
        ast.parse(text)


@pytest.mark.parametrize("bug", PATCHES, ids=lambda bug: bug.name)
def test_a_bug_says_what_it_breaks_and_what_a_user_suffers(bug: Patch) -> None:
    breaks, suffers, *more = bug.about.split("\n\n")
    assert len(breaks.splitlines()) == 1
    assert all(text.endswith(".") for text in (breaks, suffers, *more))
    notes = dict(text.rstrip(".").split(": ", 1) for text in more)
    assert len(notes) == len(more)
    assert len(set(notes) - {"Kind"}) <= 1
    assert set(notes) <= {"Kind", "Not found", "Slow to find"}
    assert "Kind" not in notes or notes["Kind"] in KINDS
