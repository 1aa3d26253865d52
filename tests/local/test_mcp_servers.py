"""Names for what several servers offer together."""

from __future__ import annotations

import pytest

from sansmcp_local import unique_names


@pytest.mark.parametrize(
    ("names", "unique"),
    [
        ({}, {}),
        ({"a": [], "b": ["x"]}, {("b", "x"): "x"}),
        ({"a": ["x", "y"], "b": ["y"]}, {("a", "x"): "x", ("a", "y"): "a_y", ("b", "y"): "b_y"}),
        ({"a": ["x", "x"]}, {("a", "x"): "x"}),
        (
            {"a": ["x", "b_x"], "b": ["x"]},
            {("a", "x"): "a_x", ("a", "b_x"): "b_x", ("b", "x"): "b_x"},
        ),
    ],
)
def test_unique_names(names: dict[str, list[str]], unique: dict[tuple[str, str], str]) -> None:
    assert unique_names(names) == unique
