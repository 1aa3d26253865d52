"""The fixtures on blocking I/O."""

from __future__ import annotations

from typing import Any

import sansmcp_blocking

from ..application import Application
from ..scripts import CAPABILITIES, accept
from ..steps import Script, blocking


def serve(port: int) -> None:
    """Serve the application, and print its URL."""
    application = Application(blocking, lambda call, seconds: call.sleep(seconds))
    with sansmcp_blocking.serve(application.app, http=("localhost", port)) as serving:
        application.publish = serving.publish
        print(serving.url, flush=True)
        serving.wait()


def talk(url: str, script: Script, **settings: Any) -> None:
    """Connect, and run a script."""
    settings["request_handlers"] = {"elicitation/create": accept}
    with sansmcp_blocking.connect(url, capabilities=CAPABILITIES, **settings) as client:
        blocking(script)(client)
