"""A server on stdio for the tests: ``python stdio_server.py SETTINGS``, as JSON, of serve()."""

from __future__ import annotations

import json
import sys
from typing import Any

import sansmcp
import sansmcp_blocking
from sansmcp_blocking import Call

app = sansmcp.App("stdio-tests", "1")


@app.handler("tools/call")
def call_tool(call: Call) -> Any:
    print("printed")
    return {"echo": call.params["arguments"]}


if __name__ == "__main__":
    with sansmcp_blocking.serve(app, stdio=True, **json.loads(sys.argv[1])) as serving:
        serving.wait()
