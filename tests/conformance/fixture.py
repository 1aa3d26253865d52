"""The application, or a client of it, on one adapter; the suite's runner starts this.

python -m tests.conformance.fixture server trio       # prints its URL
python -m tests.conformance.fixture client trio URL   # the scenario is in the environment
"""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    leg, adapter, *rest = sys.argv[1:]
    host = importlib.import_module(f"{__package__}.hosts.{adapter}")
    if leg == "server":
        host.serve(0)
    else:
        from .scripts import QUIET, SCRIPTS

        scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
        host.talk(rest[0], SCRIPTS[scenario], listen=scenario not in QUIET)
