"""Responses to requests of a flow, made short."""

from __future__ import annotations

import json
from typing import Any

from sansmcp.auth.http import AuthRequest, AuthResponse
from sansmcp.codecs.headers import Headers

REQUEST = AuthRequest(step="a step", url="https://as.example/x?secret")


def response(document: Any, status: int = 200, headers: Headers = ()) -> AuthResponse:
    """A response with a JSON document, or with bytes that are none."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return AuthResponse(REQUEST, status, headers, body)
