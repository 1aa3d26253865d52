"""Limits are positive, and documented."""

from __future__ import annotations

import attrs
import pytest

from sansmcp import Limits, LocalProtocolError


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(Limits)])
def test_no_limit_can_be_zero(field: str) -> None:
    with pytest.raises(LocalProtocolError, match=field):
        Limits(**{field: 0})


def test_the_depth_limit_leaves_room_on_the_stack() -> None:
    assert Limits(max_json_depth=500).max_json_depth == 500
    with pytest.raises(LocalProtocolError, match="max_json_depth"):
        Limits(max_json_depth=501)
