"""A server on stdio for the tests: ``python stdio_server.py SETTINGS``, as JSON, of serve().

With ``"threads": true`` it reads and writes its streams by threads, as on Windows.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import sansmcp
import sansmcp_blocking
from sansmcp_blocking import Call
from sansmcp_blocking._stdio import PipedStdioStream

NAME = "stdio_stream"
"""The function that chooses how the streams are read and written."""

app = sansmcp.App("stdio-tests", "1")


@app.handler("tools/call")
def call_tool(call: Call) -> Any:
    print("printed")
    return {"echo": call.params["arguments"]}


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    if settings.pop("threads", False):
        setattr(importlib.import_module("sansmcp_blocking._server"), NAME, PipedStdioStream)
    with sansmcp_blocking.serve(app, stdio=True, **settings) as serving:
        serving.wait()
