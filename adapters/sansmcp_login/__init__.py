"""Logins of people and storage of credentials, for clients that need authorization.

    login = sansmcp_login.LoopbackLogin()
    authorization = sansmcp.Authorization(
        login=login, credentials=sansmcp_login.FileCredentials()
    )
    async with sansmcp_asyncio.connect(url, authorization=authorization) as client: ...

* :class:`LoopbackLogin` opens a browser and waits for it on a port of this machine;
  :func:`print_login` prints the URL and reads the answer from the terminal.
* :class:`FileCredentials` keeps tokens in files that only the user can read;
  :class:`KeyringCredentials` keeps them in the keyring of the system, with the extra ``keyring``.
"""

from ._files import FileCredentials
from ._keyring import KeyringCredentials
from ._loopback import LoopbackLogin
from ._terminal import print_login

__all__ = ["FileCredentials", "KeyringCredentials", "LoopbackLogin", "print_login"]
