"""The planted bugs still fit the code, and say what they break."""

from __future__ import annotations

import ast

import pytest

from ..patches import Patch, read_patches
from .__main__ import BUGS

PATCHES = read_patches(BUGS)


def test_there_are_as_many_as_are_said() -> None:
    assert len(PATCHES) >= 40


@pytest.mark.parametrize("bug", PATCHES, ids=lambda bug: bug.name)
def test_a_bug_fits_the_code(bug: Patch) -> None:
    changed = bug.patched()
    assert changed
    for path, text in changed.items():
        assert path.startswith("sansmcp/")
        ast.parse(text)


@pytest.mark.parametrize("bug", PATCHES, ids=lambda bug: bug.name)
def test_a_bug_says_what_it_breaks_and_what_a_user_suffers(bug: Patch) -> None:
    breaks, suffers, *not_found = bug.about.split("\n\n")
    assert len(breaks.splitlines()) == 1
    assert all(text.endswith(".") for text in (breaks, suffers, *not_found))
    assert [text.partition(": ")[0] for text in not_found] in ([], ["Not found"], ["Slow to find"])
