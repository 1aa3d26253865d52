"""The Model Context Protocol as pure state machines: bytes in, events out.

This package does no I/O, reads no clock and draws no random number. Adapters do; any other event
loop or HTTP stack can embed the machines directly.

* To serve or call over a network, use an adapter: ``serve(app)`` and ``connect(url)`` of
  ``sansmcp_asyncio``, ``sansmcp_trio`` and ``sansmcp_blocking``; ``sansmcp_asgi`` and
  ``sansmcp_wsgi`` for servers within web servers; ``sansmcp_httpx`` for clients. The settings are
  those of :class:`ClientOptions`, :class:`ServerOptions` and :class:`Limits`.
* To embed, use :class:`Client` and :class:`Server` (HTTP message parts), or
  :class:`ClientConnection` and :class:`ServerConnection` (bytes of HTTP/1.1).
* To parse, use the codecs alone: :class:`SseDecoder`, :func:`encode_event`, :func:`decode_message`,
  :func:`encode_message`, :class:`NdjsonDecoder`; for strict JSON, :func:`decode_json` and
  :func:`encode_json`; for headers that repeat a part of the body, such as ``Mcp-Name``,
  :func:`decode_header_value` and :func:`encode_header_value`.
* To read event streams that are not MCP and reconnect, use :class:`EventSource`.
* To route messages without decoding their content, use :func:`decode_envelope`.
* For the types of results and parameters, see :mod:`sansmcp.schema`.
* To test a program that uses it, see :mod:`sansmcp.testing`.

Terms: a *revision* is a dated version of MCP (:mod:`sansmcp.revisions`). A *request* is a message
that requires a response (:mod:`sansmcp.messages`). A *session* is what ``initialize`` opens: the
state that a server keeps of a client between its requests. A *stream* is the log of a server's
messages about one request, or about none (:mod:`sansmcp.store`). HTTP carries it as server-sent
*events*, which are not the events of a machine (:mod:`sansmcp.events`). A client that loses the
connection of a stream reconnects after the ``retry`` time, with the *last event id*, to resume it.
A *round* is one exchange of input requests and input responses within a call
(:mod:`sansmcp.input_required`).
"""

from typing import TYPE_CHECKING

from . import _lazy
from .app import App, Handler
from .codecs.envelope import Envelope
from .codecs.envelope import decode as decode_envelope
from .codecs.json import decode as decode_json
from .codecs.json import encode as encode_json
from .codecs.jsonrpc import Batch
from .codecs.jsonrpc import decode as decode_message
from .codecs.jsonrpc import encode as encode_message
from .codecs.ndjson import NdjsonDecoder, encode_line
from .codecs.sse import SseDecoder, SseEvent, encode_event
from .errors import (
    AuthorizationFailed,
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
    TaskCancelled,
    TaskLost,
    ToolFailed,
)
from .http import BodyData, BodyEnd, ConnectionLost, RequestHead, RequestHeaders, ResponseHead, Url
from .limits import Limits
from .messages import ErrorResponse, Message, Notification, Request, Response
from .revisions import REVISIONS, Revision
from .store import (
    AppendResult,
    AsyncStore,
    Entry,
    EntryKind,
    Page,
    Store,
    StreamKey,
    WatchableStore,
)
from .types import Era, Idle, Secret

