"""What a call needs beside its own request, told as procedures: generators that are sent answers.

A procedure reads from top to bottom. It yields what the client must do next, and stops there:

* :class:`Ask`: make a request of the client's own. It is sent the answer.
* ``TaskReported``, ``Retry``: wait. It is sent None after the time, or earlier.
* :class:`ToolsListed`: note what was received. It is sent None.
* ``Restart`` or ``Finished``, the last: send the request of the call again, or end the call.

What must outlive a lost session is in :class:`FollowedTask`, not in a local variable: a session
that ends drops the procedure, and the next one starts it again.
"""

from __future__ import annotations

from ..codecs import json
from ..messages import Params, Response
from .outcomes import (
    Ask,
    Finished,
    Kind,
    Procedure,
    Restart,
    TaskOutcome,
    TaskReported,
    ToolsListed,
)
from .task import FollowedTask

_MAX_PAGES = 100
"""The number of pages of a list of tools to fetch when the headers of a tool are looked up."""


def list_tools() -> Procedure:
    """Fetch the list of tools, then repeat the call whose headers were refused.

    The server may have changed its tools since they were listed. The call is repeated even if the
    list cannot be fetched. Source: 2026-07-28 basic/transports: Custom Headers; SEP-2243.
    """
    params: Params = {}
    for _ in range(_MAX_PAGES):
        answer = yield Ask(Kind.TOOLS, "tools/list", params)
        if not isinstance(answer, Response):
            break
        yield ToolsListed(answer.result)
        cursor = (json.as_object(answer.result) or {}).get("nextCursor")
        if not isinstance(cursor, str) or params == {"cursor": cursor}:
            break  # it is the last page, or the server ignores cursors
        params = {"cursor": cursor}
    yield Restart()


def follow_task(task: FollowedTask, wait: float | None) -> Procedure:
    """Ask for the state of a task, and send input responses to it, until it has ended.

    Args:
        task: what is known of it.
        wait: the seconds until the first request; None to make it at once.

    Source: extension ``io.modelcontextprotocol/tasks`` of 2026-07-28; SEP-2663.
    """
    outcome: TaskOutcome | None = None if wait is None else TaskReported(wait)
    while not isinstance(outcome, Finished):
        if outcome is not None:
            yield outcome
        method, params = task.next_request()
        answer = yield Ask(Kind.TASK, method, params)
        assert answer is not None
        outcome = task.on_answer(method, answer)
    yield outcome
