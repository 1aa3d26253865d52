"""Break the code by a small patch, and see whether a command notices.

A patch is a unified diff with a text before it that says what it breaks. It is applied to a copy of
the project in a temporary folder, and the command runs there. So a trial needs neither git nor a
clean checkout, trials can run side by side, and one that is interrupted leaves the code as it was.

Line numbers are ignored: the lines that a hunk shows must be in its file exactly once. A patch of
which that is not true is stale, and has to be made again (``git diff``).
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

PROJECT = Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "node_modules", "*.egg-info"
)
"""Not copied: environments, caches, built files, and git's own folder."""


MOST_STALE = 10
"""A run goes on with so many stale patches of one folder, and only says which they are."""


class StalePatch(Exception):
    """A patch does not fit the code: the lines that it changes are not there exactly once."""


@attrs.frozen(kw_only=True)
class Hunk:
    """Whole lines of one file, and the lines that take their place."""

    path: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the file's ``text`` with the new lines.

        Raises:
            StalePatch: the old lines are not in it, or more than once.
        """
        whole_lines = re.compile(f"^{re.escape(self.old)}", re.MULTILINE)
        places = [match.span() for match in whole_lines.finditer(text)]
        if len(places) != 1:
            seen = next(line for line in self.old.splitlines() if line.strip()).strip()
            raise StalePatch(f"{self.path} has {len(places)} places like {seen!r}, not one")
        ((begin, end),) = places
        return text[:begin] + self.new + text[end:]


@attrs.frozen(kw_only=True)
class Patch:
    """A way to break the code.

    Attributes:
        name: the name of its file, without the suffix.
        about: the text before the diff: what is broken, and what a user would suffer.
        hunks: the changes.
    """

    name: str
    about: str
    hunks: Sequence[Hunk]

    def patched(self, root: Path = PROJECT) -> Mapping[str, str]:
        """Return the new text of each file that changes, by its path under ``root``.

        Raises:
            StalePatch: a hunk does not fit.
        """
        texts: dict[str, str] = {}
        for hunk in self.hunks:
            path = root / hunk.path
            if hunk.path not in texts:
                texts[hunk.path] = path.read_text("utf-8") if path.is_file() else ""
            texts[hunk.path] = hunk.applied(texts[hunk.path])
        return texts


class Ending(enum.Enum):
    """How a trial ended."""

    STALE = "stale"
    FOUND = "found"
    """The command failed."""
    MISSED = "missed"
    """The command passed."""
    HUNG = "hung"
    """The command had not ended within its time, and was killed."""


@attrs.frozen(kw_only=True)
class Trial:
    """The result of trying one patch.

    Attributes:
        patch: the patch.
        ending: how the trial ended.
        seconds: how long the command took.
        status: the exit status of the command; None if it did not run or was killed. pytest exits
            with 1 if a test failed, and with others if it could not run them.
        output: what the command printed on both streams, or why the patch is stale.
    """

    patch: Patch
    ending: Ending
    seconds: float = 0
    status: int | None = None
    output: str = ""

    def last_lines(self, count: int = 20) -> str:
        """Return the last lines of the output."""
        return "\n".join(self.output.splitlines()[-count:])


def stale(patches: Iterable[Patch], root: Path = PROJECT) -> list[str]:
    """Return why each stale patch does not fit the code, with its name."""
    found: list[str] = []
    for patch in patches:
        try:
            patch.patched(root)
        except StalePatch as error:
            found.append(f"{patch.name}: {error}")
    return found


def read_patches(folder: Path) -> Sequence[Patch]:
    """Return the patches in ``folder``, in the order of their names."""
    return [read_patch(path) for path in sorted(folder.glob("*.patch"))]


def read_patch(path: Path) -> Patch:
    """Return the patch that is in the file ``path``."""
    about: list[str] = []
    hunks: list[tuple[str, list[str]]] = []
    changed = ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("+++ b/"):
            changed = line.removeprefix("+++ b/")
        elif line.startswith("@@ "):
            hunks.append((changed, []))
        elif line.startswith(("--- a/", "diff --git ", "index ")):
            pass
        elif not changed:
            about.append(line)
        else:
            hunks[-1][1].append(line or " ")
    return Patch(
        name=path.stem,
        about="\n".join(about).strip(),
        hunks=tuple(
            Hunk(path=changed, old=_lines(lines, " -"), new=_lines(lines, " +"))
            for changed, lines in hunks
        ),
    )


def _lines(lines: Sequence[str], marks: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[0] in marks)


def attempt(patch: Patch, command: Sequence[str], *, time_limit: float) -> Trial:
    """Run ``command`` on a patched copy of the project, and return what came of it.

    Args:
        patch: what to break.
        command: arguments of this Python, such as ``("-m", "pytest", "-q", "tests/client")``. It
            runs in the folder of the copy, which is also where it imports the packages from.
        time_limit: seconds after which it is killed, with the processes that it has started.
    """
    try:
        texts = patch.patched()
    except StalePatch as error:
        return Trial(patch=patch, ending=Ending.STALE, output=str(error))
    with tempfile.TemporaryDirectory(prefix="sansmcp-patch-") as folder:
        copy = Path(folder).resolve() / "project"
        shutil.copytree(PROJECT, copy, ignore=LEFT_OUT)
        for name, text in texts.items():
            (copy / name).write_text(text, "utf-8")
        _check_imports(copy, texts)
        started = time.monotonic()
        status, output = _run(copy, command, time_limit)
        seconds = time.monotonic() - started
    endings = {None: Ending.HUNG, 0: Ending.MISSED}
    ending = endings.get(status, Ending.FOUND)
    return Trial(patch=patch, ending=ending, seconds=seconds, status=status, output=output)


def _check_imports(copy: Path, changed: Iterable[str]) -> None:
    # An editable installation points to the checkout: a trial there would show nothing. A patch
    # that cannot even be imported would be "found" by everything.
    modules = ["sansmcp", "sansmcp_local", "tests.patches", *map(_module, changed)]
    program = "import importlib, sys\nfor name in sys.argv[1:]: "
    program += "print(importlib.import_module(name).__file__)"
    status, output = _run(copy, ["-c", program, *modules], 60)
    strangers = [line for line in output.splitlines() if not line.startswith(f"{copy}{os.sep}")]
    if status != 0 or strangers:
        raise RuntimeError(f"The patched copy cannot be imported:\n{output}")


def _module(path: str) -> str:
    return path.removeprefix("adapters/").removesuffix(".py").replace("/", ".")


def _run(copy: Path, command: Sequence[str], time_limit: float) -> tuple[int | None, str]:
    path = os.pathsep.join([str(copy), str(copy / "adapters")])
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status = None
        try:
            status = process.wait(time_limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if status is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return status, output.read().decode("utf-8", "replace")


def main() -> int:
    """Print each patch that no longer fits the code, and why; 1 if there is one."""
    from .planted.test_bugs import PATCHES
    from .requirements_proof.rules import patches

    found = [*stale(PATCHES), *stale(patches().values())]
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    from tests import patches  # this file again, by the name that those who raise know

    sys.exit(patches.main())
