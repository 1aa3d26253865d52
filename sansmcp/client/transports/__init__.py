"""How a client reaches its server: each transport keeps what is open, and says what it means.

A transport queues effects and returns outcomes; ``client`` acts on them. What takes several steps
is a generator: it yields an outcome, and goes on once the client has acted on it. Messages are
written by ``MessageEncoder`` and read by ``MessageDecoder``; the transport itself bounds what it
keeps of a message that is not complete (``max_message_bytes``).
"""
