"""The stateless revisions on the server: every request stands alone.

A request carries its version, its client's capabilities and all else that has to be known; headers
repeat parts of it for those on the way who do not read bodies. There are no sessions, no event ids
and no requests of the server. On HTTP the client that goes away has cancelled.

The ladder is the same on all transports, but for the rows about headers. The rows are tried from
top to bottom; their numbers are those of the dispatch table.

Source: 2026-07-28 basic, basic/transports, server/discover; SEP-2575, SEP-2243, SEP-2549.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs

from ..codecs import headers, json, mirrored
from ..codecs.headers import Headers
from ..errors import LocalProtocolError, RemoteProtocolError
from ..events import CallReceived, ClientNotified
from ..messages import (
    ErrorResponse,
    Message,
    Notification,
    Params,
    Request,
    RequestId,
    Response,
)
from ..revisions import REVISIONS, of_era
from ..turns import InputRequired, Turn
from ..types import Era
from . import refusals
from .calls import CLIENT_CAPABILITIES, AnswerForm, Call, Caller
from .core import ServerCore
from .subscriptions import LISTEN, Subscriptions

META = "io.modelcontextprotocol/"
VERSION = META + "protocolVersion"
CAPABILITIES = META + "clientCapabilities"
CLIENT_INFO = META + "clientInfo"
SERVER_INFO = META + "serverInfo"
LOG_LEVEL = META + "logLevel"

DISCOVER = "server/discover"
REMOVED = frozenset(
    ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
)
"""Methods of the handshake revisions that are gone, whatever handlers there are."""

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter that ``Mcp-Name`` repeats."""

CACHEABLE = frozenset(
    (
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        DISCOVER,
    )
)
ASKING = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Methods that may be answered by InputRequired."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def meta_of(message: Message) -> dict[str, Any]:
    """``params._meta``; empty where there is none."""
    params = message.params if isinstance(message, Request | Notification) else None
    return json.as_object((params or {}).get("_meta")) or {}


def is_modern(message: Message, header: str | None = None) -> bool:
    """Whether a message is of this era, by what it says of itself.

    A header alone does not make ``initialize`` modern: clients of several makes send the newest
    version there that they know, with the request that negotiates it.
    """
    if VERSION in meta_of(message):
        return True
    if isinstance(message, Request) and message.method == "initialize":
        return False
    row = REVISIONS.get(header) if header is not None else None
    return row is not None and row.era is Era.MODERN


@attrs.define
class Incoming:
    """A request on its way down the ladder."""

    core: ServerCore
    request: Request
    headers: Headers | None
    """None where the transport has none."""

    @property
    def meta(self) -> dict[str, Any]:
        """What the request says about itself."""
        return meta_of(self.request)

    @property
    def params(self) -> Params:
        """Its parameters."""
        return self.request.params or {}


def meta_complete(incoming: Incoming) -> None:
    """Row 5.3. Source: 2026-07-28 basic: version and capabilities come with every request."""
    version, capabilities = incoming.meta.get(VERSION), incoming.meta.get(CAPABILITIES)
    if not isinstance(version, str) or json.as_object(capabilities) is None:
        what = f"_meta needs {VERSION} (a string) and {CAPABILITIES} (an object)"
        raise refusals.invalid_request_params(what, "meta_required", incoming.request.id)
    if incoming.meta.get(LOG_LEVEL, LEVELS[0]) not in LEVELS:
        what = f"{LOG_LEVEL} is one of {', '.join(LEVELS)}"
        raise refusals.invalid_request_params(what, "unknown_log_level", incoming.request.id)


def headers_mirror(incoming: Incoming) -> None:
    """Row 5.4. Source: 2026-07-28 basic/transports: Request Headers; SEP-2243."""
    if incoming.headers is None:
        return
    request = incoming.request
    repeated = [
        (b"mcp-protocol-version", incoming.meta[VERSION]),
        (b"mcp-method", request.method),
    ]
    if (parameter := NAMED.get(request.method)) is not None:
        repeated.append((b"mcp-name", incoming.params.get(parameter)))
    for name, value in repeated:
        _check_mirrored(incoming.headers, name, value, request.id)


