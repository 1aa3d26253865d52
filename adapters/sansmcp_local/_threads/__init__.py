"""The common parts of blocking adapters: handlers in threads, and clients.

Nothing here imports asyncio before an asynchronous store is used. The I/O is done elsewhere: by the
selector loop of :mod:`sansmcp_blocking`, the threads of a WSGI server under :mod:`sansmcp_wsgi`,
httpx, or a function that makes one HTTP request (:func:`connect_fetch`).
"""
