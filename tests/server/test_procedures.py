"""Procedures alone: what they wait for, and how they end."""

from __future__ import annotations

import pytest

from sansmcp import App, Entry, StreamKey
from sansmcp.effects import StoreAppend, StoreRead, StoreUnwatch, StoreWatch
from sansmcp.server.core import ServerCore
from sansmcp.server.logs import Logs
from sansmcp.server.options import ServerOptions
from sansmcp.server.procedures import (
    Changed,
    Interval,
    Procedure,
    StepFailedError,
    Steps,
    Told,
    append,
    read,
    run,
)
from sansmcp.store import AppendResult, Page
from sansmcp.timers import Timer

KEY = StreamKey("ada", "session", "log")
ENTRY = Entry(1, b"data")


@pytest.fixture
def logs() -> Logs:
    return Logs(ServerCore(App("test", "1"), ServerOptions(), lambda: "token-0123456789"))


def test_each_answer_reaches_the_step_that_waits_for_it(logs: Logs) -> None:
    seen: list[object] = []

    def steps() -> Steps[None]:
        seen.append((yield from read(KEY)))
        seen.append((yield from append(KEY, (ENTRY,))))
        seen.append((yield from append(KEY, (ENTRY,))))
        seen.append((yield from append(KEY, (ENTRY,))))

    procedure = Procedure(logs, steps())
    procedure.start()
    effects = logs.core.effects
    effect, page = effects[0], Page((ENTRY,), ENTRY)
    assert isinstance(effect, StoreRead)
    procedure.on_read_done(effect, page)
    assert isinstance(effects[-1], StoreAppend)
    procedure.on_append_done()
    procedure.on_append_conflict()
    procedure.on_append_behind()
    assert seen == [page, AppendResult.STORED, AppendResult.CONFLICT, AppendResult.BEHIND]
    assert procedure.is_over
    assert len(effects) == 4


def test_a_step_is_repeated_only_while_the_procedure_is_wanted(logs: Logs) -> None:
    def steps() -> Steps[None]:
        yield from read(KEY)

    wanted = [True]
    procedure = Procedure(logs, steps(), lambda: bool(wanted))
    procedure.start()
    (effect,) = logs.core.effects
    assert isinstance(effect, StoreRead)
    assert procedure.may_repeat(effect)
    wanted.clear()
    assert not procedure.may_repeat(effect)
    wanted.append(True)
    procedure.close()
    assert not procedure.may_repeat(effect)
    assert procedure.failed(effect), "nothing is lost with a procedure that was closed"
    procedure.on_read_done(effect, None)


@pytest.mark.parametrize("catches", [True, False])
def test_a_failure_that_is_not_caught_loses_messages(logs: Logs, catches: bool) -> None:
    def steps() -> Steps[None]:
        try:
            yield from read(KEY)
        except StepFailedError:
            if not catches:
                raise

    procedure = Procedure(logs, steps())
    procedure.start()
    (effect,) = logs.core.effects
    assert isinstance(effect, StoreRead)
    assert procedure.failed(effect) is catches
    assert procedure.is_over


def test_a_procedure_that_ends_watches_no_more(logs: Logs) -> None:
    def steps() -> Steps[None]:
        yield Changed(KEY)
        yield Told(KEY)
        raise ArithmeticError

    procedure = Procedure(logs, steps())
    procedure.start()
    assert list(logs.core.effects) == [StoreWatch(KEY)]
    procedure.poll_store()
    with pytest.raises(ArithmeticError):
        logs.on_changed(KEY)
    assert list(logs.core.effects) == [StoreWatch(KEY), StoreUnwatch(KEY)]
    assert procedure.is_over


def test_an_interval_needs_no_watch(logs: Logs) -> None:
    def steps() -> Steps[None]:
        yield Interval(KEY)

    run(logs, steps())
    assert not logs.core.effects
    ((timer, owner),) = logs.core.timers.due(logs.core.limits.store_poll_interval)
    assert timer is Timer.STORE_POLL
    assert isinstance(owner, tuple)


def test_a_procedure_may_close_itself(logs: Logs) -> None:
    ended: list[bool] = []

    def steps() -> Steps[None]:
        try:
            yield Changed(KEY)
            procedure.close()
            yield from read(KEY)
        finally:
            ended.append(True)

    procedure = Procedure(logs, steps())
    procedure.start()
    procedure.poll_store()
    assert ended == [True]
    assert list(logs.core.effects) == [StoreWatch(KEY), StoreUnwatch(KEY)]


def test_a_procedure_that_was_closed_does_not_begin(logs: Logs) -> None:
    def steps() -> Steps[None]:
        yield from read(KEY)

    procedure = Procedure(logs, steps())
    procedure.close()
    procedure.start()
    assert not logs.core.effects
