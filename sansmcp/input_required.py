"""Input requests: what a handler returns to get input from the client before its result.

A handler that needs input from the user (elicitation), the client's model (sampling) or the client
(roots) returns :class:`InputRequired`. When the input responses have arrived, the server calls the
handler again, with them and with the state that it saved. That is one round.

The messages depend on the revision. At 2026-07-28 the input requests are the result, and the client
repeats its request with the input responses. The server keeps nothing in between: the saved state
travels with the client, signed, so any instance of the server can continue. At the handshake
revisions the input requests are server requests, and the request of the client stays open.

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
from .types import Value

INPUT_RESPONSES = "inputResponses"
REQUEST_STATE = "requestState"
ROUND_PARAMS = (INPUT_RESPONSES, REQUEST_STATE)
"""Parameters that belong to a round, and not to the request."""


@attrs.frozen(eq=False, repr=False)
class InputRequest(Value):
    """An input request: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.

    Raises:
        LocalProtocolError: ``method`` is not a string, or ``params`` are not an object.
    """

    method: str
    params: Params = attrs.field(factory=lambda: {})

    def __attrs_post_init__(self) -> None:
        check_call(self.method, self.params)


@attrs.frozen(eq=False, repr=False)
class InputRequired(Value):
    """The return value of a handler that needs input before it can continue.

    Attributes:
        requests: the input requests, by names that the handler chooses.
        state: any JSON value; the next call of the handler gets it with the input responses. At
            2026-07-28 it travels with the client, signed but not encrypted: do not put secrets
            into it.

    Raises:
        LocalProtocolError: ``requests`` is not a mapping to InputRequest.
    """

    requests: Mapping[str, InputRequest] = attrs.field(factory=lambda: {})
    state: Any = None

    def __attrs_post_init__(self) -> None:
        check_type(Mapping, requests=self.requests)
        for name, request in self.requests.items():
            check_type(InputRequest, **{f"requests[{name!r}]": request})


@attrs.frozen(eq=False)
class InputResponses(Mapping[str, Any]):
    """The input responses of the client, by the names of the input requests.

    Looking up an error response raises it as JsonRpcError, which ends the call unless the handler
    catches it. At 2026-07-28 there are no error responses: the client ends the call instead.
    """

    _responses: Mapping[str, Response | ErrorResponse]

    def __getitem__(self, name: str) -> Any:
        response = self._responses[name]
        if isinstance(response, ErrorResponse):
            raise JsonRpcError(response.code, response.message, response.data)
        return response.result

    def __iter__(self) -> Iterator[str]:
        return iter(self._responses)

    def __len__(self) -> int:
        return len(self._responses)


@attrs.frozen(eq=False, repr=False)
class HandlerInput(Value):
    """The input of a round: what a call of the handler gets beside the request."""

    input_responses: Mapping[str, Any] = MappingProxyType({})
    """The client's results by the names of the input requests; see :class:`InputResponses`."""
    state: Any = None
    """The state that the handler saved."""


FIRST_INPUT = HandlerInput()
"""The input of the first call of a handler."""


def _is_key(key: object) -> bool:
    return isinstance(key, bytes) and len(key) >= 16


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StateSigner(Value):
    """Signs the state that travels with the client, so that no client can change it.

    The signature binds the state to the principal and to the request (method and parameters), and
    expires. It does not encrypt.

    Attributes:
        keys: secrets of at least 16 bytes, the same in all instances of a server. The first one
            signs; all of them verify, so that keys can be rotated. Or a function that returns them,
            which is called for each state: for keys that change while the server runs.
        clock: returns seconds since 1970, e.g. ``time.time``; the clocks of all instances must
            agree.
        lifetime: seconds after which a state is refused.
        claim_once: is called with the name of a returned state. It must return True the first time
            and False after that, and keep names for ``lifetime`` seconds, for all instances. None:
            a state can be used until it expires, so that a lost request can be repeated.

    Raises:
        LocalProtocolError: ``keys`` is empty, a key is not bytes or shorter than 16 bytes, or
            ``lifetime`` is not above zero.
    """

    keys: tuple[bytes, ...] | Callable[[], tuple[bytes, ...]] = attrs.field(repr=False)
    clock: Callable[[], float]
    lifetime: float = 600.0
    claim_once: Callable[[str], bool] | None = None

    def __attrs_post_init__(self) -> None:
        keys = self._keys_now()
        if not keys or not all(map(_is_key, keys)):
            raise LocalProtocolError("keys must be a tuple of bytes objects of 16 bytes or more")
        check_positive_seconds(self.lifetime)

    def _keys_now(self) -> tuple[bytes, ...]:
        return self.keys() if callable(self.keys) else self.keys

    def derived_names(self, purpose: bytes) -> tuple[str, ...]:
        """Return a name for each key, by which instances that have it know each other."""
        return tuple(
            base64.urlsafe_b64encode(hmac.digest(key, purpose, "sha256")[:12]).decode()
            for key in self._keys_now()
        )

    def sign(self, state: Any, principal: str, method: str, params: Params, *, name: str) -> str:
        """Return ``state`` signed, under a unique name. LocalProtocolError if it is not JSON."""
        content = json.encode([self.clock() + self.lifetime, name, state])
        tag = _tag(self._keys_now()[0], content, principal, method, params)
        return base64.urlsafe_b64encode(tag + content).decode()

    def verify(self, signed: str, principal: str, method: str, params: Params) -> Any:
        """Return the state. Raises RemoteProtocolError if it is forged, expired or used before."""
        try:
            raw = base64.b64decode(signed.encode(), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _refused("this server did not sign it") from None
        tag, content = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        known = (_tag(key, content, principal, method, params) for key in self._keys_now())
        if not any(hmac.compare_digest(tag, expected) for expected in known):
            raise _refused("this server did not sign it, or not for this request")
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
        f"The requestState cannot be used: {why}; send the request again without it",
        reason="bad_request_state",
        jsonrpc_code=-32602,
    )
