"""Asking the client for input: what a handler returns instead of a result, and how it goes on.

A handler that needs an answer of the user (elicitation), of the client's model (sampling) or of the
client (roots) returns :class:`InputRequired`, and is done. When the answers are there the handler
is entered again, with the answers and with what it saved: that is its next turn.

How that travels depends on the revision. At the stateless ones the questions are the result, and
the client makes the request again with the answers. In between nothing is held anywhere: what the
handler saved travels with the client, sealed, so any instance of the server can go on. At the older
ones the questions are requests of the server, and the request of the client stays open.

Source: 2026-07-28 basic/utilities: multi round-trip requests; SEP-2322.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from .codecs import json
from .codecs.jsonrpc import check_call
from .errors import (
    JsonRpcError,
    LocalProtocolError,
    RemoteProtocolError,
    check_positive_seconds,
    check_type,
)
from .messages import ErrorResponse, Params, Response

INPUT_RESPONSES = "inputResponses"
REQUEST_STATE = "requestState"
ROUND_PARAMS = (INPUT_RESPONSES, REQUEST_STATE)
"""Parameters that belong to a round, and not to the request."""


@attrs.frozen
class InputRequest:
    """A question: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.

    Raises LocalProtocolError for a method that is no string, or params that are no object.
    """

    method: str
    params: Params = attrs.field(factory=dict[str, Any])

    def __attrs_post_init__(self) -> None:
        check_call(self.method, self.params)


@attrs.frozen
class InputRequired:
    """What a handler returns that cannot go on without answers.

    Attributes:
        requests: the questions, by names of the handler's choice.
        state: any JSON value; the handler finds it again when it is entered with the answers. It
            may travel with the client: nobody can change it, but do not put secrets into it.

    Raises LocalProtocolError for requests of another kind.
    """

    requests: Mapping[str, InputRequest] = attrs.field(factory=dict[str, InputRequest])
    state: Any = None

    def __attrs_post_init__(self) -> None:
        check_type(Mapping, requests=self.requests)
        for name, question in self.requests.items():
            check_type(InputRequest, **{f"The question {name!r}": question})


@attrs.frozen(eq=False)
class InputResponses(Mapping[str, Any]):
    """What the client has answered, by the names of the questions.

    To get one that is an error raises that error, JsonRpcError: a handler that does not care ends
    its call with it. At the stateless revisions there are none, for the client ends the call.
    """

    _answers: Mapping[str, Response | ErrorResponse]

    def __getitem__(self, name: str) -> Any:
        answer = self._answers[name]
        if isinstance(answer, ErrorResponse):
            raise JsonRpcError(answer.code, answer.message, answer.data)
        return answer.result

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)


@attrs.frozen
class HandlerInput:
    """With what a handler is entered."""

    input_responses: Mapping[str, Any] = MappingProxyType({})
    """The results that the client gives, by the names of the questions; see :class:`Answers`."""
    state: Any = None
    """What the handler saved."""


FIRST_INPUT = HandlerInput()
"""With what any handler is entered the first time."""


def _is_key(key: object) -> bool:
    return isinstance(key, bytes) and len(key) >= 16


@attrs.frozen(kw_only=True)
class StateSigner:
    """Seals what travels with the client, so that nobody else can use or change it.

    A seal binds the state to who asks and to the request (method and parameters), and expires.

    Attributes:
        keys: secrets of at least 16 bytes, the same in all instances of a server. The first one
            seals; all of them are recognised, so that keys can be changed.
        clock: seconds since 1970, e.g. ``time.time``: instances have to agree on it.
        lifetime: seconds after which a state is refused.
        claim_once: is asked with the name of a state that has come back whether that is for the
            first time; it remembers names for ``lifetime`` seconds, for all instances. None: a
            state may be used until it expires, so that a request that got lost can be made again.

    Raises LocalProtocolError for keys that are of no use, and for a lifetime not above zero.
    """

    keys: tuple[bytes, ...] = attrs.field(repr=False)
    clock: Callable[[], float]
    lifetime: float = 600.0
    claim_once: Callable[[str], bool] | None = None

    def __attrs_post_init__(self) -> None:
        if not self.keys or not all(map(_is_key, self.keys)):
            raise LocalProtocolError("A seal needs a tuple of keys, each at least 16 bytes")
        check_positive_seconds(self.lifetime)

    def sign(self, state: Any, principal: str, method: str, params: Params, *, name: str) -> str:
        """Seal a state, under a name of its own. Raises LocalProtocolError if it is not JSON."""
        content = json.encode([self.clock() + self.lifetime, name, state])
        tag = _tag(self.keys[0], content, principal, method, params)
        return base64.urlsafe_b64encode(tag + content).decode()

    def verify(self, sealed: str, principal: str, method: str, params: Params) -> Any:
        """The state. Raises RemoteProtocolError for one that cannot be used, or no longer."""
        try:
            raw = base64.b64decode(sealed.encode(), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _refused("it was not made here") from None
        tag, content = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        known = (_tag(key, content, principal, method, params) for key in self.keys)
        if not any(hmac.compare_digest(tag, expected) for expected in known):
            raise _refused("it was not made here, or not for this request")
        expires, name, state = json.decode(content, max_depth=500)
        if self.clock() >= expires:
            raise _refused("it has expired")
        if self.claim_once is not None and not self.claim_once(name):
            raise _refused("it was used before")
        return state


_TAG_BYTES = 32


def _tag(key: bytes, content: bytes, principal: str, method: str, params: Params) -> bytes:
    salient = {
        name: value for name, value in params.items() if name not in (*ROUND_PARAMS, "_meta")
    }
    about = json.encode_sorted([principal, method, salient])
    return hmac.digest(key, hashlib.sha256(about).digest() + content, "sha256")


def _refused(why: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"The requestState cannot be used: {why}; make the request again without it",
        reason="bad_request_state",
        jsonrpc_code=-32602,
    )
