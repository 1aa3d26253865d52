"""Checks: what one is, how it is run, and how it says what is wrong."""

from __future__ import annotations

import faulthandler
import gc
import inspect
import os
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar

import attrs

from .adapter_under_test import ClientUnderTest, Feature, ServerUnderTest

MOMENT = 20.0
"""Seconds for what takes a moment, on a machine that has much else to do."""
_LAST_STEPS = 30.0
"""Seconds for threads that have nothing left to do but to end; trio keeps some for ten of them."""


class _Subject(Protocol):
    lacks: Mapping[Feature, str]


S = TypeVar("S", bound=_Subject)
_Run: TypeAlias = Callable[[S], None]


@attrs.frozen
class Check(Generic[S]):
    """One obligation of an adapter; calling the check with a subject proves that it is met."""

    name: str
    obligation: str
    """What the adapter has to do, and how."""
    needs: frozenset[Feature]
    _run: _Run[S]

    def __str__(self) -> str:
        return self.name

    def __call__(self, subject: S, *, patience: float = 60.0) -> None:
        """Run the check; it is given up after ``patience`` seconds, whatever hangs.

        Raises AssertionError if the obligation is not met, and unittest.SkipTest, which pytest
        knows as well, if the subject does without what the check needs.
        """
        for feature in sorted(self.needs & subject.lacks.keys(), key=str):
            raise unittest.SkipTest(f"{feature.value}: {subject.lacks[feature]}")
        failures: list[BaseException] = []
        thread = threading.Thread(target=_run_and_tell, args=(self._run, subject, failures))
        thread.daemon = True  # what hangs is left behind
        thread.start()
        thread.join(patience)
        promise = f"{self.name}: {self.obligation}"
        if thread.is_alive():
            hangs = f"it did not end within {patience:g} s"
            raise AssertionError(f"{hangs}\n\n{promise}\n\nThreads are at\n{_stacks()}")
        for failure in failures:
            what = str(failure) if isinstance(failure, Broken) else f"it raised {failure!r}"
            raise AssertionError(f"{what}\n\n{promise}") from failure


def _run_and_tell(run: _Run[S], subject: S, failures: list[BaseException]) -> None:
    try:
        run(subject)
    except BaseException as failure:
        failures.append(failure)


def _stacks() -> str:
    """Where all threads are; this one, which comes last, is left out."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read().partition("Current thread")[0]


def client_check(*needs: Feature) -> Callable[[_Run[ClientUnderTest]], Check[ClientUnderTest]]:
    """Make a function a check of clients; its docstring is the obligation."""
    return lambda run: _check(run, needs)


def server_check(*needs: Feature) -> Callable[[_Run[ServerUnderTest]], Check[ServerUnderTest]]:
    """Make a function a check of servers; its docstring is the obligation."""
    return lambda run: _check(run, needs)


def _check(run: _Run[S], needs: tuple[Feature, ...]) -> Check[S]:
    return Check(run.__name__, inspect.getdoc(run) or "", frozenset(needs), run)


def checks_in(*modules: ModuleType) -> tuple[Check[Any], ...]:
    """The checks that modules define, in their order."""
    values = [value for module in modules for value in vars(module).values()]
    return tuple(filter(_is_check, values))


def _is_check(value: object) -> TypeGuard[Check[Any]]:
    return isinstance(value, Check)


# What checks say


class Broken(AssertionError):
    """An obligation was broken, and this is what was seen."""


def expect(condition: object, seen: str) -> None:
    """Raises Broken with what was seen, unless the condition holds."""
    if not condition:
        raise Broken(seen)


def same(got: Any, wanted: Any, what: str) -> None:
    """Raises Broken unless two values are equal; the values are shown, shortened."""
    expect(got == wanted, f"{what}: {_short(got)}, and not {_short(wanted)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 500 else f"{text[:500]}..."


E = TypeVar("E", bound=BaseException)


def raises(kind: type[E], action: Callable[[], Any], what: str) -> E:
    """What an action raises, of exactly this class or one below it."""
    try:
        result = action()
    except kind as error:
        return error
    except BaseException as error:
        raise Broken(f"{what}: raised {error!r} instead of {kind.__name__}") from error
    raise Broken(f"{what}: returned {_short(result)} instead of raising {kind.__name__}")


def happened(event: threading.Event, what: str) -> None:
    """Wait for something that another thread does."""
    expect(event.wait(MOMENT), f"{what} within {MOMENT:g} s")


def stands_still(count: Callable[[], int]) -> int:
    """Wait until a count does not change any more, and return it.

    Many looks tell, not the time: a process that is stopped for a while has had one.
    """
    before, looks = count(), 0
    while looks < 10:
        threading.Event().wait(0.03)
        now = count()
        looks = looks + 1 if now == before else 0
        before = now
    return before


def _held() -> tuple[int, int]:
    """The threads and the file descriptors of this process."""
    gc.collect()
    folders = [folder for folder in (Path("/proc/self/fd"), Path("/dev/fd")) if folder.exists()]
    return threading.active_count(), len(os.listdir(folders[0])) if folders else 0


def stays_the_same(action: Callable[[], None]) -> None:
    """Raises Broken if an action leaves more threads or descriptors each time it is done."""
    action()
    before = after = _held()
    for _ in range(3):
        action()
    given_up = time.monotonic() + _LAST_STEPS
    while time.monotonic() < given_up:
        after = _held()
        if after[0] <= before[0] and after[1] <= before[1]:
            return
        time.sleep(0.01)
    raise Broken(
        f"threads and descriptors: {before} after the first time, {after} after three more",
    )
