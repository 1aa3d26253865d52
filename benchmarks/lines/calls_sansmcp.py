"""Fifty calls at once, with progress and timeouts: sansmcp, without async."""

import sys

import sansmcp
import sansmcp_blocking

reports: list[object] = []
with sansmcp_blocking.connect(sys.argv[1]) as client:
    calls = [
        client.start_call("tools/call", params, timeout=5, on_progress=reports.append)
        for number in range(50)
        for params in [{"name": "count", "arguments": {"number": number}}]
    ]
    for call in calls:
        try:
            print(call.result()["content"][0]["text"])
        except sansmcp.RequestTimeout:
            print("timed out")
print(len(reports), "reports")
