"""The stateless revisions on the server: every request stands alone.

A request carries its version and its client's capabilities. Headers repeat parts of it for proxies,
which do not read bodies. There are no sessions, no event ids and no server requests. On HTTP a
client cancels a call by closing the connection.

The validators are the same on all transports, except for those of headers. They run in the order
of their table, as those of ``..validation``.

Source: 2026-07-28 basic, basic/transports, server/discover; SEP-2575, SEP-2243, SEP-2549.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ... import tasks
from ...codecs import headers, json, mirrored
from ...events import CallReceived, ClientNotified
from ...http import RequestHead
from ...input_required import FIRST_INPUT, INPUT_RESPONSES, REQUEST_STATE, HandlerInput
from ...messages import Message, Notification, Params, Request, RequestId
from ...meta_keys import (
    CAPABILITIES,
    LEVELS,
    LISTEN,
    LOG_LEVEL,
    NAMED,
    PROTOCOL_VERSION,
    SERVER_INFO,
    VERSION,
    meta_of,
)
from ...reclaim import EXTENSION
from ...revisions import REVISIONS, Revision, of_era
from ...states import REFUSING
from ...types import Era
from .. import refusals
from ..calls import CallOwner, Responder, RunningCall
from ..core import ServerCore
from ..input_checks import ASKING
from ..keyed_calls import KeyedCalls
from .subscriptions import ListenerStream, Subscriptions
from .task_listening import TaskListening
from .task_requests import TaskRequest
from .task_table import TaskTable, require_declaration

DISCOVER = "server/discover"
REMOVED = frozenset(
    ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
)
"""Methods of the handshake revisions that are gone, whatever handlers there are."""


@attrs.define
class ModernRequestContext:
    """A request for the validators."""

    core: ServerCore
    request: Request
    head: RequestHead | None
    """The head of the HTTP request; None on stdio."""
    params: Params
    """The parameters of the request; empty if it has none."""
    meta: Mapping[str, Any]
    """The member ``_meta`` of the parameters."""
    revision: Revision | None
    """The revision that the request names; None if it is not served."""
    has_key: bool = False
    """True if it has a key of ``sansmcp/reclaim``, and the server serves that."""


def validate_meta(context: ModernRequestContext) -> None:
    """Refuse a request without version or capabilities, or with an unknown log level.

    Source: 2026-07-28 basic: version and capabilities come with every request.
    """
    version, capabilities = context.meta.get(VERSION), context.meta.get(CAPABILITIES)
    if not isinstance(version, str) or not json.is_object(capabilities):
        what = f"_meta needs {VERSION} (a string) and {CAPABILITIES} (an object)"
        raise refusals.META_REQUIRED(context.request.id, what=what)
    if context.meta.get(LOG_LEVEL, LEVELS[0]) not in LEVELS:
        what = f"{LOG_LEVEL} is one of {', '.join(LEVELS)}"
        raise refusals.UNKNOWN_LOG_LEVEL(context.request.id, what=what)


def validate_mirrored_headers(context: ModernRequestContext) -> None:
    """Refuse headers that differ from the body.

    The requests of the tasks extension may leave out ``Mcp-Name``: no rule makes the server refuse
    that, and fastmcp-tasks 4.1 (November 2026) does not send it.

    Source: 2026-07-28 basic/transports: Request Headers; SEP-2243; SEP-2663.
    """
    if context.head is None:
        return
    head, request, revision = context.head, context.request, context.revision
    if revision is None:  # its headers are unknown: those that the client has sent must match
        has_version = bool(head.values(PROTOCOL_VERSION))
        has_method, has_name = bool(head.values(b"mcp-method")), bool(head.values(b"mcp-name"))
    else:
        has_version = revision.version_header
        has_method = has_name = revision.mirrored_headers
        if request.method in tasks.METHODS:
            has_name = bool(head.values(b"mcp-name"))
    if has_version:
        _check_literal(head, PROTOCOL_VERSION, context.meta[VERSION], request.id)
    if has_method:
        _check_literal(head, b"mcp-method", request.method, request.id)
    if has_name and (parameter := NAMED.get(request.method)) is not None:
        _check_mirrored(head, b"mcp-name", context.params.get(parameter), request.id)


def validate_version(context: ModernRequestContext) -> None:
    """Refuse a version that is not served. Source: 2026-07-28 basic/versioning."""
    if context.revision is None:
        raise refusals.unsupported_version(
            context.meta[VERSION], context.core.options.versions, context.request.id
        )


def validate_method(context: ModernRequestContext) -> None:
    """Refuse an unknown method. The status 404 is unambiguous, because there are no sessions."""
    method = context.request.method
    if method == LISTEN:
        assert context.revision is not None
        known = context.revision.listen
    elif method.startswith("tasks/") and context.core.serves_tasks:
        known = method in tasks.METHODS
    elif method == EXTENSION:
        known = context.has_key
    else:
        known = method == DISCOVER or context.core.app.handler_of(method) is not None
    if method in REMOVED or not known:
        raise refusals.METHOD_UNSUPPORTED(context.request.id, method=method[:100])


def validate_mirrored_arguments(context: ModernRequestContext) -> None:
    """Refuse headers that differ from the arguments of a tool (``x-mcp-header``).

    Source: SEP-2243.
    """
    if context.head is None or context.request.method != "tools/call":
        return
    assert context.revision is not None
    if not context.revision.mirrored_headers:
        return
    try:
        name = str(context.params.get("name"))
        mirroring = context.core.app.mirrored_headers(name, mirrored.parameters)
    except ValueError as error:
        raise refusals.BAD_TOOL(context.request.id, what=str(error)) from None
    if not mirroring:
        return
    arguments = json.as_object(context.params.get("arguments")) or {}
    for header, path in mirroring.items():
        header_name = b"mcp-param-" + header.lower().encode()
        value = mirrored.argument_at(arguments, path)
        _check_mirrored(context.head, header_name, value, context.request.id)


VALIDATORS: tuple[Callable[[ModernRequestContext], None], ...] = (
    validate_meta,
    validate_mirrored_headers,
    validate_version,
    validate_method,
    validate_mirrored_arguments,
)


@attrs.define(eq=False, repr=False)
class ModernServer:
    """Handles the messages of this era, on every transport."""

    _core: ServerCore
    subscriptions: Subscriptions
    tasks: TaskTable
    _keyed_calls: KeyedCalls | None

    def check(
        self,
        request: Request,
        received: RequestHead | None,
        meta: Mapping[str, Any],
        *,
        has_key: bool = False,
        is_known: bool = False,
    ) -> None:
        """Run the validators. Raises RemoteProtocolError for a refusal.

        Args:
            request: the request.
            received: the head of the HTTP request; None on stdio.
            meta: the member ``_meta``.
            has_key: True if it has a key, and the server serves that.
            is_known: True if the key is known: the request starts nothing, and is also served
                while the server stops.
        """
        version = meta.get(VERSION)
        revision = REVISIONS[version] if version in self._core.modern_versions else None
        context = ModernRequestContext(
            self._core, request, received, request.params or {}, meta, revision, has_key
        )
        for validate in VALIDATORS:
            validate(context)
        if self._core.state in REFUSING and not is_known:
            raise refusals.SHUTTING_DOWN(request.id)

    def start(self, request: Request, caller: CallOwner, responder: Responder) -> None:
        """Start a call. The server itself responds to ``server/discover`` and to ``tasks/...``.

        Raises RemoteProtocolError for a refusal.
        """
        handler_input = self._handler_input(request, caller)
        is_about_task = self.is_about_task(request)
        is_ours = request.method == DISCOVER or is_about_task
        if is_about_task:
            require_declaration(caller.client_capabilities, request.id)
        call = RunningCall(
            self._core, caller, request, responder, handler_input, is_reported=not is_ours
        )
        if request.method == "tools/call" and self._core.serves_tasks:
            call.task_plan = self.tasks.plan(call)
        caller.begin(call)
        self._core.stateless[call] = None
        if request.method == DISCOVER:
            call.respond(self._discovered(is_http=responder.head is not None), now=self._core.now)
        elif is_ours:
            TaskRequest.start(self._core, self.tasks, call, responder.head)
        else:
            self._core.events.append(CallReceived(call))
        if responder.open_calls:
            responder.start()
        if call.task_plan is not None:
            call.await_task()

    def is_about_task(self, request: Request) -> bool:
        """Return True for a request about a task, to which the server itself responds."""
        return request.method in tasks.METHODS and self._core.serves_tasks

    def listen(
        self,
        request: Request,
        meta: Mapping[str, Any],
        principal: str,
        stream: ListenerStream,
        client: str = "",
    ) -> None:
        """Open a subscription. Raises RemoteProtocolError for a refusal.

        ``client``: the principal or address; empty if neither is known.
        """
        self.subscriptions.check_room(request, client)
        honoured = self.subscriptions.filter_of(request)
        wanted = (request.params or {})["notifications"].get(tasks.TASK_IDS)
        if wanted is None or not self._core.serves_tasks:
            self.subscriptions.begin(request, honoured, stream, client)
            return
        require_declaration(json.as_object(meta.get(CAPABILITIES)) or {}, request.id)
        TaskListening.start(
            self._core, self.tasks, self.subscriptions, request, honoured, principal, stream, client
        )

    def serves(self, message: Message) -> bool:
        """Return True if the message names a version that is served, or none."""
        meta = meta_of(message)
        return VERSION not in meta or meta[VERSION] in self._core.modern_versions

    def receive_notification(self, notification: Notification, principal: str) -> None:
        """Report a notification to the application.

        A cancellation is ignored: without sessions, its id could be that of another client's call.
        """
        if notification.method != "notifications/cancelled":
            newest = self._core.modern_versions[-1]
            caller = CallOwner.of_meta(meta_of(notification), principal, newest)
            self._core.events.append(ClientNotified(caller, notification))

    def _discovered(self, *, is_http: bool) -> dict[str, Any]:
        app = self._core.app
        found: dict[str, Any] = {
            "supportedVersions": list(reversed(self._core.options.versions)),
            "capabilities": app.declared_capabilities(),
        }
        if not app.anonymous:
            found["_meta"] = {SERVER_INFO: app.server_info}
        if self._core.serves_tasks:
            capabilities = found["capabilities"]
            capabilities.pop("tasks", None)  # that of 2025-11-25, which is another protocol
            extensions = json.as_object(capabilities.get("extensions")) or {}
            capabilities["extensions"] = {**extensions, tasks.EXTENSION: {}}
        if self._keyed_calls is not None and is_http:
            self._keyed_calls.declare(found["capabilities"])
        if app.instructions is not None:
            found["instructions"] = app.instructions
        return found

    def _handler_input(self, request: Request, caller: CallOwner) -> HandlerInput:
        """Return the input responses and the saved state in a request."""
        params = request.params or {}
        given, signed = params.get(INPUT_RESPONSES), params.get(REQUEST_STATE)
        if request.method not in ASKING or (given is None and signed is None):
            return FIRST_INPUT
        responses = json.as_object({} if given is None else given)
        if responses is None or any(json.as_object(each) is None for each in responses.values()):
            what = "inputResponses is an object of results, which are objects"
            raise refusals.INVALID_MODERN_PARAMS(request.id, what=what)
        if signed is None:
            return HandlerInput(responses)
        if not isinstance(signed, str):
            what = "requestState is a string"
            raise refusals.INVALID_MODERN_PARAMS(request.id, what=what)
        return HandlerInput(responses, self._core.verify_state(signed, caller.principal, request))


def check_notification(
    notification: Notification, received: RequestHead, served: tuple[str, ...]
) -> None:
    """Check the version of a notification. Raises RemoteProtocolError for a refusal."""
    header = headers.single(received.values(PROTOCOL_VERSION)) or ""
    version = str(meta_of(notification).get(VERSION, header))
    revision = REVISIONS[version] if version in of_era(served, Era.MODERN) else None
    if revision is None:  # without any version the header is what is missing
        if not version or received.values(PROTOCOL_VERSION):
            _check_literal(received, PROTOCOL_VERSION, version, None)
        raise refusals.unsupported_version(version, served)
    if revision.version_header:
        _check_literal(received, PROTOCOL_VERSION, version, None)


def _check_literal(
    received: RequestHead, name: bytes, value: str, request_id: RequestId | None
) -> None:
    """Refuse a header that is not exactly ``value``. Clients send these without encoding."""
    values = received.values(name)
    if len(values) != 1 or values[0].strip(b" \t") != value.encode():
        raise refusals.HEADER_MISMATCHED(request_id, header=name.decode())


def _check_mirrored(received: RequestHead, name: bytes, value: Any, request_id: RequestId) -> None:
    values = received.values(name)
    if value is None and not values:
        return
    if len(values) != 1 or not mirrored.header_matches(values[0].strip(b" \t"), value):
        raise refusals.HEADER_MISMATCHED(request_id, header=name.decode())