if TYPE_CHECKING:
    from . import schema as schema
    from . import skills as skills
    from .auth.clients import OAuthClient
    from .auth.options import (
        Authorization,
        ClientCredentials,
        IdentityAssertion,
        JwtAssertion,
        JwtSigner,
        Login,
    )
    from .authentication import (
        Access,
        Authenticator,
        ConnectionInfo,
        DpopProof,
        PeerCredentials,
        Refusal,
    )
    from .base_call import BaseCall, PeerHandle
    from .base_client import (
        CallSettings,
        OriginatingCall,
        PendingResult,
        ServerRequest,
    )
    from .client.client import Client
    from .client.options import ClientOptions, ClientSettings, KnownServers, ReconnectPolicy
    from .codecs.event_id import EventId
    from .codecs.mirrored import decode_header_value, encode_header_value
    from .credentials import CredentialsKey, CredentialStorage, MemoryCredentials
    from .drivers.client import ClientDriver
    from .drivers.server import ServerDriver
    from .event_source import EventSource
    from .http11.client_connection import ClientConnection
    from .http11.pool import ConnectionPool
    from .http11.server_connection import ServerConnection
    from .input_required import InputRequest, InputRequired, StateSigner
    from .memory_store import MemoryStore
    from .observer import Observer
    from .protected_resource import ProtectedResource
    from .rates import RateLimit, RateStore
    from .security import SecurityPolicy
    from .server.exchange import ServerExchange
    from .server.options import ServerOptions, ServerSettings
    from .server.server import Server
    from .server.stdio import ServerPipe
    from .server_call import Peer, ServerCall, Session
    from .skills import Skill, SkillFile, SkillMismatch
    from .static_tokens import StaticTokens
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            ".auth.clients": ("OAuthClient",),
            ".auth.options": (
                "Authorization",
                "ClientCredentials",
                "IdentityAssertion",
                "JwtAssertion",
                "JwtSigner",
                "Login",
            ),
            ".credentials": ("CredentialStorage", "CredentialsKey", "MemoryCredentials"),
            ".base_call": ("BaseCall", "PeerHandle"),
            ".client.client": ("Client",),
            ".client.options": (
                "ClientOptions",
                "ClientSettings",
                "ReconnectPolicy",
                "KnownServers",
            ),
            ".codecs.event_id": ("EventId",),
            ".codecs.mirrored": ("decode_header_value", "encode_header_value"),
            ".base_client": (
                "CallSettings",
                "OriginatingCall",
                "PendingResult",
                "ServerRequest",
            ),
            ".drivers.client": ("ClientDriver",),
            ".drivers.server": ("ServerDriver",),
            ".event_source": ("EventSource",),
            ".http11.client_connection": ("ClientConnection",),
            ".http11.pool": ("ConnectionPool",),
            ".http11.server_connection": ("ServerConnection",),
            ".memory_store": ("MemoryStore",),
            ".observer": ("Observer",),
            ".rates": ("RateLimit", "RateStore"),
            ".security": ("SecurityPolicy",),
            ".authentication": (
                "Access",
                "Authenticator",
                "ConnectionInfo",
                "DpopProof",
                "PeerCredentials",
                "Refusal",
            ),
            ".protected_resource": ("ProtectedResource",),
            ".static_tokens": ("StaticTokens",),
            ".server_call": ("ServerCall", "Peer", "Session"),
            ".skills": ("Skill", "SkillFile", "SkillMismatch"),
            ".server.exchange": ("ServerExchange",),
            ".server.options": ("ServerOptions", "ServerSettings"),
            ".server.server": ("Server",),
            ".server.stdio": ("ServerPipe",),
            ".input_required": ("InputRequest", "InputRequired", "StateSigner"),
        },
        modules=("schema", "skills"),
    )

__version__ = "1.0.0rc1"

__all__ = [
    "REVISIONS",
    "Access",
    "App",
    "AppendResult",
    "AsyncStore",
    "Authenticator",
    "Authorization",
    "AuthorizationFailed",
    "BaseCall",
    "Batch",
    "BodyData",
    "BodyEnd",
    "CallError",
    "CallSettings",
    "Client",
    "ClientConnection",
    "ClientCredentials",
    "ClientDriver",
    "ClientOptions",
    "ClientSettings",
    "ConnectionInfo",
    "ConnectionLost",
    "ConnectionPool",
    "CredentialStorage",
    "CredentialsKey",
    "Disconnected",
    "DpopProof",
    "Entry",
    "EntryKind",
    "Envelope",
    "Era",
    "ErrorResponse",
    "EventId",
    "EventSource",
    "Handler",
    "IdentityAssertion",
    "Idle",
    "InputRequest",
    "InputRequired",
    "InvalidResponse",
    "JsonRpcError",
    "JwtAssertion",
    "JwtSigner",
    "KnownServers",
    "Limits",
    "LocalProtocolError",
    "Login",
    "MemoryCredentials",
    "MemoryStore",
    "Message",
    "NdjsonDecoder",
    "NegotiationFailed",
    "Notification",
    "OAuthClient",
    "Observer",
    "OriginatingCall",
    "Page",
    "Peer",
    "PeerCredentials",
    "PeerHandle",
    "PendingResult",
    "ProcessEnded",
    "ProtectedResource",
    "ProtocolError",
    "RateLimit",
    "RateStore",
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
    "ServerCall",
    "ServerConnection",
    "ServerDriver",
    "ServerExchange",
    "ServerOptions",
    "ServerPipe",
    "ServerRequest",
    "ServerSettings",
    "Session",
    "SessionLost",
    "Skill",
    "SkillFile",
    "SkillMismatch",
    "SseDecoder",
    "SseEvent",
    "StateSigner",
    "StaticTokens",
    "Store",
    "StreamKey",
    "TaskCancelled",
    "TaskLost",
    "ToolFailed",
    "Url",
    "WatchableStore",
    "decode_envelope",
    "decode_header_value",
    "decode_json",
    "decode_message",
    "encode_event",
    "encode_header_value",
    "encode_json",
    "encode_line",
    "encode_message",
]
