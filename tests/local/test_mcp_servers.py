"""Names for what several servers offer together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp_local import SharedNames

Names = dict[tuple[str, str], str]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({}, {}),
        ({"a": [], "b": ["x"]}, {("b", "x"): "x"}),
        ({"a": ["x", "y"], "b": ["y"]}, {("a", "x"): "x", ("a", "y"): "a_y", ("b", "y"): "b_y"}),
        ({"a": ["x", "x"]}, {("a", "x"): "x"}),
        ({"a": ["a_x"], "b": ["a_y"]}, {("a", "a_x"): "a_x", ("b", "a_y"): "b_a_y"}),
        (  # its own name is that of another tool with the prefix
            {"a": ["x", "a_x"], "b": ["x"]},
            {("a", "x"): "a_x", ("a", "a_x"): "a_a_x", ("b", "x"): "b_x"},
        ),
        (  # a forged prefix
            {"a": ["x", "b_x"], "b": ["x"]},
            {("a", "x"): "a_x", ("a", "b_x"): "a_b_x", ("b", "x"): "b_x"},
        ),
        ({"a": ["\u0447"]}, {("a", "\u0447"): "\u0447"}),
        (  # Cyrillic letters, of which the first looks like an a
            {"a": ["\u0430dd", "add"], "b": ["\u0447"]},
            {("a", "\u0430dd"): "a_\u0430dd", ("a", "add"): "add", ("b", "\u0447"): "b_\u0447"},
        ),
        (  # a_b_x is a name of the server a_b
            {"a": ["b_x", "y"], "b": [], "a_b": ["x"]},
            {("a", "y"): "y", ("a_b", "x"): "x"},
        ),
    ],
    ids=str,
)
def test_names_that_several_servers_have_get_a_prefix(
    names: dict[str, list[str]], shown: Names
) -> None:
    assert SharedNames(names).assign(names) == shown


@pytest.mark.parametrize("hidden", ["\u3164", "\uffa0", "\u115f", "\u1160", "\u200b", "\U000e0041"])
def test_a_character_without_a_shape_makes_no_other_name(hidden: str) -> None:
    names = SharedNames(["a", "a_b"])
    assert names.is_forged("a", f"a{hidden}_b_x")
    assert names.is_forged("a", f"a_{hidden}b_x")
    forged = {"a": [f"{hidden}b_x", f"b{hidden}_x"], "a_b": ["x", "y"]}
    assert names.assign(forged) == {("a_b", "x"): "x", ("a_b", "y"): "y"}


def test_a_uri_with_any_characters_is_kept() -> None:
    names = SharedNames("ab", has_prefixes=False)
    assert names.assign({"a": ["u:\u0430"], "b": ["u:a"]}) == {
        ("a", "u:\u0430"): "u:\u0430",
        ("b", "u:a"): "u:a",
    }


def test_a_name_stays_with_its_server() -> None:
    names = SharedNames("ab")
    assert names.assign({"a": ["x"], "b": []}) == {("a", "x"): "x"}
    both = {("a", "x"): "x", ("b", "x"): "b_x"}
    assert names.assign({"a": ["x"], "b": ["x"]}) == both
    assert names.assign({"a": [], "b": ["x"]}) == {("b", "x"): "b_x"}
    assert names.assign({"b": ["x"]}) == {("b", "x"): "b_x"}
    assert names.assign({"a": ["x"], "b": []}) == {("a", "x"): "x"}


def test_a_name_that_cannot_be_changed_is_of_one_server_or_of_none() -> None:
    names = SharedNames("ab", has_prefixes=False)
    both = {"a": ["u:1", "u:2"], "b": ["u:2", "a_u:3"]}
    assert names.assign(both) == {("a", "u:1"): "u:1", ("b", "a_u:3"): "a_u:3"}
    assert names.assign({"b": ["u:1", "u:2"]}) == {}
    assert names.assign({"a": ["u:1", "u:2"]}) == {("a", "u:1"): "u:1"}


def test_a_server_pushes_no_name_of_another_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sansmcp_local._server_names._MAX_NAMES", 2)
    for has_prefixes in (True, False):
        names = SharedNames("ab", has_prefixes=has_prefixes)
        names.assign({"a": ["x"]})
        for number in range(5):
            listed = [f"{number}a", f"{number}b", f"{number}c"]
            assert len(names.assign({"b": listed})) == 3
        assert names.assign({"b": ["0a", "x"]}).get(("b", "x")) != "x"
        assert names.assign({"a": ["4a", "x"]})["a", "x"] == "x"


LISTS = st.dictionaries(
    st.sampled_from(["a", "b", "a_b"]),
    st.lists(st.lists(st.sampled_from(["a", "b", "x", "_"]), max_size=6).map("".join)),
)


@given(st.lists(LISTS, max_size=4), st.booleans())
def test_no_name_ever_means_two_things(lists: list[dict[str, list[str]]], changes: bool) -> None:
    names = SharedNames(["a", "b", "a_b"], has_prefixes=changes)
    meant: dict[str, tuple[str, str]] = {}
    for each in lists:
        for what, name in names.assign(each).items():
            assert meant.setdefault(name, what) == what
