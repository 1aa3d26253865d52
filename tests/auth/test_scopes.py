"""The scopes that are requested."""

from __future__ import annotations

import pytest

from sansmcp.auth.scopes import choose_scopes, union, with_offline_access


@pytest.mark.requirement("AUTH-C-013", "AUTH-C-014", "AUTH-C-015")
@pytest.mark.parametrize(
    ("given", "earlier", "challenged", "supported", "chosen"),
    [
        ((), (), (), (), ()),
        ((), (), (), ("s", "t"), ("s", "t")),
        ((), (), ("c",), ("s",), ("c",)),
        (("g",), (), (), ("s",), ("g",)),
        (("g",), (), ("c",), ("s",), ("g", "c")),
        ((), ("e",), ("c",), ("s",), ("e", "c")),
        ((), ("e", "c"), ("c",), (), ("e", "c")),
    ],
)
def test_choice(
    given: tuple[str, ...],
    earlier: tuple[str, ...],
    challenged: tuple[str, ...],
    supported: tuple[str, ...],
    chosen: tuple[str, ...],
) -> None:
    assert choose_scopes(given, earlier, challenged, supported) == chosen


@pytest.mark.parametrize(
    ("listed", "wants_refresh", "result"),
    [
        (("offline_access",), True, ("a", "offline_access")),
        (("offline_access",), False, ("a",)),
        (("b",), True, ("a",)),
        ((), True, ("a",)),
    ],
)
def test_offline_access_only_if_listed(
    listed: tuple[str, ...], wants_refresh: bool, result: tuple[str, ...]
) -> None:
    assert with_offline_access(("a",), listed, wants_refresh=wants_refresh) == result


def test_offline_access_is_not_repeated() -> None:
    scopes = ("offline_access", "a")
    assert with_offline_access(scopes, ("offline_access",), wants_refresh=True) == scopes


def test_a_union_keeps_the_order() -> None:
    assert union(("b", "a"), ("a", "c")) == ("b", "a", "c")
