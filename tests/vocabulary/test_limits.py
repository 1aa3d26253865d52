"""Limits are positive, and documented."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest

from sansmcp import Limits, LocalProtocolError


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(Limits)])
def test_no_limit_can_be_zero(field: str) -> None:
    with pytest.raises(LocalProtocolError, match=field):
        Limits(**{field: 0})


@pytest.mark.parametrize("value", [True, "1", None, float("nan")])
@pytest.mark.parametrize("field", [field.name for field in attrs.fields(Limits)])
def test_limits_are_numbers(field: str, value: Any) -> None:
    with pytest.raises(LocalProtocolError, match=field):
        Limits(**{field: value})


@pytest.mark.parametrize("value", [1.5, 2.0, math.inf])
@pytest.mark.parametrize(
    "field", [field.name for field in attrs.fields(Limits) if str(field.type) == "int"]
)
def test_bytes_and_counts_are_whole(field: str, value: Any) -> None:
    with pytest.raises(LocalProtocolError, match=field):
        Limits(**{field: value})


def test_seconds_may_be_infinite_but_for_intervals_that_something_waits_for() -> None:
    assert (
        Limits(body_timeout=math.inf, max_stored_age=0.5, head_timeout=1).body_timeout == math.inf
    )
    with pytest.raises(LocalProtocolError, match="store_poll_interval"):
        Limits(store_poll_interval=math.inf)


def test_the_depth_limit_leaves_room_on_the_stack() -> None:
    assert Limits(max_json_depth=500).max_json_depth == 500
    with pytest.raises(LocalProtocolError, match="max_json_depth"):
        Limits(max_json_depth=501)
