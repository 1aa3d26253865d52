"""How a conversation opens: ``initialize``, its answer, ``notifications/initialized``.

The same happens again when the server has forgotten the session (404). Only when the server has
taken the notification are calls sent, so that no request can overtake it.

Source: 2024-11-05 to 2025-11-25, basic/lifecycle: Initialization; 2025-03-26 basic/transports:
Session Management.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...codecs import headers, json
from ...errors import (
    CallError,
    Disconnected,
    InvalidResponse,
    NegotiationFailed,
    RemoteProtocolError,
    RequestTimeout,
)
from ...events import Connected, Violation
from ...messages import ErrorResponse, Message, Request, Response
from ...meta import names_multi_turn, with_multi_turn
from ...revisions import REVISIONS
from ...timers import Timer
from ...types import STREAMABLE_HTTP, Secret
from ..calls import denied, refused
from ..core import ClientCore
from ..detection import (
    MODERN_ERRORS,
    OUT_OF_REACH,
    Probe,
    Verdict,
    after_discover,
    after_initialize,
    nothing_in_common,
)
from ..exchange import Refusal
from ..posts import INITIALIZED
from ..transport import Carrier

if TYPE_CHECKING:
    from ..conversation import Conversation

_METHOD = "initialize"


@attrs.define(eq=False, repr=False)
class Handshake:
    """One attempt to open a session."""

    _core: ClientCore
    _conversation: Conversation
    _offer: str | None = None
    """The version to offer; None: our newest."""
    _is_last: bool = False
    """The server was asked already at a version that it has named itself."""
    _carrier: Carrier = attrs.field(init=False)
    request_id: int = attrs.field(init=False)
    _result: dict[str, Any] = attrs.field(factory=dict[str, Any], init=False)
    why: str = attrs.field(default="no answer", init=False)
    """Why the server has not taken the notification that confirms the session."""

    def start(self) -> None:
        """Send ``initialize``, without a session id."""
        core = self._core
        core.session_id, core.revision, core.has_turns = None, None, False
        self.request_id = core.next_request_id()
        named = core.capabilities
        capabilities = with_multi_turn(named) if self._may_have_turns else named
        params = {
            "protocolVersion": self._offer or core.handshake_versions[-1],
            "capabilities": capabilities,
            "clientInfo": core.info,
        }
        self._carrier = self._conversation.transport.carrier(self, None)
        self._carrier.post(Request(self.request_id, _METHOD, params))
        core.timers.set(Timer.REQUEST, self, self._conversation.opening_ends)

    @property
    def _may_have_turns(self) -> bool:
        return self._core.multi_turn and self._conversation.transport.name == STREAMABLE_HTTP

    def stop(self) -> None:
        """Nobody wants the session any more."""
        self._core.timers.stop(Timer.REQUEST, self)
        self._carrier.close()

    def confirmed(self) -> None:
        """The server has taken the notification: the session is open."""
        self._core.timers.stop(Timer.REQUEST, self)
        assert self._core.revision is not None
        instructions = self._result.get("instructions")
        self._core.events.append(
            Connected(
                transport=self._conversation.transport.name,
                version=self._core.revision.name,
                server_info=json.as_object(self._result.get("serverInfo")) or {},
                capabilities=json.as_object(self._result.get("capabilities")) or {},
                instructions=instructions if isinstance(instructions, str) else None,
            )
        )

    def time_out(self) -> None:
        """The server does not answer.

        Source: basic/utilities/cancellation: ``initialize`` is never cancelled.
        """
        seconds, server = self._core.connect_timeout, self._core.server
        message = f"{_METHOD} got no answer from {server} within {seconds:g} s"
        if self._result:
            message = f"{server} did not take {INITIALIZED.method} within {seconds:g} s: {self.why}"
        printed = self._conversation.transport.printed
        self._fail(
            RequestTimeout(
                message + (":" if printed else ""),
                seconds=seconds,
                method=_METHOD,
                request_id=self.request_id,
                lines=printed,
            )
        )

    def unconfirmed(self, reason: str) -> None:
        """The server does not take the notification that confirms the session."""
        text = f"{self._core.server} did not take {INITIALIZED.method}: {reason}"
        self._fail(self._error(Disconnected, text))

    # What comes of its stream

    @property
    def restarts(self) -> bool:
        """Opening a session twice would leave one behind."""
        return False

    def restart(self) -> None:
        """Never done."""

    def message(self, message: Message) -> None:
        """The answer, or something the server could not wait to say."""
        if self._conversation.is_closed:
            return  # it came in one batch with what has ended the client
        match message:
            case Response(id, result) if id == self.request_id and not self._result:
                self._carrier.close(complete=True)
                self._answered(result)
            case ErrorResponse(id) if id in (self.request_id, None):
                self._denied(message)
            case _:
                self._conversation.inbox.route(message, None)

    def violated(self, error: RemoteProtocolError) -> None:
        """Something that is no message."""
        if not self._conversation.is_closed:
            self._core.events.append(Violation(error))

    def lost(self, reason: str, *, complete: bool = False) -> None:
        """No answer."""
        text = f"{_METHOD} was not answered by {self._core.server}: {reason}"
        self._fail(self._error(Disconnected, text), wait=None if complete else 0.0)

    def refused(self, refusal: Refusal) -> None:
        """No MCP server, or one that does not want us."""
        error = refusal.error
        if error is not None and (error.id == self.request_id or error.code in MODERN_ERRORS):
            self._denied(error, refusal.status)
        else:
            self._fail(
                refused(refusal, _METHOD, self.request_id),
                after_initialize(refusal.status),
                wait=refusal.retry_after if refusal.status in OUT_OF_REACH else None,
            )

    def garbled(self, error: RemoteProtocolError) -> None:
        """An answer that cannot be read."""
        text = f"The answer to {_METHOD} from {self._core.server} breaks the protocol: "
        failure = self._error(InvalidResponse, text + error.message)
        failure.__cause__ = error
        self._fail(failure)

    def _denied(self, error: ErrorResponse, http_status: int | None = None) -> None:
        found = after_discover(error, self._core.versions)
        may_ask = self._conversation.transport.speaks_modern and not self._is_last
        if found.probe is Probe.RETRY and may_ask:  # it was slow to say what it is
            self.stop()
            self._conversation.discover(str(found.version), is_last=True)
            return
        if found.probe is Probe.FAIL and found.is_disjoint:
            self._fail(nothing_in_common(error, self._core.versions, _METHOD))
            return
        self._fail(denied(error, _METHOD, self.request_id, http_status))

    def _answered(self, answer: Any) -> None:
        result = json.as_object(answer) or {}
        version = result.get("protocolVersion")
        if not isinstance(version, str):
            self._fail(self._error(InvalidResponse, "The answer to initialize names no version"))
            return
        if version not in self._core.handshake_versions:
            ours = ", ".join(self._core.handshake_versions)
            self._fail(
                self._error(
                    NegotiationFailed,
                    f"The server speaks protocol version {version[:40]!r}, and not {ours}",
                )
            )
            return
        session_id = headers.single(
            headers.get_all(self._carrier.response_headers, b"mcp-session-id")
        )
        if session_id is not None and not headers.is_session_id(session_id):
            self._fail(
                self._error(InvalidResponse, "The server's session id has illegal characters")
            )
            return
        self._core.session_id = None if session_id is None else Secret(session_id)
        self._core.revision = revision = REVISIONS[version]
        named = names_multi_turn(json.as_object(result.get("capabilities")) or {})
        agreed = named or self._core.assume_multi_turn
        self._core.has_turns = self._may_have_turns and revision.multi_turn and agreed
        self._result = result
        self._conversation.initialized()

    def _fail(
        self, error: CallError, verdict: Verdict = Verdict.NONE, *, wait: float | None = None
    ) -> None:
        self.stop()
        self._conversation.unreachable(error, verdict, wait=wait)

    def _error(self, kind: type[CallError], message: str) -> CallError:
        return kind(message, method=_METHOD, request_id=self.request_id)
