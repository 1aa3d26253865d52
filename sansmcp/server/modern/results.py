"""The form of results at 2026-07-28, and which messages may precede them.

Source: 2026-07-28 basic: results, caching; multi round-trip requests; server/utilities/logging;
SEP-2549, SEP-2322.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import tasks
from ...codecs import json
from ...errors import LocalProtocolError
from ...input_required import InputRequired
from ...messages import ErrorResponse, Message, Notification, Request, Response
from ...meta_keys import LEVELS, LOG_LEVEL, LOG_MESSAGE, SERVER_INFO, meta_of
from ...revisions import Revision
from ..calls import CallOwner, RunningCall
from ..core import ServerCore
from ..input_checks import check_asking, missing_capabilities, missing_capability

_CACHEABLE = frozenset(
    (
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "skills/get",
        "skills/list",
        "tools/list",
    )
)


class ModernResults:
    """Makes results with ``resultType`` and the server's name in ``_meta``."""

    __slots__ = ()
    _core: ServerCore
    session: CallOwner

    def format_result(self, request: Request, result: Any) -> Response | ErrorResponse:
        """Return the response with a result.

        Raises LocalProtocolError if the revision does not allow the result.
        """
        members = _complete(request, result, self.session.revision)
        if members.get("resultType") == tasks.RESULT_TYPE and self._core.serves_tasks:
            raise LocalProtocolError(
                "A result must not have resultType 'task'; call become_task(), or pass task=... to "
                "handler()"
            )
        return self._with_server(request, members)

    def format_handle(self, request: Request, handle: dict[str, Any]) -> Response:
        """Return the response with the handle of a task."""
        return self._with_server(request, {**handle, "_meta": None})

    def require(
        self, call: RunningCall, required: InputRequired
    ) -> Response | ErrorResponse | bool:
        """Return a result with the input requests, or an error if the client lacks a capability."""
        request, caller = call.request, self.session
        check_asking(request, required)
        if not caller.revision.result_type:
            name = caller.revision.name
            raise LocalProtocolError(f"At revision {name} a result cannot ask for input")
        missing = missing_capabilities(required, caller.client_capabilities)
        if missing:
            return missing_capability(missing, request.id).reply
        return self._with_server(request, _input_required(self._core, request, caller, required))

    def may_send(self, request: Request, message: Message) -> bool:
        """Return False for a log message that the client did not ask for, or below its level."""
        if not isinstance(message, Notification) or message.method != LOG_MESSAGE:
            return True
        wanted, level = meta_of(request).get(LOG_LEVEL), (message.params or {}).get("level")
        return wanted in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)

    def _with_server(self, request: Request, members: dict[str, Any]) -> Response:
        app = self._core.app
        meta = {} if app.anonymous else {SERVER_INFO: app.identity}
        members["_meta"] = meta | (json.as_object(members["_meta"]) or {})
        if not members["_meta"]:
            del members["_meta"]
        return Response(request.id, members)


def _complete(request: Request, result: Mapping[str, Any], revision: Revision) -> dict[str, Any]:
    """Return the members of a result, with ``resultType`` and the fields for caching added."""
    members: dict[str, Any] = {"resultType": "complete"} if revision.result_type else {}
    members["_meta"] = None
    members.update(result)
    kind = members.get("resultType", "complete")
    if kind == "input_required":
        raise LocalProtocolError(
            "A result must not have resultType 'input_required'; return InputRequired"
        )
    if revision.caching and request.method in _CACHEABLE and kind == "complete":
        _check_caching(members.setdefault("ttlMs", 0), members.setdefault("cacheScope", "private"))
    return members


def _check_caching(ttl: Any, scope: Any) -> None:
    if type(ttl) is not int or ttl < 0:
        raise LocalProtocolError(
            f"ttlMs must be a whole number of milliseconds, zero or more, got {ttl!r}"
        )
    if scope not in ("public", "private"):
        raise LocalProtocolError(f"cacheScope must be 'public' or 'private', got {scope!r}")


def _input_required(
    core: ServerCore, request: Request, caller: CallOwner, required: InputRequired
) -> dict[str, Any]:
    members: dict[str, Any] = {"resultType": "input_required", "_meta": None}
    if required.requests:
        members["inputRequests"] = {
            key: {"method": input_request.method, "params": dict(input_request.params)}
            for key, input_request in required.requests.items()
        }
    if required.state is not None or not required.requests:
        members["requestState"] = core.sign_state(required.state, caller.principal, request)
    return members
