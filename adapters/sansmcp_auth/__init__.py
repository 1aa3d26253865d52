"""OAuth 2.1: verify access tokens at a server; log people in and keep their tokens at a client.

For servers::

    resource = sansmcp.ProtectedResource(resource=URL, authorization_servers=(ISSUER,))
    verify = sansmcp_auth.JwtVerifier(issuer=ISSUER, audience=URL)
    await sansmcp_asyncio.serve(app, authenticate=verify, protected_resource=resource)

:class:`JwtVerifier` is for tokens that are JWTs, and :class:`IntrospectionVerifier` for all others.
Both are plain functions: a server in an event loop calls them in a thread, so that they work with
every adapter. What they check is in :mod:`sansmcp.tokens`; this package does the I/O and the
signatures. Both need the extra ``auth``.

For clients::

    login = sansmcp_auth.LoopbackLogin()
    authorization = sansmcp.Authorization(login=login, credentials=sansmcp_auth.FileCredentials())
    async with sansmcp_asyncio.connect(url, authorization=authorization) as client: ...

* :class:`LoopbackLogin` opens a browser and waits for it on a port of this machine;
  :func:`print_login` prints the URL and reads the answer from the terminal.
* :class:`FileCredentials` keeps tokens in files that only the user can read;
  :class:`KeyringCredentials` keeps them in the keyring of the system, with the extra ``keyring``.
* :class:`JoseSigner` signs: DPoP, and ``private_key_jwt`` instead of a secret. It needs the extra
  ``auth``.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._fetch import fetch
    from ._files import FileCredentials
    from ._introspection import IntrospectionVerifier
    from ._jwt import JwtVerifier
    from ._keyring import KeyringCredentials
    from ._loopback import LoopbackLogin
    from ._signing import JoseSigner
    from ._terminal import print_login
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._fetch": ("fetch",),
            "._files": ("FileCredentials",),
            "._introspection": ("IntrospectionVerifier",),
            "._jwt": ("JwtVerifier",),
            "._keyring": ("KeyringCredentials",),
            "._loopback": ("LoopbackLogin",),
            "._signing": ("JoseSigner",),
            "._terminal": ("print_login",),
        },
        extra=("auth", "joserfc"),
    )

__all__ = [
    "FileCredentials",
    "IntrospectionVerifier",
    "JoseSigner",
    "JwtVerifier",
    "KeyringCredentials",
    "LoopbackLogin",
    "fetch",
    "print_login",
]