def version_served(incoming: Incoming) -> None:
    """Row 5.5. Source: 2026-07-28 basic/versioning."""
    if incoming.meta[VERSION] not in of_era(incoming.core.versions, Era.MODERN):
        raise refusals.unsupported_version(
            incoming.meta[VERSION], incoming.core.versions, incoming.request.id
        )


def method_known(incoming: Incoming) -> None:
    """Row 5.6: 404, which means nothing else where there are no sessions."""
    method = incoming.request.method
    known = method in incoming.core.app.handlers or method in (DISCOVER, LISTEN)
    if method in REMOVED or not known:
        raise refusals.method_not_found(method, incoming.request.id)


def parameters_mirror(incoming: Incoming) -> None:
    """Row 5.7: the tool parameters that ``x-mcp-header`` names. Source: SEP-2243."""
    schema_of = incoming.core.app.input_schema
    if incoming.headers is None or incoming.request.method != "tools/call" or schema_of is None:
        return
    arguments = json.as_object(incoming.params.get("arguments")) or {}
    schema = schema_of(str(incoming.params.get("name")))
    for header, path in mirrored.parameters(schema or {}).items():
        name = b"mcp-param-" + header.lower().encode()
        value = mirrored.argument_at(arguments, path)
        _check_mirrored(incoming.headers, name, value, incoming.request.id)


LADDER: tuple[tuple[str, Callable[[Incoming], None]], ...] = (
    ("5.3", meta_complete),
    ("5.4", headers_mirror),
    ("5.5", version_served),
    ("5.6", method_known),
    ("5.7", parameters_mirror),
)


@attrs.define(eq=False)
class Modern:
    """What messages of this era mean."""

    _core: ServerCore
    subscriptions: Subscriptions

    def check(self, request: Request, received: Headers | None) -> None:
        """Go down the ladder. Raises RemoteProtocolError: the refusal."""
        incoming = Incoming(self._core, request, received)
        for _, row in LADDER:
            row(incoming)
        if self._core.draining:
            raise refusals.shutting_down(request.id)

    def start(self, request: Request, caller: Caller, answer: AnswerForm) -> None:
        """Start a call, or answer what needs no application."""
        turn = self._turn(request, caller)
        call = Call(self._core, caller, request, answer, turn)
        caller.calls[request.id] = call
        if request.method == DISCOVER:
            call.respond(self._discovered(), now=self._core.now)
        else:
            self._core.events.append(CallReceived(call))
        if answer.open_calls:
            answer.start()

    def notified(self, notification: Notification, caller: Caller) -> None:
        """A notification; what asks for a cancellation is not for here, where ids are anybody's."""
        if notification.method != "notifications/cancelled":
            self._core.events.append(ClientNotified(caller, notification))

    def caller(
        self, message: Message, principal: str, calls: dict[RequestId, Call] | None = None
    ) -> Caller:
        """Who says it, as far as it tells; what others have said before counts for nothing."""
        meta = meta_of(message)
        revision = REVISIONS[of_era(self._core.versions, Era.MODERN)[-1]]
        return Caller(
            principal,
            REVISIONS.get(str(meta.get(VERSION)), revision),
            json.as_object(meta.get(CLIENT_INFO)) or {},
            json.as_object(meta.get(CAPABILITIES)) or {},
            {} if calls is None else calls,
        )

    def _discovered(self) -> dict[str, Any]:
        app = self._core.app
        found: dict[str, Any] = {
            "supportedVersions": list(reversed(self._core.versions)),
            "capabilities": app.declared_capabilities(),
        }
        if app.instructions is not None:
            found["instructions"] = app.instructions
        return found

    def _turn(self, request: Request, caller: Caller) -> Turn:
        """The answers and the state that the client brings back."""
        params = request.params or {}
        answers, sealed = params.get("inputResponses"), params.get("requestState")
        if answers is None and sealed is None:
            return Turn()
        answers = {} if answers is None else json.as_object(answers)
        if answers is None or not isinstance(sealed, str | None):
            what = "inputResponses is an object, and requestState a string"
            raise refusals.invalid_request_params(what, "invalid_params", request.id)
        state = None
        if sealed is not None:
            try:
                state = self._core.open_state(sealed, caller.principal, request)
            except RemoteProtocolError as error:
                error.request_id = request.id
                raise
        return Turn(answers, state)


