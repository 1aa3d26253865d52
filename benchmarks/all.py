"""All benchmarks in at most 15 minutes: ``python -m benchmarks.all [--quick]``.

With ``--quick`` they take two minutes, and only ours and bare ones on asyncio take part, and the
official SDK. Each part stops measuring when its share of the time is over, and names what it has
left out. Numbers of a busy machine are rough: see the spread beside them.

Everything that is printed, and the plots, are written to ``build/bench/index.html``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from html import escape

from . import plot
from .measuring import about_machine

SECONDS, QUICK_SECONDS = 870.0, 110.0
"""For all parts together."""

PARTS: dict[str, tuple[str, str, float]] = {
    "parsers": ("7", "1", 50),
    "plan": ("", "", 1),
    "servers": ("1", "0.1", 15),
    "workers": ("1", "", 4),
    "stdio": ("2000", "200", 10),
    "streams": ("5000", "500", 10),
    "clients": ("0.25", "0.02", 15),
    "tasks": ("20", "", 8),
    "stores": ("2000", "", 10),
    "footprint": ("3", "1", 20),
}
"""For each part its argument, that of the quick way (which leaves out the part that has none), and
its weight when the time is shared out.
"""


def main(*, quick: bool) -> int:
    """Run the parts. Returns the exit status: 1 if one has failed."""
    end = time.monotonic() + (QUICK_SECONDS if quick else SECONDS)
    environment = {**os.environ, "BENCHMARK_QUICK": "1"} if quick else dict(os.environ)
    parts = {
        name: (brief if quick else full, weight)
        for name, (full, brief, weight) in PARTS.items()
        if brief or not quick
    }
    for old in plot.PLOTS.glob("*.svg"):
        old.unlink()  # so that the page has only those of this run
    status = 0
    weights = sum(weight for _, weight in parts.values())
    output: dict[str, str] = {}
    for name, (argument, weight) in parts.items():
        share = max(end - time.monotonic(), 0) * weight / weights
        weights -= weight
        enough = time.monotonic() + 0.7 * share  # what is under way then takes a while to end
        print(f"\n{name}", flush=True)
        start = time.monotonic()
        output[name], failed = run(
            [sys.executable, "-m", f"benchmarks.{name}", *argument.split()],
            {**environment, "BENCHMARK_END": str(enough)},
            end,
        )
        status |= failed
        print(f"{output[name]}\n{name}: {time.monotonic() - start:.0f} s", flush=True)
    plot.BUILD.mkdir(parents=True, exist_ok=True)
    (plot.BUILD / "index.html").write_text(page(about_machine(), output), encoding="utf-8")
    print(f"{plot.BUILD / 'index.html'}")
    return status


def run(command: list[str], environment: dict[str, str], end: float) -> tuple[str, bool]:
    """Run a part, at most until a time of the monotonic clock, and all the servers it starts.

    Returns what it has printed, and whether it has failed.
    """
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=max(end - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return f"{output}\nskipped: the rest: no time left; see {' '.join(command[1:])}", False
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return output, process.returncode != 0


STYLE = """
body { font: 14px sans-serif; margin: 2em auto; max-width: 80em; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { border: 1px solid #ccc; padding: 2px 8px; text-align: left; vertical-align: top; }
.behind { background: #fde8e8; }
"""


def page(about: dict[str, str], output: dict[str, str]) -> str:
    """A page without scripts and other files: the machine, all tables, and all plots."""
    head = table_of([["", ""], *([name, each] for name, each in about.items())])
    parts = [f"<h2>{escape(name)}</h2>\n{as_html(text)}" for name, text in output.items()]
    plots = [each.read_text(encoding="utf-8") for each in sorted(plot.PLOTS.glob("*.svg"))]
    body = "\n".join(["<h1>Benchmarks</h1>", head, *parts, "<h2>Plots</h2>", *plots])
    title = '<meta charset="utf-8"><title>Benchmarks of sansmcp</title>'
    return f"<!doctype html>\n{title}\n<style>{STYLE}</style>\n{body}\n"


def as_html(text: str) -> str:
    """What a part has printed: tables, and lines between them."""
    found: list[str] = []
    for rows, line in re.findall(r"((?:^\|.*\n?)+)|^(.+)$", text, re.MULTILINE):
        if rows:
            lines = [row.strip().strip("|") for row in rows.splitlines()]
            cells = [[cell.strip() for cell in row.split("|")] for row in lines]
            found.append(table_of([row for row in cells if set("".join(row)) != {"-"}]))
        else:
            found.append(f"<p>{escape(line)}</p>")
    return "\n".join(found)


def table_of(rows: list[list[str]]) -> str:
    """A table, whose first row is its head."""
    lines: list[str] = []
    for number, row in enumerate(rows):
        kind = "td" if number else "th"
        cells = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row)
        behind = ' class="behind"' if row[0].startswith("behind: ") else ""
        lines.append(f"<tr{behind}>{cells}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv))
