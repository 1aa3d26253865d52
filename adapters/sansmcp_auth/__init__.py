"""Verify access tokens of OAuth 2.1, and sign for clients. Needs the extra ``auth``.

    resource = sansmcp.ProtectedResource(resource=URL, authorization_servers=(ISSUER,))
    verify = sansmcp_auth.JwtVerifier(issuer=ISSUER, audience=URL)
    await sansmcp_asyncio.serve(app, authenticate=verify, protected_resource=resource)

:class:`JwtVerifier` is for tokens that are JWTs, and :class:`IntrospectionVerifier` for all others.
Both are plain functions: a server in an event loop calls them in a thread, so that they work with
every adapter. What they check is in :mod:`sansmcp.tokens`; this package does the I/O and the
signatures.

:class:`JoseSigner` signs for clients: DPoP, and ``private_key_jwt`` instead of a secret.
"""

from sansmcp import _lazy

with _lazy.needing(__name__, "auth", "joserfc"):
    from ._fetch import fetch
    from ._introspection import IntrospectionVerifier
    from ._jwt import JwtVerifier
    from ._signing import JoseSigner

__all__ = ["IntrospectionVerifier", "JoseSigner", "JwtVerifier", "fetch"]
