"""An MCP server that requires a token, and its authorization server, on one real socket."""

from __future__ import annotations

import json
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
    forms: list[dict[str, str]] = attrs.field(factory=list[Any])
    """The form of each token request."""
    is_open: bool = False
    """True if everybody may connect, and tools need a token."""
    error: str = ""
    """The error that a person is sent back with; empty to log in."""
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
        elif path == "/.well-known/oauth-protected-resource/mcp":
            self._send({"resource": protected.url, "authorization_servers": [base]})
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
            self._send(document)
        elif path == "/authorize":
            query = parse_qs(urlsplit(self.path).query)
            result = {"error": protected.error} if protected.error else {"code": "c"}
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
        else:
            self._send({}, 401, www_authenticate="Bearer")

    def _is_allowed(self, body: bytes) -> bool:
        if self.protected.is_open and b"tools/" not in body:
            return True
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
def protected_server() -> Generator[Protected, None, None]:
    """Run a server in threads."""
    handler = type("Handler", (_Handler,), {})
    server = _HTTPServer(("127.0.0.1", 0), handler)
    protected = Protected(f"http://127.0.0.1:{server.server_port}")
    handler.protected = protected  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield protected
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
