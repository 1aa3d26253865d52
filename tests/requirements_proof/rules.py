"""Which rules of the protocol are tried, and whether the tests named for them guard them.

``rules.toml`` has the rules. Each has a patch of its name beside it, which breaks the rule in the
code. A rule is guarded if a test that names it (``pytest.mark.requirement``) fails on the patched
code; other tests do not count.
"""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from ..house.requirements import TESTS, proofs
from ..patches import Ending, Patch, Trial, attempt, read_patches

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
TIME_LIMIT = 300
"""Seconds for the tests of one rule."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S+)", re.MULTILINE)


@attrs.frozen(kw_only=True)
class Draw:
    """What ``rules.toml`` says.

    Attributes:
        seed: what the rules were drawn by.
        drawn: the rules, in the order in which they were drawn.
        replaced: those of them that are not tried, each with the reason.
        misnamed: the rules whose named tests once passed when they were broken; they are tried
            besides.
    """

    seed: int
    drawn: Sequence[str]
    replaced: Mapping[str, str]
    misnamed: Sequence[str]

    @property
    def tried(self) -> Sequence[str]:
        """The rules that have a patch."""
        return [*(rule for rule in self.drawn if rule not in self.replaced), *self.misnamed]


class Finding(enum.Enum):
    """What the trial of a rule has shown."""

    GUARDED = "guarded"
    """A test that names the rule fails on the patched code."""
    UNGUARDED = "unguarded"
    """They all pass, or hang; or there is none."""
    STALE = "stale"
    """The patch does not fit the code any more."""


def read_draw() -> Draw:
    """Return what ``rules.toml`` says."""
    return Draw(**tomllib.loads((FOLDER / "rules.toml").read_text("utf-8")))


def patches() -> Mapping[str, Patch]:
    """Return the patches by the rules that they break."""
    return {patch.name: patch for patch in read_patches(FOLDER)}


def command_for(rules: Sequence[str]) -> list[str]:
    """Return the arguments of Python that run the tests named for ``rules``, and no others."""
    named = {name.partition("::")[0] for rule in rules for name in proofs().get(rule, ())}
    files = sorted(f"{TESTS.name}/{name}" for name in named)
    only = [f"--requirement={rule}" for rule in rules]
    return ["-m", "pytest", "-q", "-x", "--tb=short", "-p", "no:cacheprovider", *only, *files]


def prove(patch: Patch) -> tuple[Finding, Trial]:
    """Return whether the tests named for the rule that ``patch`` breaks notice it."""
    trial = attempt(patch, command_for([patch.name]), time_limit=TIME_LIMIT)
    if trial.ending is Ending.STALE:
        return Finding.STALE, trial
    is_guarded = trial.status == 1  # others: no test, or none that could be run
    return (Finding.GUARDED if is_guarded else Finding.UNGUARDED), trial


def failed_test(trial: Trial) -> str:
    """Return the name of the test that failed; empty if none did."""
    found = _FAILED.search(trial.output)
    return "" if found is None else found["test"]
