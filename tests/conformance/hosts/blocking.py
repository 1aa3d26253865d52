"""The fixtures on blocking I/O."""

from __future__ import annotations

from typing import Any

import sansmcp_blocking

from ..application import Application
from ..scripts import CAPABILITIES, accept
from ..steps import Script, blocking


def serve(port: int) -> None:
    """Serve the application, and print its URL."""
    application = Application(blocking)
    with sansmcp_blocking.serve(application.app, http=("localhost", port)) as serving:
        application.publish = serving.publish
        print(serving.url, flush=True)
        serving.wait()


def talk(url: str, script: Script, *, listen: bool) -> None:
    """Connect, and run a script."""
    settings: Any = {
        "request_handlers": {"elicitation/create": accept},
        "capabilities": CAPABILITIES,
    }
    with sansmcp_blocking.connect(url, standalone_stream=listen, **settings) as client:
        blocking(script)(client)
