"""The suite's scenarios, and a verdict on each that means something.

The suite itself is lenient: a scenario in which nothing was checked passes, and so do warnings. A
server that answers 404 to everything passes four of its scenarios. Here a scenario passes if the
suite's command ends with status 0, something was a success, and nothing a warning or a failure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs

from ..node import NODE, install, require_version

FOLDER = Path(__file__).with_name("node")
REVISIONS = ("2025-11-25", "2026-07-28")
OLDER = ("2025-03-26", "2025-06-18")
"""Revisions of which the suite has a few scenarios of authorization."""

_MAIN = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

_CACHE = FOLDER / "node_modules" / ".cache"
"""Compiled code: compiling the suite is a quarter of what a short scenario takes."""

_NODE = 22
"""The version of Node.js that the suite needs: with an older one it dies of ``globSync``."""

_TIMEOUT = 120.0
"""Seconds for one scenario; the longest takes three on a quiet machine."""

_NOT_REQUIRED = {
    ("server", "2025-11-25"): (
        "json-schema-2020-12",
        "server-session-lifecycle",
        "server-sse-polling",
    ),
    ("server", "2026-07-28"): (
        "http-custom-header-server-validation",
        "http-header-validation",
        "json-schema-2020-12",
    ),
    ("client", "2025-11-25"): ("json-schema-2020-12-preservation",),
    ("client", "2026-07-28"): ("json-schema-2020-12-preservation",),
}
"""Scenarios that the suite reports but does not count, and that are about the wire."""

_OF_TASKS = tuple(
    f"tasks-{name}"
    for name in (
        "capability-negotiation",
        "dispatch-and-envelope",
        "lifecycle",
        "mrtr-composition",
        "mrtr-input",
        "request-headers",
        "request-state-removal",
        "required-task-error",
        "wire-fields",
    )
)
"""Those of the extension, which the suite runs only with ``--force``: an extension belongs to no
revision. A tenth, ``tasks-status-notifications``, is always skipped.
"""


_OF_SKILLS = (
    ("server", "sep-2640-skills-directory"),
    ("server", "sep-2640-skills-enumeration"),
    ("server", "sep-2640-skills-manifest"),
    ("client", "sep-2640-client-no-prefetch"),
    ("client", "sep-2640-client-verify-digest"),
    ("client", "sep-2640-client-verify-frontmatter"),
    ("client", "sep-2640-client-verify-size"),
)
"""Those of skills, an extension of 2026-07-28."""

_EXTENSIONS = (
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
)
"""Scenarios of extensions to authorization."""

_OLDER = (
    ("2025-03-26", "auth/2025-03-26-oauth-endpoint-fallback"),
    ("2025-03-26", "auth/2025-03-26-oauth-metadata-backcompat"),
    ("2025-06-18", "auth/token-endpoint-auth-basic"),
    ("2025-06-18", "auth/token-endpoint-auth-none"),
    ("2025-06-18", "auth/token-endpoint-auth-post"),
)
"""Scenarios of revisions for which the suite requires nothing."""


@attrs.frozen(order=True)
class Scenario:
    """One scenario: for a server or a client, on the wire of one revision."""

    leg: str
    revision: str
    name: str
    is_required: bool = attrs.field(order=False)


@attrs.frozen
class Verdict:
    """How a scenario has ended; without problems it has passed."""

    scenario: Scenario
    seconds: float
    problems: tuple[str, ...]


def scenarios() -> list[Scenario]:
    """All scenarios, as the suite lists them."""
    require_version(_NODE, "The conformance suite")
    install(FOLDER)
    found: list[Scenario] = []
    for revision in REVISIONS:
        listing = _run("list", "--requirements", revision).stdout
        for leg in ("server", "client"):
            section = re.search(rf"^{leg.capitalize()} scenarios.*\n((?:  - .*\n)+)", listing, re.M)
            assert section is not None, listing
            names: list[str] = re.findall(r"- (\S+)", section[1])
            found += [Scenario(leg, revision, name, True) for name in names]
            found += [Scenario(leg, revision, name, False) for name in _NOT_REQUIRED[leg, revision]]
        found += [Scenario("client", revision, name, False) for name in _EXTENSIONS]
    found += [Scenario("server", REVISIONS[-1], name, False) for name in _OF_TASKS]
    found += [Scenario(leg, REVISIONS[-1], name, False) for leg, name in _OF_SKILLS]
    return found + [Scenario("client", revision, name, False) for revision, name in _OLDER]


def judge(scenario: Scenario, peer: tuple[str, ...]) -> Verdict:
    """Run a scenario against a peer.

    Args:
        scenario: which one.
        peer: how the suite reaches it; see :class:`~tests.conformance.peers.Peer`.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = (scenario.leg, *peer, "--scenario", scenario.name)
        try:
            # Without --force the suite skips scenarios of extensions, and calls that a success.
            is_extension = scenario.name in (*_OF_TASKS, *_EXTENSIONS)
            is_extension |= (scenario.leg, scenario.name) in _OF_SKILLS
            forced = ("--force",) if is_extension else ()
            done = _run(*words, "--spec-version", scenario.revision, "-o", folder, *forced)
        except subprocess.TimeoutExpired:
            return Verdict(scenario, _TIMEOUT, ("took too long",))
        checks = [check for path in Path(folder).rglob("checks.json") for check in _read(path)]
    problems = [_tell(check) for check in checks if check["status"] in ("FAILURE", "WARNING")]
    if not any(check["status"] == "SUCCESS" for check in checks):
        problems.append("nothing was a success")
    if done.returncode and not problems:
        problems.append(f"exit status {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return Verdict(scenario, round(time.monotonic() - started, 1), tuple(problems))


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NODE, str(_MAIN), *words],
        env={**os.environ, "NODE_COMPILE_CACHE": str(_CACHE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )


def _read(path: Path) -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = json.loads(path.read_text())
    return checks


def _tell(check: dict[str, Any]) -> str:
    return f"{check['status']} {check['id']}: {check.get('errorMessage', check['description'])}"
