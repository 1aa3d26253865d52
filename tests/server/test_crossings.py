"""Every cursor in every session of every principal: each opens its own stream only."""

from __future__ import annotations

import pytest

from sansmcp import StreamKey

from .harness import ServerHarness

requirement = pytest.mark.requirement


def crossings(harness: ServerHarness) -> list[int]:
    """Try every cursor in every session of every principal; the statuses that foreign ones got."""
    people = ["alice", "alice", "bob", ""]
    sessions = [(person, harness.open_session(principal=person)) for person in people]
    cursors: list[tuple[str, str]] = []
    for person, session in sessions:
        talk = harness.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, session, principal=person
        )
        harness.run_action(harness.last_call().notify, "secret")
        cursors += [(session, str(event.id)) for event in talk.events]
    statuses: list[int] = []
    for owner, cursor in cursors:
        for person, session in sessions:
            talk = harness.get(session, cursor, principal=person)
            if session == owner:
                assert talk.status == 200
            else:
                statuses.append(talk.status or 0)
            talk.lose_connection()
    return statuses


@requirement("RESUME-S-006", "SESSION-S-011")
def test_no_cursor_opens_the_stream_of_another_session() -> None:
    assert set(crossings(ServerHarness())) == {400}


def test_planted_bug_a_stream_key_without_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(principal: str, session: str, stream: str) -> StreamKey:
        return StreamKey("", "", stream)

    monkeypatch.setattr("sansmcp.server.legacy.stream_table.StreamKey", careless)
    monkeypatch.setattr("sansmcp.server.legacy.sessions.StreamKey", careless)
    assert 200 in crossings(ServerHarness())