def shape_result(
    core: ServerCore, request: Request, caller: Caller, result: Any
) -> Response | ErrorResponse:
    """A result with what this revision wants in it. Raises LocalProtocolError if it is no object.

    Source: 2026-07-28 basic: results, caching; SEP-2549, SEP-2322.
    """
    if isinstance(result, InputRequired):
        return _input_required(core, request, caller, result)
    members = _as_object(result)
    members.setdefault("resultType", "complete")
    if request.method in CACHEABLE:
        members.setdefault("ttlMs", 0)
        members.setdefault("cacheScope", "private")
    return Response(request.id, _with_server_info(core, members))


def _input_required(
    core: ServerCore, request: Request, caller: Caller, required: InputRequired
) -> Response | ErrorResponse:
    """Source: 2026-07-28: multi round-trip requests; row 5.8."""
    if request.method not in ASKING:
        raise LocalProtocolError(f"{request.method} cannot be answered by InputRequired")
    for question in required.requests.values():
        if question.method not in CLIENT_CAPABILITIES:
            raise LocalProtocolError(f"A client cannot be asked {question.method!r}")
    missing: dict[str, object] = {
        capability: {}
        for question in required.requests.values()
        for capability in [CLIENT_CAPABILITIES[question.method]]
        if capability not in caller.client_capabilities
    }
    if missing:
        return refusals.missing_capability(missing, request.id).reply
    members: dict[str, Any] = {"resultType": "input_required"}
    if required.requests:
        members["inputRequests"] = {
            key: {"method": question.method, "params": dict(question.params)}
            for key, question in required.requests.items()
        }
    if required.state is not None or not required.requests:
        members["requestState"] = core.close_state(required.state, caller.principal, request)
    return Response(request.id, _with_server_info(core, members))


def _as_object(result: Any) -> dict[str, Any]:
    """A result is an object, or a model of one."""
    dumped = (
        result.model_dump(mode="json", by_alias=True) if hasattr(result, "model_dump") else result
    )
    if not isinstance(dumped, Mapping):
        raise LocalProtocolError(f"A result must be an object, and is {type(result).__name__}")
    return dict(cast("Mapping[str, Any]", dumped))


def _with_server_info(core: ServerCore, members: dict[str, Any]) -> dict[str, Any]:
    meta = json.as_object(members.get("_meta")) or {}
    return {**members, "_meta": {SERVER_INFO: core.app.server_info, **meta}}


def may_say(request: Request, message: Message) -> bool:
    """Log messages only for who wants them, and from the level that it wants.

    Source: 2026-07-28 server/utilities/logging.
    """
    if not isinstance(message, Notification) or message.method != "notifications/message":
        return True
    wanted, level = meta_of(request).get(LOG_LEVEL), (message.params or {}).get("level")
    return wanted in LEVELS and level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)


def _check_mirrored(received: Headers, name: bytes, value: Any, request_id: RequestId) -> None:
    values = headers.get_all(received, name)
    is_needed = bool(values) or mirrored.text_of(value) is not None
    if is_needed and (len(values) != 1 or not mirrored.says(values[0], value)):
        raise refusals.header_mismatch(name.decode(), request_id)
