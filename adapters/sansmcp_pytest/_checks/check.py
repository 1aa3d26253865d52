"""The class of checks, and the assertions that they use."""

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
"""Seconds allowed for steps that take milliseconds on an idle machine."""
_LAST_STEPS = 30.0
"""Seconds allowed for idle threads to end; trio keeps some for ten seconds."""


class _Subject(Protocol):
    lacks: Mapping[Feature, str]


S = TypeVar("S", bound=_Subject)
_Run: TypeAlias = Callable[[S], None]


@attrs.frozen
class Check(Generic[S]):
    """One obligation of an adapter; calling the check with a subject proves that it is met."""

    name: str
    obligation: str
    """What the adapter must do, and how."""
    needs: frozenset[Feature]
    _run: _Run[S]

    def __str__(self) -> str:
        return self.name

    def __call__(self, subject: S, *, patience: float = 60.0) -> None:
        """Run the check on an adapter.

        Args:
            subject: the adapter.
            patience: seconds after which a check that hangs fails.

        Raises:
            AssertionError: the obligation is not met.
            unittest.SkipTest: the subject lacks a feature that the check needs. pytest skips then.
        """
        for feature in sorted(self.needs & subject.lacks.keys(), key=str):
            raise unittest.SkipTest(f"{feature.value}: {subject.lacks[feature]}")
        failures: list[BaseException] = []
        thread = threading.Thread(target=_run_and_report, args=(self._run, subject, failures))
        thread.daemon = True  # a check that hangs must not keep the program from exiting
        thread.start()
        thread.join(patience)
        promise = f"{self.name}: {self.obligation}"
        if thread.is_alive():
            hangs = f"it did not end within {patience:g} s"
            raise AssertionError(f"{hangs}\n\n{promise}\n\nThreads are at\n{_stacks()}")
        for failure in failures:
            what = str(failure) if isinstance(failure, Broken) else f"it raised {failure!r}"
            raise AssertionError(f"{what}\n\n{promise}") from failure


def _run_and_report(run: _Run[S], subject: S, failures: list[BaseException]) -> None:
    try:
        run(subject)
    except BaseException as failure:
        failures.append(failure)


def _stacks() -> str:
    """Return the stacks of all threads but this one, which comes last."""
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
    """Return the checks that modules define, in their order."""
    values = [value for module in modules for value in vars(module).values()]
    return tuple(filter(_is_check, values))


def _is_check(value: object) -> TypeGuard[Check[Any]]:
    return isinstance(value, Check)


# Assertions


class Broken(AssertionError):
    """The adapter broke an obligation; the message describes what the check observed."""


def expect(condition: object, seen: str) -> None:
    """Raise Broken with ``seen`` unless the condition holds."""
    if not condition:
        raise Broken(seen)


def same(got: Any, wanted: Any, what: str) -> None:
    """Raise Broken, with both values shortened, unless they are equal."""
    expect(got == wanted, f"{what}: got {_short(got)}, expected {_short(wanted)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 500 else f"{text[:500]}..."


E = TypeVar("E", bound=BaseException)


def raises(kind: type[E], action: Callable[[], Any], what: str) -> E:
    """Return the exception of class ``kind`` that an action raises; raise Broken otherwise."""
    try:
        result = action()
    except kind as error:
        return error
    except BaseException as error:
        raise Broken(f"{what}: raised {error!r} instead of {kind.__name__}") from error
    raise Broken(f"{what}: returned {_short(result)} instead of raising {kind.__name__}")


def happened(event: threading.Event, what: str) -> None:
    """Wait for an event that another thread sets. Raise Broken after :data:`MOMENT` seconds."""
    expect(event.wait(MOMENT), f"{what} within {MOMENT:g} s")


def stands_still(count: Callable[[], int]) -> int:
    """Wait until a count no longer changes, and return it.

    Ten equal samples decide, rather than a time: a process that was stopped meanwhile sees time
    pass, and only one sample.
    """
    before, samples = count(), 0
    while samples < 10:
        threading.Event().wait(0.03)
        now = count()
        samples = samples + 1 if now == before else 0
        before = now
    return before


def _held() -> tuple[int, int]:
    """Return the numbers of threads and of file descriptors of this process."""
    gc.collect()
    folders = [folder for folder in (Path("/proc/self/fd"), Path("/dev/fd")) if folder.exists()]
    return threading.active_count(), len(os.listdir(folders[0])) if folders else 0


def stays_the_same(action: Callable[[], None]) -> None:
    """Raise Broken if an action leaks threads or descriptors each time it is done."""
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
