"""HTTP/1.1 by ``h11``, which is pure Python: what connections use unless told otherwise."""

from ..wire import Http11
from .client import ClientWire
from .server import ServerWire

HTTP11 = Http11(server=ServerWire, client=ClientWire)

__all__ = ["HTTP11"]
