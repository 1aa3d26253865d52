"""Each rule that is tried has a patch that fits the code, and tests that name it."""

from __future__ import annotations

import pytest

from ..house.requirements import proofs, rules
from ..patches import MOST_STALE, Ending, Patch, Trial, stale
from . import rules as proving
from .rules import Finding, failed_test, patches, prove, read_draw

DRAW = read_draw()


def test_musts_are_tried_besides_those_that_were_misnamed() -> None:
    musts = {rule.id for rule in rules() if rule.is_a_must}
    drawn = [rule for rule in DRAW.drawn if rule not in DRAW.replaced]
    assert len(set(drawn)) == 162
    assert set(drawn) <= musts
    assert set(DRAW.replaced) < set(DRAW.drawn)
    assert len(set(DRAW.tried)) == len(DRAW.tried)


def test_each_rule_has_a_patch_and_tests() -> None:
    assert set(patches()) == set(DRAW.tried)
    assert set(DRAW.tried) <= set(proofs())


def test_few_patches_no_longer_fit_the_code() -> None:
    """Make them again with git diff; make requirements-proof names them, too."""
    found = stale(patches().values())
    assert len(found) <= MOST_STALE, "\n".join(found)


@pytest.mark.parametrize("patch", patches().values(), ids=lambda patch: patch.name)
def test_patches_say_what_they_break(patch: Patch) -> None:
    assert patch.hunks
    assert patch.about.endswith(".")


@pytest.mark.parametrize(
    ("ending", "status", "finding"),
    [
        (Ending.FOUND, 1, Finding.GUARDED),
        (Ending.MISSED, 0, Finding.UNGUARDED),
        (Ending.FOUND, 2, Finding.UNGUARDED),  # pytest could not run
        (Ending.FOUND, 5, Finding.UNGUARDED),  # no test names the rule
        (Ending.HUNG, None, Finding.UNGUARDED),
        (Ending.STALE, None, Finding.STALE),
    ],
)
def test_only_a_test_that_fails_guards_a_rule(
    monkeypatch: pytest.MonkeyPatch, ending: Ending, status: int | None, finding: Finding
) -> None:
    patch = Patch(name="SSE-C-004", about="", hunks=())
    trial = Trial(patch=patch, ending=ending, status=status)

    def attempt(patch: Patch, command: list[str], *, time_limit: float) -> Trial:
        assert command[-2:] == ["--requirement=SSE-C-004", "tests/codecs/test_sse_decode.py"]
        return trial

    monkeypatch.setattr(proving, "attempt", attempt)
    assert prove(patch) == (finding, trial)


def test_the_test_that_failed_is_named() -> None:
    patch = Patch(name="x", about="", hunks=())
    output = "E   assert 1\nFAILED tests/a.py::test_b[1] - assert 1\n1 failed"
    assert failed_test(Trial(patch=patch, ending=Ending.FOUND, output=output)) == (
        "tests/a.py::test_b[1]"
    )
    assert failed_test(Trial(patch=patch, ending=Ending.MISSED)) == ""
