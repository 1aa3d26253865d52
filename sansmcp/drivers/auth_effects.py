"""The effects of the authorization, as a storage or a signer of the application performs them."""

from __future__ import annotations

from typing import Any

from ..auth.options import Authorization
from ..effects import (
    AuthEffect,
    LoadCredentials,
    LockCredentials,
    MakeKey,
    SaveCredentials,
    SignJwt,
    UnlockCredentials,
)
from ..errors import LocalProtocolError
from ..types import assert_never


def perform(authorization: Authorization, effect: AuthEffect) -> Any:
    """Perform an effect, in any thread, and return its result. Raises what the application does."""
    match effect:
        case LoadCredentials(key):
            return authorization.credentials.load(key)
        case SaveCredentials(key, document):
            return authorization.credentials.save(key, document)
        case LockCredentials(key):
            return authorization.credentials.try_lock(key)
        case UnlockCredentials(key):
            return authorization.credentials.unlock(key)
        case _ if authorization.signer is None:
            raise LocalProtocolError(
                "authorization has no signer; pass Authorization(signer=JoseSigner()) of "
                "sansmcp_auth"
            )
        case MakeKey(algorithm):
            return authorization.signer.make_key(algorithm)
        case SignJwt(header, claims, key):
            return authorization.signer.sign(header, claims, key)
        case _ as impossible:
            assert_never(impossible)
