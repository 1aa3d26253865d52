"""The Model Context Protocol's wire, as a pure state machine: bytes in, events out.

Nothing in this package does I/O, reads a clock or draws a random number. Adapters do, for trio and
others (``sansmcp_trio``); any other event loop or HTTP stack can embed the machines directly.

* To serve or call over a network, use an adapter: ``sansmcp_trio.serve(app)``,
  ``sansmcp_trio.connect(url)``.
* To embed, use :class:`Client` and :class:`Server` (HTTP message parts), or
  :class:`ClientConnection` and :class:`ServerConnection` (bytes of HTTP/1.1).
* To parse, use the codecs alone: :class:`SseDecoder`, :func:`encode_event`, :func:`decode_message`,
  :func:`encode_message`, :class:`NdjsonDecoder`.
* To route messages and not to open them, use :func:`decode_envelope`.
"""

from typing import TYPE_CHECKING

from .app import App, Handler
from .client.client import Client
from .client.core import ReconnectPolicy
from .client.detection import Verdicts
from .client.settings import CallOptions, ClientSettings
from .codecs.envelope import Envelope
from .codecs.envelope import decode as decode_envelope
from .codecs.jsonrpc import Batch
from .codecs.jsonrpc import decode as decode_message
from .codecs.jsonrpc import encode as encode_message
from .codecs.ndjson import NdjsonDecoder, encode_line
from .codecs.sse import SseDecoder, SseEvent, encode_event
from .errors import (
    CallError,
    Disconnected,
    InvalidResponse,
    JsonRpcError,
    LocalProtocolError,
    NegotiationFailed,
    ProcessEnded,
    ProtocolError,
    RemoteProtocolError,
    RequestCancelled,
    RequestRefused,
    RequestTimeout,
    SessionLost,
)
from .handles import CallHandle, ClientHandle
from .hosting import ServerHost
from .http import BodyData, BodyEnd, PeerGone, RequestHead, ResponseHead, Url
from .http11 import ClientConnection, ServerConnection
from .limits import Limits
from .messages import ErrorResponse, Message, Notification, Request, Response
from .revisions import REVISIONS, Revision
from .security import SecurityPolicy
from .server.calls import Call, Caller
from .server.exchange import ServerExchange
from .server.server import Server
from .server.settings import ServerSettings
from .server.stdio import ServerPipe
from .store import Entry, EntryKind, Page, Store, StreamKey
from .turns import InputRequest, InputRequired, StateSeal
from .types import Era, Idle, Secret

if TYPE_CHECKING:
    from .codecs.event_id import EventId
    from .memory import MemoryStore
    from .server.legacy.sessions import Session
else:

    def __getattr__(name: str) -> object:
        """Names of the handshake revisions: who does without those does not even import them."""
        if name == "EventId":
            from .codecs.event_id import EventId

            return EventId
        if name == "MemoryStore":
            from .memory import MemoryStore

            return MemoryStore
        if name == "Session":
            from .server.legacy.sessions import Session

            return Session
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "REVISIONS",
    "App",
    "Batch",
    "BodyData",
    "BodyEnd",
    "Call",
    "CallError",
    "CallHandle",
    "CallOptions",
    "Caller",
    "Client",
    "ClientConnection",
    "ClientHandle",
    "ClientSettings",
    "Disconnected",
    "Entry",
    "EntryKind",
    "Envelope",
    "Era",
    "ErrorResponse",
    "EventId",
    "Handler",
    "Idle",
    "InputRequest",
    "InputRequired",
    "InvalidResponse",
    "JsonRpcError",
    "Limits",
    "LocalProtocolError",
    "MemoryStore",
    "Message",
    "NdjsonDecoder",
    "NegotiationFailed",
    "Notification",
    "Page",
    "PeerGone",
    "ProcessEnded",
    "ProtocolError",
    "ReconnectPolicy",
    "RemoteProtocolError",
    "Request",
    "RequestCancelled",
    "RequestHead",
    "RequestRefused",
    "RequestTimeout",
    "Response",
    "ResponseHead",
    "Revision",
    "Secret",
    "SecurityPolicy",
    "Server",
    "ServerConnection",
    "ServerExchange",
    "ServerHost",
    "ServerPipe",
    "ServerSettings",
    "Session",
    "SessionLost",
    "SseDecoder",
    "SseEvent",
    "StateSeal",
    "Store",
    "StreamKey",
    "Url",
    "Verdicts",
    "decode_envelope",
    "decode_message",
    "encode_event",
    "encode_line",
    "encode_message",
]
