"""How a client finds out whether a server does without a handshake: ``server/discover``.

The answer, or its absence, decides between the eras, by the table in :mod:`..detection`. Old
servers answer in every possible way, or not at all: all of that means that a handshake is needed.

Source: 2026-07-28 basic/versioning; SEP-2575.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from ...codecs import json
from ...errors import (
    CallError,
    Disconnected,
    NegotiationFailed,
    RemoteProtocolError,
)
from ...events import Connected, Violation
from ...messages import ErrorResponse, Message, Request, Response
from ...meta import SERVER_INFO
from ...revisions import REVISIONS
from ...timers import Timer
from ..calls import denied, refused
from ..core import ClientCore
from ..detection import (
    MODERN_ERRORS,
    OUT_OF_REACH,
    UNDECIDED,
    Finding,
    Probe,
    Verdict,
    after_discover,
    listed,
    nothing_in_common,
)
from ..exchange import Refusal
from ..transport import Carrier

if TYPE_CHECKING:
    from ..conversation import Conversation

_METHOD = "server/discover"


@attrs.define(eq=False, repr=False)
class Discovery:
    """One question to a server about which version it speaks."""

    _core: ClientCore
    _conversation: Conversation
    _version: str
    _is_last: bool = False
    """A server has named this version already: there is no second try."""
    _carrier: Carrier = attrs.field(init=False)
    request_id: int = attrs.field(init=False)

    def start(self) -> None:
        """Ask."""
        core = self._core
        core.session_id, core.revision = None, REVISIONS[self._version]
        self.request_id = core.next_request_id()
        self._carrier = self._conversation.transport.carrier(self, None)
        self._carrier.post(Request(self.request_id, _METHOD, None))
        core.timers.set(Timer.REQUEST, self, core.now + core.probe_timeout)

    def stop(self) -> None:
        """The answer is not wanted any more."""
        self._core.timers.stop(Timer.REQUEST, self)
        self._carrier.close()

    def time_out(self) -> None:
        """Old servers may say nothing at all to what they do not know."""
        self._conversation.asked_in_vain()
        self._is_old(f"{_METHOD} got no answer within {self._core.probe_timeout:g} s")

    # What comes of it

    @property
    def restarts(self) -> bool:
        """It is made once."""
        return False

    def restart(self) -> None:
        """Never done."""

    def message(self, message: Message) -> None:
        """The answer, or something the server could not wait to say."""
        match message:
            case Response(id, result) if id == self.request_id:
                found = after_discover(result, self._core.versions)
                if found.probe is Probe.MODERN:
                    self._carrier.close(complete=True)
                    self._adopt(str(found.version), json.as_object(result) or {})
                else:
                    self._decide(found, _told(result))
            case ErrorResponse(id) if id == self.request_id or type(id) is not int:
                self._failed(message)
            case _:
                self._conversation.inbox.route(message, None)

    def violated(self, error: RemoteProtocolError) -> None:
        """Something that is no message."""
        self._core.events.append(Violation(error))

    def lost(self, reason: str, *, complete: bool = False) -> None:
        """A server out of reach says nothing about itself; one that does not answer is old."""
        if complete:
            self._is_old(f"{_METHOD} was not answered")
            return
        text = f"{_METHOD} was not answered by {self._core.server}: {reason}"
        self._give_up(Disconnected(text, method=_METHOD, request_id=self.request_id), wait=0.0)

    def refused(self, refusal: Refusal) -> None:
        """A refusal with an error of this era says something; after others a handshake is tried.

        Where any server could refuse like that, it says nothing about this one: if the handshake
        works, it is not remembered, and if there can be none, the refusal is what is reported.
        """
        wait = refusal.retry_after if refusal.status in OUT_OF_REACH else None
        decides_nothing = refusal.status in UNDECIDED or refusal.status >= 500
        if refusal.error is not None and refusal.error.code in MODERN_ERRORS:
            self._failed(refusal.error, refusal.status)
        elif wait or (decides_nothing and not self._core.handshake_versions):
            self._give_up(refused(refusal, _METHOD, self.request_id), wait=wait)
        else:
            self._conversation.era_is_sure = not decides_nothing
            self._is_old(refusal.message)

    def garbled(self, error: RemoteProtocolError) -> None:
        """An answer that cannot be read comes from an old server."""
        self._is_old(f"the answer to {_METHOD} breaks the protocol: {error.message}")

    def _failed(self, error: ErrorResponse, status: int | None = None) -> None:
        found = after_discover(error, self._core.versions)
        if found.probe is Probe.RETRY and self._is_last:
            found = Finding(Probe.FAIL)
        if found.probe is not Probe.FAIL:
            self._decide(found, f"{error.message} (code {error.code})")
            return
        if found.is_disjoint:
            self._give_up(nothing_in_common(error, self._core.versions, _METHOD))
            return
        self._give_up(denied(error, _METHOD, self.request_id, status))

    def _is_old(self, said: str) -> None:
        self._decide(Finding(Probe.HANDSHAKE), said)

    def _decide(self, found: Finding, said: str) -> None:
        """Go on. ``said``: what the server has said, for a client that cannot."""
        if found.probe is Probe.HANDSHAKE and not self._core.handshake_versions:
            ours = ", ".join(self._core.versions)
            text = f"The server needs a handshake, which {ours} does without: {said}"
            self._give_up(NegotiationFailed(text, method=_METHOD, request_id=self.request_id))
            return
        self.stop()
        self._core.revision = None
        if found.probe is Probe.RETRY:
            self._conversation.discover(str(found.version), is_last=True)
        else:
            self._conversation.shake_hands(found.version)

    def _give_up(self, error: CallError, *, wait: float | None = None) -> None:
        self.stop()
        self._core.revision = None
        self._conversation.unreachable(error, Verdict.NONE, wait=wait)

    def _adopt(self, version: str, result: dict[str, Any]) -> None:
        self._core.timers.stop(Timer.REQUEST, self)
        self._core.revision = REVISIONS[version]
        meta = json.as_object(result.get("_meta")) or {}
        info = json.as_object(meta.get(SERVER_INFO)) or json.as_object(result.get("serverInfo"))
        instructions = result.get("instructions")
        self._core.events.append(
            Connected(
                transport=self._conversation.transport.name,
                version=version,
                server_info=info or {},
                capabilities=json.as_object(result.get("capabilities")) or {},
                instructions=instructions if isinstance(instructions, str) else None,
            )
        )
        self._conversation.discovered()


def _told(result: Any) -> str:
    """What a result says about versions that are not ours."""
    versions = listed((json.as_object(result) or {}).get("supportedVersions"))
    return f"it speaks {versions}" if versions else f"the answer to {_METHOD} names no version"
