"""HTTP/1.1 by ``h11``, which is pure Python: what connections use unless told otherwise."""

from ..wire import Http11
from .client import read_response_head
from .server import ServerWire

HTTP11 = Http11(server=ServerWire, read_response_head=read_response_head)

__all__ = ["HTTP11"]
