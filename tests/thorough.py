"""Divide a long check into seeds that always run and seeds for ``make thorough``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

_Case = TypeVar("_Case")


def in_seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Run a test with the first few ``seeds``, and thoroughly with the others of many."""
    thorough = pytest.param(range(few, many), id=f"{few}-{many - 1}", marks=pytest.mark.thorough)
    return pytest.mark.parametrize("seeds", [pytest.param(range(few), id=f"0-{few - 1}"), thorough])


def always(cases: Iterable[_Case], runs: Callable[[_Case], object]) -> list[Any]:
    """Parameters for all cases; those that need not always run are thorough ones."""
    return [
        case if runs(case) else pytest.param(case, marks=pytest.mark.thorough) for case in cases
    ]
