"""An MCP server that requires a token, and its authorization server, on one real socket."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from urllib.request import urlopen

import attrs

INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "protected", "version": "1"},
}


Attack: TypeAlias = Callable[[BaseHTTPRequestHandler], None]


@attrs.define(eq=False)
class Protected:
    """A running server."""

    base: str
    lifetime: int | None = 3600
    """Seconds for which tokens are valid; None if that is not told."""
    has_refresh_tokens: bool = True
    auth_method: str = "none"
    """How clients authenticate."""
    registers: bool = True
    """True if clients can register themselves."""
    tokens: set[str] = attrs.field(factory=set[str])
    seen: list[str] = attrs.field(factory=list[str])
    """The path of each request, in order."""
    headers: list[dict[str, str]] = attrs.field(factory=list[Any])
    """The headers of each request to the authorization server, names in lower case."""
    scopes: str = ""
    """The scopes of the last login."""
    forms: list[dict[str, str]] = attrs.field(factory=list[Any])
    """The form of each token request."""
    open_to: str = ""
    """``connecting``: all may connect, and tools need a token; ``listing``: all may list them."""
    refusal: int = 401
    """The status of a request without a token."""
    challenge: str | None = "Bearer"
    """The challenge in that response; None for none."""
    has_metadata: bool = True
    """True if the server says where to log in."""
    revocation: int = 200
    """The status of a request that revokes a token."""
    needed_scopes: str = ""
    """Scopes that tools need; tokens have those that were requested."""
    metadata: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """Further or other members of the metadata of the authorization server; None leaves one out."""
    error: str = ""
    """The error that a person is sent back with; empty to log in."""
    issuer: str = ""
    """The authorization server that the server names; empty for its own."""
    attacks: dict[str, Attack] = attrs.field(factory=dict[str, Any])
    """By path: what answers instead."""

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def browse(self, url: str) -> bool:
        """Play the browser, in a thread: log in at once, and go where the server sends it."""
        threading.Thread(target=lambda: urlopen(url).read(), daemon=True).start()
        return True


class _Handler(BaseHTTPRequestHandler):
    protected: Protected
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        protected, path = self.protected, urlsplit(self.path).path
        self._note(path)
        base = protected.base
        if path in protected.attacks:
            protected.attacks[path](self)
        elif path == "/.well-known/oauth-protected-resource/mcp" and protected.has_metadata:
            issuer = protected.issuer or base
            self._send({"resource": protected.url, "authorization_servers": [issuer]})
        elif path == "/.well-known/oauth-authorization-server":
            document: dict[str, Any] = {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": [protected.auth_method],
            }
            if protected.registers:
                document["registration_endpoint"] = f"{base}/register"
            document.update(protected.metadata)
            self._send({name: each for name, each in document.items() if each is not None})
        elif path == "/authorize":
            query = parse_qs(urlsplit(self.path).query)
            result = {"error": protected.error} if protected.error else {"code": "c"}
            protected.scopes = query.get("scope", [""])[0]
            answer = urlencode({**result, "state": query["state"][0]})
            self._send({}, 302, location=f"{query['redirect_uri'][0]}?{answer}")
        else:
            self._send({}, 405)

    def do_DELETE(self) -> None:
        self._note("DELETE")
        self._send({}, 405)

    def do_POST(self) -> None:
        protected, path = self.protected, urlsplit(self.path).path
        body = self.rfile.read(int(self.headers["content-length"]))
        self._note(path)
        if path in protected.attacks:
            protected.attacks[path](self)
        elif path == "/register":
            self._send({"client_id": "c"}, 201)
        elif path == "/revoke":
            protected.forms.append(dict(parse_qsl(body.decode())))
            self._send({}, protected.revocation)
        elif path == "/token":
            protected.forms.append(dict(parse_qsl(body.decode())))
            number = len(protected.forms)
            protected.tokens.add(f"token-{number}")
            document: dict[str, Any] = {"access_token": f"token-{number}", "token_type": "Bearer"}
            if protected.has_refresh_tokens:
                document["refresh_token"] = f"refresh-{number}"
            if protected.lifetime is not None:
                document["expires_in"] = protected.lifetime
            self._send(document)
        elif self._is_allowed(body):
            self._answer(json.loads(body))
        elif self._has_token():
            needed = f'Bearer error="insufficient_scope", scope="{protected.needed_scopes}"'
            self._send({}, 403, www_authenticate=needed)
        elif protected.challenge is None:
            self._send({}, protected.refusal)
        else:
            self._send({}, protected.refusal, www_authenticate=protected.challenge)

    def _is_allowed(self, body: bytes) -> bool:
        protected, is_call = self.protected, b"tools/call" in body
        free = {"connecting": b"tools/" not in body, "listing": not is_call}
        if free.get(protected.open_to, False):
            return True
        lacks_scope = is_call and protected.needed_scopes not in protected.scopes
        return self._has_token() and not lacks_scope

    def _has_token(self) -> bool:
        return self.headers.get("authorization", "")[7:] in self.protected.tokens

    def _answer(self, message: Any) -> None:
        if "id" not in message:
            self._send({}, 202)
            return
        results: dict[str, Any] = {"initialize": INITIALIZED, "tools/call": {"content": []}}
        result = results.get(message["method"], {"tools": []})
        self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _note(self, path: str) -> None:
        self.protected.seen.append(path)
        if path != "/mcp":
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.protected.headers.append(headers)

    def _send(self, document: Any, status: int = 200, **headers: str) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client may leave while it is answered: what it opened a stream for is over.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def protected_server(
    host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> Generator[Protected, None, None]:
    """Run a server in threads, under TLS with a context; ``host`` is its name in URLs."""
    handler = type("Handler", (_Handler,), {})
    server = _HTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    protected = Protected(f"{scheme}://{host}:{server.server_port}")
    handler.protected = protected  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield protected
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
