"""The Model Context Protocol's wire, as a pure state machine: bytes in, events out.

Nothing in this package does I/O, reads a clock or draws a random number. Adapters do; any other
event loop or HTTP stack can embed the machines directly.

* To serve or call over a network, use an adapter: ``serve(app)`` and ``connect(url)`` of
  ``sansmcp_asyncio``, ``sansmcp_trio`` and ``sansmcp_blocking``; ``sansmcp_asgi`` and
  ``sansmcp_wsgi`` for servers within web servers; ``sansmcp_httpx`` for clients. What can be set is
  told by :class:`ClientOptions`, :class:`ServerOptions` and :class:`Limits`.
* To embed, use :class:`Client` and :class:`Server` (HTTP message parts), or
  :class:`ClientConnection` and :class:`ServerConnection` (bytes of HTTP/1.1).
* To parse, use the codecs alone: :class:`SseDecoder`, :func:`encode_event`, :func:`decode_message`,
  :func:`encode_message`, :class:`NdjsonDecoder`.
* To route messages and not to open them, use :func:`decode_envelope`.
* To test what is built on it, see :mod:`sansmcp.testing`.

The words of MCP: a *revision* is a dated version of it (:mod:`sansmcp.revisions`). A *request* is a
message that wants an answer (:mod:`sansmcp.messages`). A *session* is what a server remembers of a
client between its requests. A *stream* is all that a server says about one request, or about none
(:mod:`sansmcp.store`); on HTTP it travels as server-sent *events*, which are not those that a
machine tells an application (:mod:`sansmcp.events`). A client whose connection ends comes back
after the time of ``retry``, with the *last event id*, and reads on. A *turn* is what a handler does
until it needs input of the client (:mod:`sansmcp.input_required`).
"""

from typing import TYPE_CHECKING

from . import _lazy
from .app import App, Handler
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
from .http import BodyData, BodyEnd, PeerGone, RequestHead, RequestHeaders, ResponseHead, Url
from .limits import Limits
from .messages import ErrorResponse, Message, Notification, Request, Response
from .revisions import REVISIONS, Revision
from .store import Entry, EntryKind, Page, Store, StreamKey
from .types import Era, Idle, Secret

if TYPE_CHECKING:
    from .authentication import Authenticator, ConnectionInfo, PeerCredentials, Refusal
    from .base_call import CallHandle, SessionHandle
    from .base_client import CallOptions, ClientHandle, OriginatingCall, Promise, ServerRequest
    from .client.client import Client
    from .client.options import ClientOptions, ClientSettings, ReconnectPolicy, Verdicts
    from .codecs.event_id import EventId
    from .drivers.client import ClientHost
    from .drivers.server import ServerHost
    from .http11.client_connection import ClientConnection
    from .http11.pool import ConnectionPool
    from .http11.server_connection import ServerConnection
    from .input_required import InputRequest, InputRequired, StateSeal
    from .memory_store import MemoryStore
    from .security import SecurityPolicy
    from .server.exchange import ServerExchange
    from .server.options import ServerOptions, ServerSettings
    from .server.server import Server
    from .server.stdio import ServerPipe
    from .server_call import Call, Caller, Session
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            ".base_call": ("CallHandle", "SessionHandle"),
            ".client.client": ("Client",),
            ".client.options": ("ClientOptions", "ClientSettings", "ReconnectPolicy", "Verdicts"),
            ".codecs.event_id": ("EventId",),
            ".base_client": (
                "CallOptions",
                "ClientHandle",
                "OriginatingCall",
                "Promise",
                "ServerRequest",
            ),
            ".drivers.client": ("ClientHost",),
            ".drivers.server": ("ServerHost",),
            ".http11.client_connection": ("ClientConnection",),
            ".http11.pool": ("ConnectionPool",),
            ".http11.server_connection": ("ServerConnection",),
            ".memory_store": ("MemoryStore",),
            ".security": ("SecurityPolicy",),
            ".authentication": ("Authenticator", "ConnectionInfo", "PeerCredentials", "Refusal"),
            ".server_call": ("Call", "Caller", "Session"),
            ".server.exchange": ("ServerExchange",),
            ".server.options": ("ServerOptions", "ServerSettings"),
            ".server.server": ("Server",),
            ".server.stdio": ("ServerPipe",),
            ".input_required": ("InputRequest", "InputRequired", "StateSeal"),
        },
    )

__version__ = "0.1.0"

__all__ = [
    "REVISIONS",
    "App",
    "Authenticator",
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
    "ClientHost",
    "ClientOptions",
    "ClientSettings",
    "ConnectionInfo",
    "ConnectionPool",
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
    "OriginatingCall",
    "Page",
    "PeerCredentials",
    "PeerGone",
    "ProcessEnded",
    "Promise",
    "ProtocolError",
    "ReconnectPolicy",
    "Refusal",
    "RemoteProtocolError",
    "Request",
    "RequestCancelled",
    "RequestHead",
    "RequestHeaders",
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
    "ServerOptions",
    "ServerPipe",
    "ServerRequest",
    "ServerSettings",
    "Session",
    "SessionHandle",
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
