"""The application, or a client of it, on one adapter; the suite's runner starts this.

python -m tests.conformance.fixture server trio       # prints its URL
python -m tests.conformance.fixture client trio URL   # the scenario is in the environment
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import nullcontext

import pytest

from sansmcp.errors import AuthorizationFailed

if __name__ == "__main__":
    leg, adapter, *rest = sys.argv[1:]
    host = importlib.import_module(f"{__package__}.hosts.{adapter}")
    if leg == "server":
        host.serve(0)
    else:
        from .authorization import REFUSED, authorization_for
        from .scripts import QUIET, SCRIPTS, TEST_TOOL

        scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
        if not scenario.startswith("auth/"):
            host.talk(rest[0], SCRIPTS[scenario], standalone_stream=scenario not in QUIET)
        else:
            settings = {"authorization": authorization_for(scenario), "standalone_stream": False}
            must_fail = scenario in REFUSED
            with pytest.raises(AuthorizationFailed) if must_fail else nullcontext():
                host.talk(rest[0], TEST_TOOL, **settings)
