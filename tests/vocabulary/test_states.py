"""The tables of states are followed; what they do not allow is misuse by our own side."""

from __future__ import annotations

import pytest

from sansmcp import LocalProtocolError
from sansmcp.states import (
    OPENING,
    STREAM,
    OpeningEvent,
    OpeningState,
    StreamEvent,
    StreamState,
    advance,
)


def test_a_pair_of_the_table_leads_to_its_state() -> None:
    assert advance(STREAM, StreamState.OPENING, StreamEvent.OPENED) is StreamState.READING


def test_another_pair_is_refused_by_name() -> None:
    with pytest.raises(LocalProtocolError, match="StreamState closed does not allow opened"):
        advance(STREAM, StreamState.CLOSED, StreamEvent.OPENED)
    with pytest.raises(LocalProtocolError, match="OpeningState new does not allow confirm"):
        advance(OPENING, OpeningState.NEW, OpeningEvent.CONFIRM)
